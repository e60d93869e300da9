#!/usr/bin/env python3
"""The tables of docs/accuracy.md: what activations, weight formats and quantisers cost, against f32.

usage: accuracy.py PROGRAM [MODEL.gguf] [--bytes N] [--windows N] [--under COMMAND] [-o RESULTS.json]

Everything is measured against two references that compute in f32 throughout: the values that the GGUF holds, and a
float model that rounds to them (float_model.py says why). The text is English that every Debian machine has; what the
quantiser's importance is measured on is another kind of it. Results are kept as they come: a run that was ended goes
on where it was. --under puts a command before each measurement (nice, taskset, a lock)."""
import argparse
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "peers"))
import llama_peer  # noqa: E402

PROMPTS = [
    "What is the capital of France?", "Write a haiku about the sea.", "How do I boil an egg?",
    "Explain photosynthesis to a child.", "What is 17 times 6?", "Name three planets.",
    "Translate 'good morning' into Spanish.", "Who wrote Romeo and Juliet?", "Give me a recipe for pancakes.",
    "Why is the sky blue?", "Write a function in Python that reverses a string.", "What does a cat eat?",
    "Tell me a short story about a lost dog.", "What is the largest ocean?", "How many legs has a spider?",
    "Suggest a name for a bakery.", "What is the difference between a lake and a river?",
    "Summarise the plot of Cinderella in two sentences.", "How can I sleep better?", "What is gravity?",
    "List the days of the week.",
]
TOKENS = 64

GGUF, FLOAT, PLAIN = "gguf", "float", "plain"  # models
AS_F32 = ["--quantization", "f32"]
EXACT = ["--activation-group", "none"]


def int4(*more):
    return ["--quantization", "int4", *more]


def asym(*more):
    return ["--quantization", "int4-asym", *more]


def int8(*more):
    return ["--quantization", "int8", *more]


def group(n):
    return ["--group-size", str(n)]


IMPORTANCE = ["--importance", "IMPORTANCE"]  # the file's name takes its place

# (table, row, model, reference, options, is the text continued too)
CELLS = [
    *[("activations", name, GGUF, GGUF, options, True) for name, options in [
        ("int8, groups of 32: the weights' own", []),
        ("int8, groups of 64", ["--activation-group", "64"]),
        ("int8, groups of 128", ["--activation-group", "128"]),
        ("int8, a row", ["--activation-group", "row"]),
        ("f32", EXACT),
    ]],
    ("activations", "groups of 32, KV q8", GGUF, GGUF, ["--kv-type", "q8"], True),
    *[("weights", name, model, FLOAT, options, False) for name, model, options in [
        ("int8 g32, 8.5 bits", FLOAT, int8()),
        ("int8 g128, 8.125", FLOAT, int8(*group(128))),
        ("int4 g32, plain rounding (q4_0), 4.5", PLAIN, []),
        ("int4 g32, least squares, 4.5", FLOAT, int4()),
        ("int4 g32, with importance, 4.5", FLOAT, int4(*IMPORTANCE)),
        ("int4 g64, least squares, 4.25", FLOAT, int4(*group(64))),
        ("int4 g64, with importance, 4.25", FLOAT, int4(*group(64), *IMPORTANCE)),
        ("int4 g128, least squares, 4.125", FLOAT, int4(*group(128))),
        ("int4 g128, with importance, 4.125", FLOAT, int4(*group(128), *IMPORTANCE)),
        ("int4-asym g32, least squares, 5.0", FLOAT, asym()),
        ("int4-asym g32, with importance, 5.0", FLOAT, asym(*IMPORTANCE)),
        ("int4-asym g64, with importance, 4.5", FLOAT, asym(*group(64), *IMPORTANCE)),
        ("int4-asym g128, with importance, 4.25", FLOAT, asym(*group(128), *IMPORTANCE)),
    ]],
    *[("activations of wider weights", f"int4 g{g} with importance, activations {a}", FLOAT, FLOAT,
       int4(*group(g), *IMPORTANCE, "--activation-group", a), False)
      for g in (64, 128) for a in ("none", "32", "64", "128", "row")],
]


