#!/usr/bin/env python3
"""Two builds of the same source against each other, K12: each kernel of the gcc build within 7 % of the clang build's, in
both directions. Builds are run in turn, a bar at a time; what is compared is not their speed but their figures, each a
share of a limit that was measured in the same process, and of those the median over the rounds. Bars of two threads are
left to K10: they judge the scheduler.

usage: compilers.py PROGRAM PROGRAM [--rounds N] [--only IDS] [--isa RUNG] [--seconds S] [--json]"""
import argparse
import json
import statistics
import subprocess
import sys

MUST, STRETCH = 0.93, 0.97
ONLY = "K1,K3,K3a,K4,K4a,K5,K6,K7,K9,K9a,K9b,K9c"


def measure(program, bar, options):
    """{case: figure}, what they are called counted in."""
    words = [program, "bench", "kernels", "--json", "--only", bar, "--seconds", str(options.seconds)]
    if options.isa:
        words += ["--isa", options.isa]
    document = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    figures = {}
    for found in document["bars"]:
        for case in found.get("cases", []):
            if "2 threads" not in found["what"]:
                figures[f"{found['id']} {found['what'].split(':')[0]}, {case['what']}"] = case["figure"]
    return figures, document["noise"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=ONLY)
    parser.add_argument("--isa")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures, lost = ({}, {}), 0.0
    for _ in range(options.rounds):
        for bar in options.only.split(","):
            for program, into in zip(options.programs, figures):
                found, noise = measure(program, bar, options)
                lost = max(lost, noise["lost_before"], noise["lost_after"])
                for case, figure in found.items():
                    into.setdefault(case, []).append(figure)
    if not figures[0] or figures[0].keys() != figures[1].keys():
        sys.exit("the two builds do not measure the same cases, or none")
    ratios = {case: statistics.median(figures[0][case]) / statistics.median(figures[1][case]) for case in figures[0]}
    worst = min(min(ratio, 1 / ratio) for ratio in ratios.values())
    verdict = "stretch" if worst >= STRETCH else "pass" if worst >= MUST else "miss"
    if options.json:
        print(json.dumps({"id": "K12", "must": MUST, "stretch": STRETCH, "figure": worst, "verdict": verdict,
                          "rounds": options.rounds, "lost": lost, "ratios": ratios}))
        return
    for case, ratio in sorted(ratios.items(), key=lambda item: min(item[1], 1 / item[1])):
        print(f"{ratio:6.3f}  {case}")
    print(f"\nK12  {options.programs[0]} / {options.programs[1]}, worst of both directions: {worst:.3f}  "
          f"must >= {MUST}, stretch >= {STRETCH}  {verdict}; at most {100 * lost:.1f} % of the time lost to others")


if __name__ == "__main__":
    main()
