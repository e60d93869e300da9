#!/usr/bin/env python3
"""A float model that a quantised GGUF may have been made of: what the accuracy table takes for the unquantised
SmolLM2, whose own float weights cannot be had here.

usage: float_model.py MODEL.gguf OUT.gguf [--kind f16|q4_0|q4_1] [--seed N]

Rounding to a grid threw away where in its cell each weight lay. Here it is drawn anew, evenly over the cell, from a
seed: the result rounds back to the file's very integers, and its weights fill the range between grid points as
trained ones do, so that no 4-bit format finds the grid of another one ready-made. In a q4_1 block the least and the
greatest value are exact; their cells are half as wide.

--kind q4_0 and q4_1 round those floats again, each block by its extreme values and nothing else: the plain rounding
that a quantiser has to beat. (So do the tools that such files come from.)"""
import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare"))
import gguf  # noqa: E402

PIECE_BLOCKS = 1 << 16


def nibbles(packed):
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def pack(q):
    return (q[:, :16] | q[:, 16:] << 4).astype(np.uint8)


def decode(kind, blocks, random):
    """blocks[n][bytes] as floats [n][32], each drawn from the cell that its integer stands for."""
    halves = blocks.view("<f2")
    d = halves[:, :1].astype(np.float32)
    if kind == "q8_0":
        q = blocks[:, 2:].view(np.int8).astype(np.float32)
        inner = random.uniform(-0.5, 0.5, q.shape)
        ends = np.abs(q) == 127
        return d * (q + np.where(ends, -np.sign(q) * np.abs(inner), inner).astype(np.float32))
    if kind == "q4_1":
        m = halves[:, 1:2].astype(np.float32)
        q = nibbles(blocks[:, 4:]).astype(np.float32)
        inner = random.uniform(-0.5, 0.5, q.shape)
        inner = np.where(q == q.min(1, keepdims=True), 0, np.where(q == q.max(1, keepdims=True), 0, inner))
        return d * (q + inner.astype(np.float32)) + m
    if kind == "q4_0":
        q = nibbles(blocks[:, 2:]).astype(np.float32) - 8
        inner = random.uniform(-0.5, 0.5, q.shape)
        return d * (q + np.where(q == -8, np.abs(inner), inner).astype(np.float32))
    raise SystemExit(f"weights of type {kind} are not read")


def encode(kind, x):
    """x[n][32] as blocks of the kind."""
    if kind == "f16":
        return x.astype("<f2")
    if kind == "f32":
        return x.astype("<f4")
    if kind == "q8_0":
        d = (np.abs(x).max(1, keepdims=True) / 127).astype("<f2")
        return np.hstack([d.view(np.uint8), steps(x, d, -127, 127).astype(np.int8).view(np.uint8)])
    if kind == "q4_0":
        extreme = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)
        d = (extreme / -8).astype("<f2")
        return np.hstack([d.view(np.uint8), pack(steps(x, d, -8, 7) + 8)])
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    d, m = ((high - low) / 15).astype("<f2"), low.astype("<f2")
    return np.hstack([d.view(np.uint8), m.view(np.uint8), pack(steps(x - m.astype(np.float32), d, 0, 15))])


def steps(x, d, low, high):
    d = d.astype(np.float32)
    return np.clip(np.rint(np.divide(x, d, out=np.zeros_like(x), where=d != 0)), low, high).astype(np.int32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--kind", choices=["f16", "q4_0", "q4_1"], default="f16")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    source = gguf.File(options.model)

    def kind_of(name, kind):  # as llama-quantize has it: the embedding beside 4-bit matrices keeps 8 bits
        if kind == "f32":
            return kind
        return "q8_0" if options.kind != "f16" and name in ("token_embd.weight", "output.weight") else options.kind

    def blocks(name, kind, shape):
        from_kind, _, at = source.tensors[name]
        _, values, size = gguf.TYPES[from_kind]
        n = gguf.tensor_bytes(from_kind, shape) // size
        data = np.memmap(options.model, np.uint8, "r", at, (n, size))
        random = np.random.default_rng([options.seed, *name.encode()])
        for first in range(0, n, PIECE_BLOCKS):
            piece = np.ascontiguousarray(data[first:first + PIECE_BLOCKS])
            yield (piece if from_kind == "f32" else encode(kind, decode(from_kind, piece, random))).tobytes()

    tensors = [(name, kind_of(name, kind), shape) for name, (kind, shape, _) in source.tensors.items()]
    gguf.write(options.output, source, tensors, blocks)


if __name__ == "__main__":
    main()
