#!/usr/bin/env python3
"""Writes tests/text/template_golden.json: what Python's jinja2 renders for each template of
tests/text/template_cases.json, or that it raises. The environment is Hugging Face's, the one of
tests/peers/templates.py; times are in UTC.

usage: templates.py
"""
import json
import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "peers"))
from templates import render_reference  # noqa: E402


def main():
    os.environ["TZ"] = "UTC"
    time.tzset()
    folder = os.path.join(ROOT, "tests", "text")
    with open(os.path.join(folder, "template_cases.json"), encoding="utf-8") as file:
        document = json.load(file)
    lines = []
    for case in document["cases"]:
        text, _ = render_reference(case["template"], document["context"])
        golden = {"name": case["name"]}
        golden.update({"raises": True} if text is None else {"text": text})
        lines.append("  " + json.dumps(golden, ensure_ascii=False))
    with open(os.path.join(folder, "template_golden.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
