#!/usr/bin/env python3
"""Chat templates: `cascadia template` against Python's jinja2, byte for byte, also where it raises.

usage: templates.py CASCADIA [TEMPLATES [CONVERSATIONS.json]] [--verbose]

TEMPLATES is a folder of *.jinja files or one file (default: templates/ of the shared folder beside
the project). Each is rendered with each conversation of CONVERSATIONS.json (default: the one in the
folder, else those of tests/text/conversations.json) and with variants of them that the script makes:
without the generation prompt, content as parts, arguments as strings, thinking on, no tools.
Needs the package jinja2 alone. The environment is the one that Hugging Face's transformers sets up.
Ends 0 when all are equal, 1 when not, 77 when jinja2 or the templates are not there.
"""
import copy
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NOW = 1700000000

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("skipped: the Python package jinja2 is not installed")
    sys.exit(77)


class Generation(jinja2.ext.Extension):
    """{% generation %}: prints its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    """The environment in which Hugging Face renders chat templates."""

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW).strftime(format)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render_reference(source, context):
    """(text, None) or (None, error)."""
    try:
        return environment().from_string(source).render(**copy.deepcopy(context)), None
    except Exception as error:  # whatever Python raises, rendering fails
        return None, f"{type(error).__name__}: {error}"


def render_cascadia(program, template, context):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(context, file, ensure_ascii=False)
        file.flush()
        run = subprocess.run([program, "template", template, "--context", file.name,
                              "--now", str(NOW)], capture_output=True, timeout=60)
    if run.returncode == 0:
        return run.stdout.decode("utf-8"), None
    if run.returncode == 1:
        return None, run.stderr.decode("utf-8", "replace").strip()
    return None, f"CRASH: status {run.returncode}: {run.stderr[-2000:].decode('utf-8', 'replace')}"


def variants(conversations):
    """The conversations, and each in the shapes in which clients send them."""
    for name, context in conversations.items():
        yield name, context
        yield name + "/no-prompt", {**context, "add_generation_prompt": False}
        yield name + "/thinking", {**context, "enable_thinking": True, "thinking": True,
                                   "reasoning_effort": "high", "date_string": "1 Jan 2025"}
        parts, strings, without = (copy.deepcopy(context) for _ in range(3))
        for message in parts.get("messages", []):
            if isinstance(message.get("content"), str):
                message["content"] = [{"type": "text", "text": message["content"]}]
        yield name + "/parts", parts
        for message in strings.get("messages", []):
            for call in message.get("tool_calls") or []:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"],
                                                           ensure_ascii=False)
        if strings != context:
            yield name + "/string-arguments", strings
        if without.pop("tools", None) is not None:
            for message in without["messages"]:
                if message.get("tool_calls"):
                    message["content"] = None
            yield name + "/no-tools", without


def first_difference(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return (f"at character {at}:\n    jinja2   {a[max(0, at - 40):at + 60]!r}\n"
            f"    cascadia {b[max(0, at - 40):at + 60]!r}")


def compare(program, template, conversations, verbose):
    """Prints the differences of one template; returns how many renderings were equal, raised in both,
    and differed."""
    with open(template, encoding="utf-8", newline="") as file:
        source = file.read()
    equal = raised = different = 0
    for name, context in variants(conversations):
        expected, error = render_reference(source, context)
        text, complaint = render_cascadia(program, template, context)
        if complaint and complaint.startswith("CRASH"):
            different += 1
            print(f"{os.path.basename(template)} x {name}: {complaint}")
        elif expected is None and text is None:
            raised += 1
            if verbose:
                print(f"{os.path.basename(template)} x {name}: both raise\n    jinja2   {error}\n"
                      f"    cascadia {complaint}")
        elif expected == text:
            equal += 1
        else:
            different += 1
            what = (f"jinja2 raises {error}" if expected is None else
                    f"cascadia raises {complaint}" if text is None else
                    first_difference(expected, text))
            print(f"{os.path.basename(template)} x {name}: {what}")
    return equal, raised, different


def main():
    arguments = [a for a in sys.argv[1:] if a != "--verbose"]
    if not arguments:
        print(__doc__)
        return 2
    program = arguments[0]
    shared = os.path.join(ROOT, "..", "shared", "templates")
    folder = arguments[1] if len(arguments) > 1 else shared
    if not os.path.exists(folder):
        print(f"skipped: no templates at {folder}")
        return 77
    files = [folder] if os.path.isfile(folder) else sorted(
        os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".jinja"))
    given = [arguments[2]] if len(arguments) > 2 else []
    choices = given + [os.path.join(folder, "conversations.json"),
                       os.path.join(ROOT, "tests", "text", "conversations.json")]
    with open(next(c for c in choices if os.path.isfile(c)), encoding="utf-8") as file:
        conversations = json.load(file)
    begin, totals = time.time(), [0, 0, 0]
    for template in files:
        counts = compare(program, template, conversations, "--verbose" in sys.argv)
        totals = [a + b for a, b in zip(totals, counts)]
    print(f"{len(files)} templates against jinja2 {jinja2.__version__}: {totals[0]} renderings equal, "
          f"{totals[1]} raise in both, {totals[2]} differ ({time.time() - begin:.0f} s)")
    return 1 if totals[2] else 0


if __name__ == "__main__":
    sys.exit(main())
