#!/usr/bin/env python3
"""Measures us and each peer that can be had here on the same models, in interleaved windows of one run, and writes
the raw data (JSON), a table (Markdown) and a picture (PNG).

A window is a figure measured once, by a program of its own, after warming up. In a round every contender has its
windows, one contender after the other, each round beginning with another one; ratios are made within a round. What is
needed is installed or made on first use into ~/.cache/cascadia: peers, their forms of a model, synthetic models. A
peer that cannot be had is reported as absent and the rest goes on.

Rounds add up: a call with the same --out continues it, so that a long comparison can be made in short calls."""
import argparse
import pathlib
import shlex
import shutil
import subprocess
import sys

import environment

environment.enter()

import contenders  # noqa: E402
import report  # noqa: E402
import synthetic  # noqa: E402
from models import MODELS, figure  # noqa: E402
from record import Record  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse():
    p = argparse.ArgumentParser(prog="bench/compare", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", choices=MODELS, default=["135m", "1b"], help="default: 135m 1b")
    p.add_argument("--peers", nargs="*", choices=contenders.PEERS, default=list(contenders.PEERS))
    p.add_argument("--forms", nargs="+", metavar="FORM", help="only these of the peers, to save time: Q4_0, paged, ...")
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--figures", nargs="+", type=figure, metavar="KIND@ROWS",
                   help="as prefill@512 or decode@4096; default: those of the model")
    p.add_argument("--rounds", type=int, default=5, help="to add to what is there (default 5); 0: report only")
    p.add_argument("--isa", choices=["avx2"], help="hold us and the peers that can be to it; default: the best")
    p.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "release" / "cascadia")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "compare.json",
                   help="raw data; table and picture get its name (default build/compare.json)")
    p.add_argument("--fresh", action="store_true", help="forget what --out has")
    p.add_argument("--under", type=shlex.split, default=[], metavar="WORDS",
                   help="put before each window's command, as 'taskset -c 0,1' or a lock that keeps others off")
    p.add_argument("--clean", action="store_true", help="remove synthetic models and peers' forms, then end")
    return p.parse_args()


def gather(options, record):
    """The contenders that are there; the others are noted as absent."""
    found = [contenders.Ours(options.program, options.isa)]
    for name in options.peers:
        kind = contenders.PEERS[name]
        try:
            found.append(kind(options.isa))
            record.data["absent"].pop(kind.name, None)
        except (contenders.Absent, OSError, subprocess.CalledProcessError) as why:
            record.data["absent"][kind.name] = str(why)
            say(f"{kind.name} is absent: {why}")
    record.data["versions"] |= {c.name: c.version() for c in found}
    return found + [contenders.Limit(found[0])]


def entries_of(model, found, forms, record):
    """(contender, name of the variant, variant) of all that can run the model."""
    path, entries = model.path(), []
    for contender in found:
        try:
            entries += [(contender, name, v) for name, v in contender.variants(model, path).items()
                        if not forms or name in (*forms, "as we run it", "share")]
        except (OSError, subprocess.CalledProcessError) as why:
            if contender is found[0]:
                sys.exit(f"compare: {getattr(why, 'stderr', None) or why}")
            record.data["absent"][f"{contender.name}, {model.name}"] = str(why)
            say(f"{contender.name} cannot run {model.name}: {why}")
    return entries


def run_round(options, model, threads, entries, record):
    """Windows are recorded as they come: a round that is broken off still gives the pairs that it has."""
    number = record.next_round(model.name, threads)
    figures = options.figures or [figure(k) for k in model.figures]
    turn = number % len(entries)
    for contender, name, variant in entries[turn:] + entries[:turn]:
        for what, rate in contenders.windows(contender, variant, figures, model, threads, options.under):
            record.add(model=model.name, threads=threads, figure=what.key, contender=contender.name, variant=name,
                       round=number, rate=round(rate, 4))
            say(f"{model.name} {what.title}, threads {threads}, round {number}: {contender.name} ({name}) {rate:.3g}")


def write(record):
    text = report.markdown(record)
    record.path.with_suffix(".md").write_text(text)
    report.picture(record, record.path.with_suffix(".png"))
    print(text)


def main():
    options = parse()
    if options.clean:
        for folder in (synthetic.CACHE, environment.CACHE / "peers" / "forms"):
            shutil.rmtree(folder, ignore_errors=True)
        return 0
    if options.fresh:
        options.out.unlink(missing_ok=True)
    if options.rounds == 0:
        if not options.out.exists():
            sys.exit(f"compare: {options.out} is not there; measure first, or name another --out")
        write(Record(options.out))
        return 0
    if not options.program.exists():
        sys.exit(f"compare: {options.program} is not there; run `make` first")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    try:
        record = Record(options.out, options.program, options.isa)
    except ValueError as why:
        sys.exit(f"compare: {why}")
    found = gather(options, record)
    for name in options.models:
        entries = entries_of(MODELS[name], found, options.forms, record)
        for _ in range(options.rounds):
            for threads in options.threads:
                run_round(options, MODELS[name], threads, entries, record)
    write(record)
    return 0


sys.exit(main())
