#!/usr/bin/env python3
"""Decode and prefill against llama.cpp on the same GGUF and threads, interleaved: round by round one run of each
program, a ratio a round, the median of the ratios. Absolute figures of a shared machine mean little; ratios within
one run do.

usage: compare.py PROGRAM [--model M] [--llama FOLDER] [--rounds N] [--threads N] [--out FILE.json]"""
import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "peers"))
import llama_peer  # noqa: E402


def theirs(programs, model, threads, prefill, decode):
    out = subprocess.run([programs / "llama-bench", "-m", model, "-t", str(threads), "-p", str(prefill), "-n",
                          str(decode), "-r", "1", "-o", "json"], check=True, capture_output=True, text=True).stdout
    rows = json.loads(out)
    return {"prefill": next(r["avg_ts"] for r in rows if r["n_prompt"]),
            "decode": next(r["avg_ts"] for r in rows if r["n_gen"])}


def ours(program, model, threads, prefill, decode):
    out = subprocess.run([program, "bench", model, "--threads", str(threads), "--prefill", str(prefill), "--decode",
                          str(decode), "--rounds", "1"], check=True, capture_output=True, text=True).stdout
    row = json.loads(out.strip().splitlines()[-1])
    return {"prefill": row["prefill_tokens_per_second"], "decode": row["decode_tokens_per_second"], "isa": row["isa"]}


def cpu():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    name = next(line.split(": ")[1] for line in info.splitlines() if line.startswith("model name"))
    flags = set(next(line for line in info.splitlines() if line.startswith("flags")).split())
    return {"cpu": name, "flags": sorted(flags & {"avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8"}),
            "system": platform.platform()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--model", default=llama_peer.MODEL, type=pathlib.Path)
    parser.add_argument("--llama", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=pathlib.Path)
    a = parser.parse_args()
    programs = a.llama or llama_peer.build()
    result = {"machine": cpu(), "model": a.model.name, "rounds": []}
    ok = True
    for threads in a.threads:
        rounds = []
        for _ in range(a.rounds):
            pair = {"threads": threads, "ours": ours(a.program, a.model, threads, 512, 128),
                    "llama.cpp": theirs(programs, a.model, threads, 512, 128)}
            rounds.append(pair)
        result["rounds"] += rounds
        for what, bar in (("decode", 1.2), ("prefill", 1.3)):
            ratios = [r["ours"][what] / r["llama.cpp"][what] for r in rounds]
            us = statistics.median(r["ours"][what] for r in rounds)
            them = statistics.median(r["llama.cpp"][what] for r in rounds)
            ratio = statistics.median(ratios)
            ok &= ratio >= bar
            print(f"{threads} threads, {what}: {us:.0f} against {them:.0f} tokens/s, ratio {ratio:.2f} "
                  f"({min(ratios):.2f} to {max(ratios):.2f}; bar {bar}), rung {rounds[0]['ours']['isa']}")
    if a.out:
        a.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if ok else 1


sys.exit(main())
