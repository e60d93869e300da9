#!/usr/bin/env python3
"""Chat templates: `cascadia template` against Python's jinja2, byte for byte, also where it raises.

usage: templates.py CASCADIA [TEMPLATES [CONVERSATIONS.json]] [--quick] [--verbose]

TEMPLATES is a folder of *.jinja files or one file. Each is rendered with each conversation of
CONVERSATIONS.json (default: the one in the folder) and, unless --quick, with variants of them that
the script makes: without the generation prompt, content as parts, arguments as strings, thinking on,
no tools. Without TEMPLATES: the cases of tests/text/template_cases.json, one process each, and the
templates/ of the shared folder beside the project, when it is there.
Needs the package jinja2 alone. The environment is the one that Hugging Face's transformers sets up.
Ends 0 when all are equal, 1 when not, 77 when jinja2 is not there.
"""
import copy
import datetime
import json
import os
import subprocess
import sys
import tempfile

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


def variants(conversations, quick):
    """The conversations, and each in the shapes in which clients send them."""
    for name, context in conversations.items():
        yield name, context
        if quick:
            continue
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


def compare(program, template, contexts, verbose):
    """Prints the differences of one template file over (name, context) pairs; returns how many
    renderings were equal, raised in both, and differed."""
    with open(template, encoding="utf-8", newline="") as file:
        source = file.read()
    label = os.path.basename(template)
    equal = raised = different = 0
    for name, context in contexts:
        expected, error = render_reference(source, context)
        text, complaint = render_cascadia(program, template, context)
        crashed = complaint is not None and complaint.startswith("CRASH")
        if expected is None and text is None and not crashed:
            raised += 1
            if verbose:
                print(f"{label} x {name}: both raise\n    jinja2   {error}\n"
                      f"    cascadia {complaint}")
        elif expected == text and not crashed:
            equal += 1
        else:
            different += 1
            what = (complaint if crashed else f"jinja2 raises {error}" if expected is None else
                    f"cascadia raises {complaint}" if text is None else
                    first_difference(expected, text))
            print(f"{label} x {name}: {what}")
    return equal, raised, different


def compare_folder(program, folder, conversations, options):
    """The templates of a folder, or one file."""
    files = [folder] if os.path.isfile(folder) else sorted(
        os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".jinja"))
    conversations = conversations or os.path.join(folder, "conversations.json")
    with open(conversations, encoding="utf-8") as file:
        contexts = list(variants(json.load(file), "--quick" in options))
    totals = [0, 0, 0]
    for template in files:
        counts = compare(program, template, contexts, "--verbose" in options)
        totals = [a + b for a, b in zip(totals, counts)]
    print(f"{len(files)} templates against jinja2 {jinja2.__version__}: {totals[0]} renderings "
          f"equal, {totals[1]} raise in both, {totals[2]} differ")
    return totals[2]


def compare_cases(program, options):
    """The cases of the unit test, through the program and against the jinja2 at hand."""
    with open(os.path.join(ROOT, "tests", "text", "template_cases.json"), encoding="utf-8") as file:
        document = json.load(file)
    totals = [0, 0, 0]
    with tempfile.TemporaryDirectory() as folder:
        for case in document["cases"]:
            path = os.path.join(folder, case["name"].replace(" ", "_"))
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(case["template"])
            counts = compare(program, path, [("its context", document["context"])],
                             "--verbose" in options)
            totals = [a + b for a, b in zip(totals, counts)]
    print(f"{len(document['cases'])} cases: {totals[0]} renderings equal, {totals[1]} raise in both, "
          f"{totals[2]} differ")
    return totals[2]


def main():
    words = [a for a in sys.argv[1:] if not a.startswith("--")]
    options = [a for a in sys.argv[1:] if a.startswith("--")]
    if not words:
        print(__doc__)
        return 2
    if len(words) > 1:
        return 1 if compare_folder(words[0], words[1], words[2] if len(words) > 2 else None,
                                   options) else 0
    n_different = compare_cases(words[0], options)
    shared = os.path.join(ROOT, "..", "shared", "templates")
    if os.path.isdir(shared):
        n_different += compare_folder(words[0], shared, None, options)
    else:
        print(f"skipped: no templates at {shared}")
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())
