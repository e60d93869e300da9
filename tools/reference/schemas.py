#!/usr/bin/env python3
"""Writes the corpus of schemas that tests of structured output read.

  tools/reference/schemas.py > tests/sample/schemas.jsonl

One schema a line: those that people write (extraction, tool calls, configuration, trees), each keyword
alone and with others, and combinations drawn from a seed. tests/peers/schemas.py has every text that
they allow checked by Python's jsonschema.
"""
import json
import random

S = {"type": "string"}
I = {"type": "integer"}
N = {"type": "number"}
B = {"type": "boolean"}


def obj(properties, required=None, **more):
    return {"type": "object", "properties": properties,
            "required": list(properties) if required is None else required, "additionalProperties": False, **more}


def arr(items, **more):
    return {"type": "array", "items": items, **more}


def keywords():
    yield from (True, {}, {"type": "object"}, {"type": "array"}, S, I, N, B, {"type": "null"})
    yield from ({"type": ["string", "null"]}, {"type": ["integer", "boolean"]}, {"type": ["object", "array"]})
    yield from ({"enum": ["red", "green", "blue"]}, {"enum": [1, 2.5, None, True, "x", [1], {"a": 1}]},
                {"type": "string", "enum": ["a", "ab", "abc"]}, {"type": "integer", "enum": [1, 10, 100, "1"]},
                {"enum": ["\"quoted\"", "back\\slash", "new\nline", "é", "🙂", ""]})
    yield from ({"const": 5}, {"const": "only"}, {"const": {"k": [1, 2, {"z": None}]}}, {"const": None},
                {"const": 0.1}, {"const": -0.0}, {"const": 1e300})
    for low, high in ((0, 0), (1, 1), (0, 5), (3, 7), (10, 40), (0, 300), (200, 500), (5, None)):
        yield {"type": "string", "minLength": low, **({} if high is None else {"maxLength": high})}
    for low, high in ((0, 0), (0, 9), (1, 10), (-5, 5), (7, 1234), (-1000, -10), (99, 101), (0, 255), (-1, 0),
                      (1900, 2100), (-2147483648, 2147483647), (123456789, 987654321)):
        yield {"type": "integer", "minimum": low, "maximum": high}
    yield from ({"type": "integer", "minimum": 1}, {"type": "integer", "maximum": -1},
                {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
                {"type": "integer", "minimum": 0.5, "maximum": 3.5})
    for low, high in ((0, 1), (-1, 1), (0.5, 2.75), (0.001, 0.002), (-0.5, -0.25), (10, 1000), (99.9, 100.1),
                      (0, 0.1), (-3.25, 7)):
        yield {"type": "number", "minimum": low, "maximum": high}
        yield {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high}
    yield from ({"type": "number", "minimum": 0}, {"type": "number", "exclusiveMinimum": 0},
                {"type": "number", "maximum": 0}, {"type": "number", "exclusiveMaximum": 0})
    for pattern in ("^[A-Z]{3}-\\d{4}$", "^(foo|bar|baz)+$", "abc", "^\\w+@\\w+\\.com$", "^[^a-z]{2,5}$", "x$", "^#",
                    "^\\+?[1-9]\\d{1,14}$", "^(?:[0-9]{1,3}\\.){3}[0-9]{1,3}$", "^[\\w.-]{1,8}$", "^.{2,4}$",
                    "^\"quoted\"$", "^a\\\\b\\/c$", "^[\\s\\S]{0,3}$", "^\\S+\\s\\S+$", "^[é-ü]{2}$", "^\\u00e9\\t\\n$",
                    "^$", "^a|b$", "^(a(b(c)?)?)?$", "^[A-Fa-f0-9]{6}$", "^v?\\d+\\.\\d+\\.\\d+(-[a-z]+)?$",
                    "^\\D{1,3}\\W$", "^[^\\d\\s]{3}$", "^([0-9]+){2,50}$", "^[ab]{3,200}$"):
        yield {"type": "string", "pattern": pattern}
    yield {"type": "string", "pattern": "^[a-z]{2,4}$", "minLength": 2, "maxLength": 10}
    for name in ("date", "time", "date-time", "uuid", "email", "hostname", "ipv4", "ipv6", "uri"):
        yield {"type": "string", "format": name}
    yield from (arr(S), arr(I, minItems=2), arr(I, maxItems=3), arr(B, minItems=2, maxItems=4), arr(S, maxItems=0),
                arr(arr(I, minItems=1, maxItems=2), minItems=1, maxItems=3), arr({"enum": ["a", "b"]}, minItems=30),
                arr(I, minItems=40, maxItems=60), arr(N, minItems=1, maxItems=200), arr({}, maxItems=2))
    yield from ({"type": "array", "prefixItems": [S, I]}, {"type": "array", "prefixItems": [S, I], "items": False},
                {"type": "array", "prefixItems": [S, I], "items": B, "minItems": 2, "maxItems": 5},
                {"type": "array", "prefixItems": [S, I], "items": False, "minItems": 2},
                {"type": "array", "prefixItems": [N, N, {"enum": ["N", "S"]}], "minItems": 3, "maxItems": 3},
                {"type": "array", "uniqueItems": False, "items": I, "maxItems": 2})
    yield from (obj({}), obj({"a": S}), obj({"a": S, "b": I}, []), obj({"a": S, "b": I, "c": B}, ["b"]),
                obj({"a": I, "b": I, "c": I, "d": I, "e": I}, ["a", "e"]),
                {"type": "object", "properties": {"a": I}}, {"type": "object", "required": ["x", "y"]},
                {"type": "object", "properties": {"a": I, "ab": S}, "additionalProperties": B},
                {"type": "object", "properties": {"a": I, "b": S}, "required": ["b"], "additionalProperties": True},
                {"type": "object", "additionalProperties": I}, {"type": "object", "additionalProperties": arr(S)},
                {"type": "object", "properties": {"": I, "é": I, "a\"b": I}, "additionalProperties": S},
                {"type": "object", "minProperties": 1}, {"type": "object", "maxProperties": 2},
                {"type": "object", "additionalProperties": I, "minProperties": 1, "maxProperties": 3})
    p = {k: I for k in "abcdef"}
    yield from (obj(p, [], minProperties=2), obj(p, [], maxProperties=2), obj(p, ["c"], minProperties=3),
                obj(p, ["c"], minProperties=2, maxProperties=3), obj(p, [], minProperties=6),
                {"type": "object", "properties": p, "additionalProperties": I, "minProperties": 6, "maxProperties": 8},
                {"type": "object", "propertyNames": {"pattern": "^[a-z]{1,8}$"}, "additionalProperties": I},
                {"type": "object", "propertyNames": {"enum": ["x", "y"]}},
                {"type": "object", "propertyNames": {"maxLength": 4}, "minProperties": 1})


def combinations():
    yield from ({"anyOf": [S, I]}, {"anyOf": [obj({"a": S}), obj({"b": I})]}, {"anyOf": [S, {"type": "null"}]},
                {"oneOf": [S, I, {"type": "null"}]}, {"oneOf": [{"const": "a"}, {"const": "b"}]},
                {"oneOf": [obj({"kind": {"const": "circle"}, "r": N}), obj({"kind": {"const": "square"}, "a": N})]},
                {"oneOf": [obj({"a": S}), obj({"b": S})]}, {"oneOf": [{"enum": [1, 2]}, {"enum": [3, "4"]}, S and B]},
                {"allOf": [{"type": "object"}, {"properties": {"a": I}, "required": ["a"]},
                           {"properties": {"b": S}, "required": ["b"]}]},
                {"allOf": [{"minimum": 3}, {"maximum": 9}], "type": "integer"},
                {"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]},
                {"allOf": [{"properties": {"a": {"type": ["integer", "string"]}}},
                           {"properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}], "type": "object"},
                {"allOf": [{"anyOf": [S, I]}, {"anyOf": [I, B]}]},
                {"allOf": [{"minLength": 2}, {"maxLength": 4}], "type": "string"},
                {"type": "array", "allOf": [{"items": {"minimum": 0}}, {"items": {"type": "integer", "maximum": 9}}],
                 "maxItems": 4},
                {"anyOf": [{"type": "integer", "minimum": 10}, {"type": "integer", "maximum": -10}]},
                {"type": "object", "properties": {"v": {"anyOf": [S, arr(S, maxItems=3)]}}, "required": ["v"]},
                {"type": "object", "properties": {"a": S}, "required": ["a"],
                 "anyOf": [{"properties": {"b": I}, "required": ["b"]}, {"properties": {"c": B}, "required": ["c"]}]})
    yield {"$ref": "#/$defs/x", "$defs": {"x": arr(I)}}
    yield {"$defs": {"positive": {"type": "integer", "minimum": 1}}, **obj({"a": {"$ref": "#/$defs/positive"},
           "b": {"$ref": "#/$defs/positive", "maximum": 5}})}
    yield {"definitions": {"a/b~c": S}, **obj({"v": {"$ref": "#/definitions/a~1b~0c"}})}
    yield {"$defs": {"n": {"$anchor": "node", **B}}, **arr({"$ref": "#node"}, maxItems=2)}
    yield {"$defs": {"tree": obj({"value": I, "children": arr({"$ref": "#/$defs/tree"})})}, "$ref": "#/$defs/tree"}
    yield {"$defs": {"list": obj({"head": S, "tail": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}]}})},
           "$ref": "#/$defs/list"}
    yield {"type": "object", "properties": {"next": {"$ref": "#"}, "n": I}, "required": ["n"]}
    yield {"$defs": {"even": {"anyOf": [{"type": "null"}, arr({"$ref": "#/$defs/odd"}, maxItems=2)]},
                     "odd": obj({"e": {"$ref": "#/$defs/even"}})}, "$ref": "#/$defs/even"}
    expr = {"anyOf": [N, obj({"op": {"enum": ["+", "-"]}, "l": {"$ref": "#/$defs/e"}, "r": {"$ref": "#/$defs/e"}})]}
    yield {"$defs": {"e": expr}, "$ref": "#/$defs/e"}


def practice():
    yield obj({"name": S, "age": {"type": "integer", "minimum": 0, "maximum": 150},
               "email": {"type": "string", "format": "email"}})
    yield obj({"city": S, "unit": {"enum": ["celsius", "fahrenheit"]}}, ["city"])
    yield obj({"steps": arr(obj({"explanation": S, "output": S})), "final_answer": S})
    yield obj({"sentiment": {"enum": ["positive", "negative", "neutral"]},
               "confidence": {"type": "number", "minimum": 0, "maximum": 1}, "reasons": arr(S, maxItems=5)})
    yield obj({"name": S, "date": {"type": "string", "format": "date"}, "participants": arr(S, minItems=1)})
    yield obj({"invoice_id": {"type": "string", "pattern": "^INV-[0-9]{6}$"},
               "lines": arr(obj({"sku": S, "quantity": {"type": "integer", "minimum": 1}, "price": N}), minItems=1),
               "total": {"type": "number", "exclusiveMinimum": 0}, "paid": B})
    yield obj({"type": {"enum": ["div", "button", "header"]}, "label": S,
               "children": arr({"$ref": "#"}), "attributes": arr(obj({"name": S, "value": S}))})
    yield obj({"id": {"type": "string", "format": "uuid"}, "created": {"type": "string", "format": "date-time"},
               "meta": {"type": "object", "additionalProperties": S}}, ["id", "created"])
    yield obj({"location": {"type": "array", "prefixItems": [{"type": "number", "minimum": -90, "maximum": 90},
               {"type": "number", "minimum": -180, "maximum": 180}], "minItems": 2, "maxItems": 2}})
    yield arr(obj({"entity": S, "label": {"enum": ["PER", "ORG", "LOC", "MISC"]}, "start": I, "end": I}))
    yield obj({"title": {"type": "string", "maxLength": 80}, "tags": arr({"type": "string", "maxLength": 20}, maxItems=8),
               "body": {"type": "string", "minLength": 10}, "rating": {"type": ["integer", "null"]}})
    yield obj({"query": S, "filters": obj({"year": obj({"from": I, "to": I}, []), "lang": arr({"enum": ["en", "de", "fr"]})},
              []), "page": {"type": "integer", "minimum": 1, "default": 1}}, ["query"])
    yield obj({"host": {"type": "string", "format": "hostname"}, "ip": {"type": "string", "format": "ipv4"},
               "port": {"type": "integer", "minimum": 1, "maximum": 65535}, "tls": B})
    yield obj({"answer": {"anyOf": [S, N, B, arr(S), {"type": "null"}]}, "thinking": S})
    yield {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Chess", "description": "a move",
           **obj({"from": {"type": "string", "pattern": "^[a-h][1-8]$"}, "to": {"type": "string", "pattern": "^[a-h][1-8]$"},
                  "promotion": {"enum": ["q", "r", "b", "n", None]}})}
    yield obj({f"field_{i}": [S, I, N, B][i % 4] for i in range(24)}, [f"field_{i}" for i in range(0, 24, 3)])


def drawn(count):
    rng = random.Random(20261201)

    def schema(depth):
        kind = rng.choice(["s", "i", "n", "b", "e", "z", "c"] if depth == 0 else ["s", "i", "n", "b", "e", "o", "o", "a", "y"])
        if kind == "s":
            low = rng.randint(0, 4)
            return rng.choice([S, {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 9)},
                               {"type": "string", "pattern": rng.choice(["^[a-z]+$", "^\\d{2}:\\d{2}$", "^(yes|no)$"])}])
        if kind in "in":
            low = rng.randint(-200, 200)
            return {"type": "integer" if kind == "i" else "number", "minimum": low, "maximum": low + rng.randint(0, 500)}
        if kind == "b":
            return B
        if kind == "z":
            return {"type": "null"}
        if kind == "c":
            return {"const": rng.choice([1, "x", None, [], {}])}
        if kind == "e":
            return {"enum": rng.sample(["a", "b", 1, 2, None, True, "long value", 3.5], rng.randint(1, 4))}
        if kind == "a":
            low = rng.randint(0, 2)
            return arr(schema(depth - 1), minItems=low, maxItems=low + rng.randint(0, 3))
        if kind == "y":
            return {"anyOf": [schema(depth - 1) for _ in range(rng.randint(1, 3))]}
        names = rng.sample(["id", "name", "value", "n", "na", "items", "x y", "ключ"], rng.randint(1, 5))
        required = [name for name in names if rng.random() < 0.5]
        return {**obj({name: schema(depth - 1) for name in names}, required),
                "additionalProperties": rng.choice([False, False, True, {"type": "integer"}])}

    for _ in range(count):
        yield schema(3)


for source in (keywords(), combinations(), practice(), drawn(40)):
    for one in source:
        print(json.dumps(one, ensure_ascii=False))
