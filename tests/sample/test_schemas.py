#!/usr/bin/env python3
"""Every text that a schema's grammar lets through is valid, by a validator of its own: the cut of tests/peers/schemas.py
that needs nothing but Python.

usage: test_schemas.py CASCADIA

For each schema of schemas.jsonl `cascadia grammar` draws texts from random logits over the mock's vocabulary of bytes.
As a control the texts of one schema are held against the next one: most must not be valid."""
import datetime
import json
import pathlib
import re
import subprocess
import sys
import urllib.parse

CORPUS = pathlib.Path(__file__).resolve().parent / "schemas.jsonl"
SAMPLES = 8
TYPES = {"null": type(None), "boolean": bool, "string": str, "array": list, "object": dict}
FORMATS = {
    "date": datetime.date.fromisoformat,
    "time": lambda text: datetime.time.fromisoformat(text.replace("Z", "+00:00")),
    "date-time": lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00")),
    "uuid": lambda text: re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) or 1 / 0,
    "email": lambda text: re.fullmatch(r"[^@\s.][^@\s]*@[^@\s.]+(\.[^@\s.]+)+", text) or 1 / 0,
}


def is_type(value, name):
    if name == "integer":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def same(a, b):
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def find(root, reference):
    at = root
    if reference[1:] and reference[1] != "/":
        wanted = [root]
        while wanted:
            at = wanted.pop()
            if isinstance(at, dict) and at.get("$anchor") == reference[1:]:
                return at
            wanted += at.values() if isinstance(at, dict) else at if isinstance(at, list) else []
    for token in reference[1:].split("/")[1:]:
        token = urllib.parse.unquote(token).replace("~1", "/").replace("~0", "~")
        at = at[int(token)] if isinstance(at, list) else at[token]
    return at


def number_faults(schema, value):
    yield "minimum", value >= schema.get("minimum", value)
    yield "maximum", value <= schema.get("maximum", value)
    yield "exclusiveMinimum", "exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"]
    yield "exclusiveMaximum", "exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"]


def string_faults(schema, value):
    yield "minLength", len(value) >= schema.get("minLength", 0)
    yield "maxLength", len(value) <= schema.get("maxLength", len(value))
    yield "pattern", "pattern" not in schema or re.search(schema["pattern"], value)
    if schema.get("format") in FORMATS:
        try:
            FORMATS[schema["format"]](value)
        except (ValueError, ZeroDivisionError):
            yield "format", False


def array_faults(root, schema, value):
    prefix = schema.get("prefixItems", [])
    yield "minItems", len(value) >= schema.get("minItems", 0)
    yield "maxItems", len(value) <= schema.get("maxItems", len(value))
    yield "prefixItems", all(is_valid(root, one, item) for one, item in zip(prefix, value))
    yield "items", all(is_valid(root, schema.get("items", True), item) for item in value[len(prefix):])


def object_faults(root, schema, value):
    properties = schema.get("properties", {})
    yield "minProperties", len(value) >= schema.get("minProperties", 0)
    yield "maxProperties", len(value) <= schema.get("maxProperties", len(value))
    yield "required", all(name in value for name in schema.get("required", []))
    yield "properties", all(is_valid(root, properties[name], value[name]) for name in value if name in properties)
    yield "additionalProperties", all(is_valid(root, schema.get("additionalProperties", True), value[name])
                                      for name in value if name not in properties)
    yield "propertyNames", all(is_valid(root, schema.get("propertyNames", True), name) for name in value)


def faults(root, schema, value):
    """(keyword, whether it holds) of everything that the schema says about the value."""
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    yield "type", not types or any(is_type(value, name) for name in types)
    yield "enum", "enum" not in schema or any(same(value, one) for one in schema["enum"])
    yield "const", "const" not in schema or same(value, schema["const"])
    yield "$ref", "$ref" not in schema or is_valid(root, find(root, schema["$ref"]), value)
    yield "allOf", all(is_valid(root, one, value) for one in schema.get("allOf", []))
    yield "anyOf", "anyOf" not in schema or any(is_valid(root, one, value) for one in schema["anyOf"])
    yield "oneOf", "oneOf" not in schema or sum(is_valid(root, one, value) for one in schema["oneOf"]) == 1
    if is_type(value, "number"):
        yield from number_faults(schema, value)
    elif isinstance(value, str):
        yield from string_faults(schema, value)
    elif isinstance(value, list):
        yield from array_faults(root, schema, value)
    elif isinstance(value, dict):
        yield from object_faults(root, schema, value)


def first_fault(root, schema, value):
    if isinstance(schema, bool):
        return None if schema else "false"
    return next((keyword for keyword, holds in faults(root, schema, value) if not holds), None)


def is_valid(root, schema, value):
    return first_fault(root, schema, value) is None


def main():
    schemas = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    command = [sys.argv[1], "grammar", "mock-model", "--json-schema", CORPUS, "--lines", "--samples", str(SAMPLES),
               "--random-tokens", "60"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")
    values, n_bad = [[] for _ in schemas], 0
    for line in done.stdout.rstrip("\n").split("\n"):
        answer = json.loads(line)
        schema = schemas[answer["line"] - 1]
        if "error" in answer:
            fault = answer["error"]
        else:
            value = json.loads(answer["text"])
            fault = first_fault(schema, schema, value)
            values[answer["line"] - 1].append(value)
        if fault is not None:
            n_bad += 1
            print(f"schema {answer['line']}: {fault}: {answer.get('text')!r}")
    n_texts = sum(map(len, values))
    strangers = [is_valid(schemas[i], schemas[i], value) for i in range(len(schemas)) for value in values[i - 1]]
    print(f"{len(schemas)} schemas, {n_texts} texts, {n_bad} bad; "
          f"{strangers.count(False)} of {len(strangers)} are not valid for the next schema")
    return 0 if n_bad == 0 and n_texts == SAMPLES * len(schemas) and 2 * strangers.count(False) > n_texts else 1


sys.exit(main())