class Bench:
    def __init__(self, options):
        self.program, self.under, self.windows = options.program, options.under.split(), options.windows
        self.folder = options.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.models = {GGUF: options.model, FLOAT: self.folder / "float.gguf", PLAIN: self.folder / "plain.gguf"}
        self.text, self.other = self.folder / "text.txt", self.folder / "other.txt"
        self.text.write_text(llama_text(options.bytes))
        self.other.write_text(other_text(100_000))
        self.results_path = options.output
        self.results = json.loads(options.output.read_text()) if options.output.exists() else {}

    def run(self, *words):
        return subprocess.run([*self.under, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout

    def keep(self, key, value):
        self.results[key] = value
        self.results_path.write_text(json.dumps(self.results, indent=1) + "\n")

    def prepare(self):
        for name, kind in ((FLOAT, "f16"), (PLAIN, "q4_0")):
            if not self.models[name].exists():
                self.run(sys.executable, HERE / "float_model.py", self.models[GGUF], self.models[name], "--kind", kind)
        if not (self.folder / "importance.json").exists():
            self.run(self.program, "eval", "importance", self.models[FLOAT], self.other, "-o",
                     self.folder / "importance.json", "--windows", "16")

    def reference(self, name):
        path = self.folder / f"reference-{name}-{self.windows}"
        if not path.exists():
            part = path.with_suffix(".part")
            self.run(self.program, "eval", "perplexity", self.models[name], self.text, *AS_F32, "--save", part,
                     "--windows", self.windows)
            part.replace(path)
        return path

    def measure(self, model, reference, options):
        words = [self.folder / "importance.json" if w == "IMPORTANCE" else w for w in options]
        return json.loads(self.run(self.program, "eval", "divergence", self.models[model], self.reference(reference),
                                   *words, "--json"))

    def continuations(self, options):
        """The tokens that follow each prompt, greedily."""
        port = llama_peer.free_port()
        server = llama_peer.Server([*self.under, self.program, "run", self.models[GGUF], "--port", port, *options], port,
                                   subprocess.DEVNULL)
        try:
            return [[t["token"] for t in server.post("/v1/chat/completions", {
                "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": TOKENS,
                "logprobs": True})["choices"][0]["logprobs"]["content"]] for prompt in PROMPTS]
        finally:
            server.stop()

    def all(self):
        self.prepare()
        for table, row, model, reference, options, _ in CELLS:
            key = f"{table}: {row}"
            if key not in self.results:
                begun = time.monotonic()
                self.keep(key, self.measure(model, reference, options))
                print(f"{key}: KL {self.results[key]['divergence'][0]:.5f}, {time.monotonic() - begun:.0f} s",
                      file=sys.stderr)
        if "continued" not in self.results:
            self.keep("continued", self.continuations(AS_F32))
        for table, row, model, reference, options, is_continued in CELLS:
            key = f"{table}: {row}"
            if is_continued and "same_tokens" not in self.results[key]:
                counts = [agreed(a, b) for a, b in zip(self.results["continued"], self.continuations(options))]
                self.keep(key, {**self.results[key], "same_tokens": counts})


def agreed(wanted, have):
    """How many tokens are the same before the first that is not; all of them when both end alike."""
    n = next((i for i, (a, b) in enumerate(zip(wanted, have)) if a != b), min(len(wanted), len(have)))
    return n, wanted == have


def llama_text(n_bytes):
    """The English that tests/peers/llama.py compares perplexities on."""
    parts = [p.read_text(errors="replace") for p in sorted(pathlib.Path("/usr/share/common-licenses").iterdir())
             if not p.is_symlink()]
    return "".join(parts)[:n_bytes]


def other_text(n_bytes):
    import pydoc_data.topics
    return "".join(pydoc_data.topics.topics.values())[:n_bytes]


def print_tables(results):
    for table in dict.fromkeys(cell[0] for cell in CELLS):
        rows = [(cell[1], results.get(f"{table}: {cell[1]}"), cell[5]) for cell in CELLS if cell[0] == table]
        rows = [row for row in rows if row[1]]
        if not rows:
            continue
        continued = any("same_tokens" in r for _, r, _ in rows)
        of = rows[0][1]
        print(f"\n{table}: {of['counted']} positions, perplexity of the reference {of['reference_perplexity'][0]:.4f}\n")
        print("| | KL | median | 99 % | same first choice | perplexity | to the reference |"
              + (" equal answers | tokens before the first other |" if continued else ""))
        print("|---" * (9 if continued else 7) + "|")
        for name, r, _ in rows:
            kl, same, perplexity, ratio = r["divergence"], r["same_top"], r["perplexity"], r["ratio"]
            line = (f"| {name} | {kl[0]:.5f} ± {kl[1]:.5f} | {r['divergence_median']:.5f} | {r['divergence_99']:.3f} "
                    f"| {100 * same[0]:.1f} % | {perplexity[0]:.3f} ± {perplexity[1]:.3f} | {ratio[0]:.4f} ± {ratio[1]:.4f} |")
            if continued and "same_tokens" in r:
                counts = sorted(n for n, _ in r["same_tokens"])
                line += f" {sum(e for _, e in r['same_tokens'])} of {len(counts)} | {counts[len(counts) // 2]}, mean {sum(counts) / len(counts):.1f} |"
            print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=llama_peer.MODEL)
    parser.add_argument("--bytes", type=int, default=200_000)
    parser.add_argument("--windows", type=int, default=0, help="of 512 ids; 0: all")
    parser.add_argument("--under", default="")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/accuracy"))
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("build/accuracy.json"))
    parser.add_argument("--print", action="store_true", help="only the tables of what is there")
    options = parser.parse_args()
    if options.print:
        return print_tables(json.loads(options.output.read_text()))
    bench = Bench(options)
    bench.all()
    print_tables(bench.results)


if __name__ == "__main__":
    main()
