#!/usr/bin/env python3
"""Against llama.cpp on the same SmolLM2 GGUF: 64 greedy tokens on five prompts (equal, or the first difference
explained by a near tie), and perplexity of 200 KB of English text within 1 %.

usage: llama.py PROGRAM [MODEL.gguf [FOLDER-WITH-LLAMA-PROGRAMS]]"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import llama_peer

PROMPTS = ["The capital of France is", "Once upon a time, in a small village,", "def fibonacci(n):\n",
           "Water boils at a temperature of", "The three primary colors are"]
N_TOKENS = 64
NEAR_TIE = 0.5  # logits of spread 3.4; int8 activations in groups of 32, ours and theirs, each move a difference of two by 0.17 rms
THREADS = "2"


def ids_of(program, model, text):
    with tempfile.NamedTemporaryFile("w") as f:
        f.write(text)
        f.flush()
        out = subprocess.run([program, "tokenize", model, "--file", f.name, "--no-special"], check=True,
                             capture_output=True, text=True)
    return json.loads(out.stdout)


def margin(program, model, ids, other):
    """How far our logits put `other` below our best after `ids`."""
    with tempfile.TemporaryDirectory() as d:
        path = pathlib.Path(d)
        (path / "ids.json").write_text(json.dumps(ids))
        subprocess.run([program, "eval", "logits", model, "--ids", path / "ids.json", "-o", path / "out.npy"],
                       check=True, stderr=subprocess.DEVNULL)
        raw = (path / "out.npy").read_bytes()
    header = 10 + struct.unpack("<H", raw[8:10])[0]
    logits = struct.unpack(f"<{(len(raw) - header) // 4}f", raw[header:])
    return max(logits) - logits[other]


def compare_prompt(program, model, ours, theirs, prompt):
    ids = ids_of(program, model, prompt)
    wish = {"prompt": ids, "temperature": 0, "stream": False, "seed": 1}
    our_text = ours.post("/v1/completions", {**wish, "max_tokens": N_TOKENS, "ignore_eos": True})["choices"][0]["text"]
    their = theirs.post("/completion", {**wish, "n_predict": N_TOKENS, "ignore_eos": True, "return_tokens": True})
    their_text = their["content"]
    if our_text == their_text:
        print(f"equal: {prompt!r} -> {our_text[:50]!r}...")
        return True
    our_ids, their_ids = ids_of(program, model, our_text), their["tokens"]
    at = next((i for i, (a, b) in enumerate(zip(our_ids, their_ids)) if a != b), None)
    if at is None:
        print(f"DIFFERENT lengths: {prompt!r}")
        return False
    gap = margin(program, model, ids + their_ids[:at], their_ids[at])
    verdict = "near tie" if gap <= NEAR_TIE else "DIFFERENT"
    print(f"{verdict}: {prompt!r} parts at token {at}: ours {our_ids[at]}, theirs {their_ids[at]}, margin {gap:.3f} logits")
    return gap <= NEAR_TIE


def compare_greedy(program, model, programs, log):
    port = llama_peer.free_port()
    ours = llama_peer.Server([program, "run", model, "--port", port, "--threads", THREADS], port, log)
    try:
        port = llama_peer.free_port()
        theirs = llama_peer.Server([programs / "llama-server", "-m", model, "--port", port, "-t", THREADS, "-c", "4096",
                                    "-np", "1"], port, log)
        try:
            return all([compare_prompt(program, model, ours, theirs, p) for p in PROMPTS])
        finally:
            theirs.stop()
    finally:
        ours.stop()


def english_text():
    """200 KB that every Debian machine has."""
    parts = [p.read_text(errors="replace") for p in sorted(pathlib.Path("/usr/share/common-licenses").iterdir())
             if not p.is_symlink()]
    return "".join(parts)[:200_000]


def compare_perplexity(program, model, programs):
    with tempfile.NamedTemporaryFile("w") as f:
        f.write(english_text())
        f.flush()
        ours = subprocess.run([program, "eval", "perplexity", model, f.name, "--window", "512", "--threads", THREADS],
                              check=True, capture_output=True, text=True).stdout
        theirs = subprocess.run([programs / "llama-perplexity", "-m", model, "-f", f.name, "-c", "512", "-t", THREADS],
                                check=True, capture_output=True, text=True)
    our_figure = float(ours.strip().split()[-1])
    their_figure = llama_peer.final_perplexity(theirs.stdout + theirs.stderr)
    gap = our_figure / their_figure - 1
    print(f"perplexity of 200 KB: ours {our_figure:.4f}, llama.cpp {their_figure:.4f} ({gap:+.2%})")
    return abs(gap) < 0.01


def main(program, model=llama_peer.MODEL, programs=None):
    model = pathlib.Path(model)
    if not model.exists():
        print(f"skipped: {model} is not there (make demo fetches it)")
        return 0
    programs = pathlib.Path(programs) if programs else llama_peer.build()
    with open("/dev/null", "w") as log:
        greedy = compare_greedy(program, model, programs, log)
    perplexity = compare_perplexity(program, model, programs)
    return 0 if greedy and perplexity else 1


sys.exit(main(*sys.argv[1:]))
