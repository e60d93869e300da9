#!/usr/bin/env python3
"""bench/compare without its peers: the files it writes are read by the program, windows of ours and their limit are
understood, ratios are paired by round, a record continues only what it may. Standard library only.

usage: test_compare.py CASCADIA"""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench" / "compare"))
import bars  # noqa: E402
import contenders  # noqa: E402
import gguf  # noqa: E402
import record  # noqa: E402
import report  # noqa: E402
import synthetic  # noqa: E402
from models import Model, figure  # noqa: E402

MINI = Model("mini", "mini", "mini", ("prefill@32", "decode@0", "decode@64"), 8)


def blocks(name, kind, shape):
    """A tensor in two pieces, as a stream: random nibbles with scales of one size."""
    if kind == "f32":
        yield struct.pack(f"<{shape[0]}f", *[1.0] * shape[0])
        return
    source, n = random.Random(name), shape[0] * shape[1] // 32
    scale = struct.pack("<e", 1 / (5 * shape[1] ** 0.5))
    for part in (n // 2, n - n // 2):
        yield b"".join(scale + source.randbytes(16) for _ in range(part))


def write_mini(path):
    shape = synthetic.SHAPES["mini"]
    gguf.write(path, shape.metadata("mini", "q4_0"), list(shape.tensors("q4_0")), blocks)
    return shape


def test_gguf(folder):
    path = folder / "mini.gguf"
    shape = write_mini(path)
    read = gguf.File(path)
    epsilon = "llama.attention.layer_norm_rms_epsilon"  # an f32 in the file
    assert struct.pack("<f", read.metadata[epsilon]) == struct.pack("<f", shape.epsilon)
    assert read.metadata == shape.metadata("mini", "q4_0") | {epsilon: read.metadata[epsilon]}, read.metadata
    assert [(n, k, s) for n, (k, s, _) in read.tensors.items()] == list(shape.tensors("q4_0"))
    name = "blk.1.ffn_down.weight"
    kind, dims, at = read.tensors[name]
    data = b"".join(blocks(name, kind, dims))
    assert len(data) == gguf.tensor_bytes(kind, dims)
    assert path.read_bytes()[at:at + len(data)] == data
    try:
        gguf.write(folder / "bad.gguf", {}, [("x", "q4_0", (1, 32))], lambda *_: [b"short"])
        raise AssertionError("a tensor of the wrong size was written")
    except ValueError:
        assert not (folder / "bad.gguf").exists()


def test_windows(program, folder):
    """What the program prints is what the comparison reads."""
    path = folder / "mini.gguf"
    ours = contenders.Ours(program, "scalar")
    figures = [figure(key) for key in MINI.figures]
    try:
        variants = ours.variants(MINI, path)
    except subprocess.CalledProcessError as failed:
        assert "this build has sanitizers" in failed.stderr, failed.stderr
        print("windows of ours are skipped: this build refuses to measure")
        return
    rates = dict(contenders.windows(ours, next(iter(variants.values())), figures, MINI, 1))
    assert list(rates) == figures and all(rate > 0 for rate in rates.values()), rates


def test_limit():
    figures = [figure(key) for key in MINI.figures]
    shares = json.dumps({"model": {"rows": [{"what": "decode", "depth": 64, "share": 0.5},
                                            {"what": "prefill", "rows": 32, "share": 0.75},
                                            {"what": "decode", "depth": 0, "share": 0.25}]}})
    assert contenders.Limit.rates(shares, figures) == [0.75, 0.25, 0.5]


def test_pairs():
    ours, theirs = {1: 30.0, 2: 20.0, 3: 90.0}, {1: 10.0, 2: 10.0, 4: 1.0}
    assert record.paired(ours, theirs) == (2.5, 2.0, 3.0, 2)
    assert record.paired(ours, {9: 1.0}) is None
    assert record.best_variant({"a": {1: 5.0, 2: 1.0, 3: 1.0}, "b": {1: 2.0}})[0] == "b"
    assert bars.find("best", ["avx512_vnni"], "llama.cpp", "135m", "decode@512", 2) == (1.8, 2.4)
    assert bars.find("avx2", ["avx512_vnni"], "llama.cpp", "135m", "decode@0", 2) == (1.4, 1.75)
    assert bars.find("best", ["avx512_vnni"], "OpenVINO", "8b", "prefill@512", 1) == (1.1, 1.5)
    assert bars.find("best", ["avx512_vnni"], "llama.cpp", "3b", "decode@512", 1) is None


def test_record(folder):
    """Rounds add up over calls; another build's do not mix."""
    path, program = folder / "r.json", folder / "program"
    program.write_text("one")
    for number in (1, 2):
        r = record.Record(path, program)
        assert r.next_round("135m", 2) == number
        for contender, variant, rate in ((record.OURS, "as we run it", 300.0 * number), ("llama.cpp", "as is", 50.0),
                                         ("llama.cpp", "Q4_0", 100.0), (record.LIMIT, "share", 0.75)):
            r.add(model="135m", threads=2, figure="decode@512", contender=contender, variant=variant, round=number,
                  rate=rate)
    r.data["absent"]["OpenVINO"] = "no such package"
    r.save()
    assert len(json.loads(path.read_text())["windows"]) == 8
    text = report.markdown(record.Record(path))
    assert "| 450 | 0.75 | llama.cpp, Q4_0 | 100 | **4.50** | 3.00 to 6.00, 2 |" in text, text
    assert "OpenVINO is absent: no such package" in text
    program.write_text("two")
    try:
        record.Record(path, program)
        raise AssertionError("rounds of two builds were mixed")
    except ValueError as why:
        assert "another build" in str(why)


def main(program):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = name  # of shards that the program writes
        test_gguf(folder)
        test_windows(program, folder)
        test_limit()
        test_pairs()
        test_record(folder)


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(sys.argv[1])
