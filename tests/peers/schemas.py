#!/usr/bin/env python3
"""Structured output against Python's jsonschema and re: every text that a grammar lets through is valid.

usage: schemas.py CASCADIA [MODEL]     with the mock's vocabulary of bytes; and with MODEL's, or SmolLM2's if it is in the cache

For each schema of tests/sample/schemas.jsonl `cascadia grammar` draws 100 texts from random logits under the grammar's
masks. Each must parse, and be valid with formats asserted; none may end in a dead end. Patterns alone are held against
Python's re. As a control the texts of one schema are held against the next one: most must not be valid.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

PACKAGE = "jsonschema[format]==4.26.0"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cascadia"
SMOLLM2 = CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CORPUS = ROOT / "tests" / "sample" / "schemas.jsonl"
SAMPLES = 100

PATTERNS = [r"[A-Z]{3}-\d{4}", r"(foo|bar)*baz?", r"\w+\s\w+", r"[^\x00-\x7f]{2}", r"a{2,70}b", r"(\d{1,3}\.){3}\d{1,3}",
            r"\D\W\S", r"[\w-]+@[\w-]+\.(com|org)", r"(?:a|b|(?P<n>c))+?", r"\u00e9\t[\]\\-]", r"x*y+z?", r"[é-ü🙂]{1,40}"]


def enter_venv():
    """Runs this file again with a Python that has the package; makes it once."""
    venv = CACHE / "peers" / "jsonschema-4.26.0"
    python = venv / "bin" / "python"
    if pathlib.Path(sys.prefix) == venv:
        return
    if not (venv / "ready").exists():
        print(f"installing {PACKAGE}, once", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PACKAGE], check=True)
        (venv / "ready").touch()
    os.execv(python, [str(python), *sys.argv])


def run(program, model, *arguments):
    command = [program, "grammar", model, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")


def loads(text):
    def refuse(name):
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


def check_schemas(program, model, validators):
    done = run(program, model, "--json-schema", str(CORPUS), "--lines", "--samples", str(SAMPLES), "--random-tokens", "50")
    n_texts, n_bad, values = 0, 0, [[] for _ in validators]
    for line in done.stdout.rstrip("\n").split("\n"):
        answer = json.loads(line)
        index = answer["line"] - 1
        if "error" in answer:
            print(f"  schema {index + 1}: {answer['error']}")
            n_bad += 1
            continue
        n_texts += 1
        try:
            value = loads(answer["text"])
            validators[index].validate(value)
            values[index].append(value)
        except Exception as error:
            n_bad += 1
            if n_bad < 20:
                print(f"  schema {index + 1}: {answer['text']!r}: {str(error).splitlines()[0]}")
    n_others = n_strangers = 0
    for index in range(len(validators)):
        for value in values[index - 1][:10]:
            n_others += 1
            n_strangers += not validators[index].is_valid(value)
    print(f"{pathlib.Path(model).name}: {len(validators)} schemas, {n_texts} texts, {n_bad} bad; "
          f"{n_strangers} of {n_others} texts are not valid for the next schema")
    return n_bad == 0 and n_texts == SAMPLES * len(validators) and 2 * n_strangers > n_others


def check_patterns(program, model):
    n_bad = 0
    for pattern in PATTERNS:
        done = run(program, model, "--regex", pattern, "--lines", "--samples", str(SAMPLES), "--random-tokens", "40")
        whole = re.compile(pattern)
        for line in done.stdout.rstrip("\n").split("\n"):
            text = json.loads(line)["text"]
            if not whole.fullmatch(text):
                n_bad += 1
                print(f"  {pattern}: {text!r}")
    print(f"{pathlib.Path(model).name}: {len(PATTERNS)} patterns, {n_bad} bad texts")
    return n_bad == 0


def main():
    enter_venv()
    import jsonschema

    kind = jsonschema.Draft202012Validator
    schemas = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    for schema in schemas:
        kind.check_schema(schema)
    validators = [kind(schema, format_checker=kind.FORMAT_CHECKER) for schema in schemas]
    models = ["mock-model", *sys.argv[2:]]
    if len(models) == 1 and SMOLLM2.exists():
        models.append(str(SMOLLM2))
    good = True
    for model in models:
        good &= check_schemas(sys.argv[1], model, validators)
        good &= check_patterns(sys.argv[1], model)
    return 0 if good else 1


sys.exit(main())
