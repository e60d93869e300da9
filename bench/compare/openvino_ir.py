#!/usr/bin/env python3
"""Turns a llama GGUF of q4_0 matrices into OpenVINO IR with the same weights: 4-bit signed values in groups of 32
with an f16 scale each, 4.5 bits a weight, symmetric: the form OpenVINO's own compression gives (group size apart).

usage: openvino_ir.py MODEL.gguf FOLDER

The graph is the stateful one that OpenVINO's exporters make (RMS norm, rotary embedding, scaled dot product attention
over a cache in variables, gated MLP), which the CPU plugin fuses and GenAI turns into paged attention. Weights pass
through a scratch file in FOLDER, mapped, so that memory holds a few tensors at a time."""
import argparse
import pathlib

import numpy as np
import openvino as ov
from openvino import opset13 as op

import gguf

GROUP = 32
PIECE_ROWS = 4096


def const(value, dtype):
    return op.constant(np.array(value, dtype))


def i64(*values):
    return const(values, np.int64)


class Weights:
    """The tensors of the file as constants of the graph; matrices are converted into the scratch file."""

    def __init__(self, path, scratch):
        self.file = gguf.File(path)
        self.scratch = scratch
        self.out = open(scratch, "wb")
        self.shared = []  # the arrays that constants point into
        self.places = {}  # name: (offset of values, of scales, rows, columns)
        for name, (kind, shape, _) in self.file.tensors.items():
            if kind == "q4_0":
                self.places[name] = self._convert(name, shape)
            elif kind != "f32":
                raise ValueError(f"{name} is {kind}; only q4_0 and f32 are converted")
        self.out.close()

    def _blocks(self, name):
        """Rows x blocks of a row, mapped."""
        _, (rows, columns), at = self.file.tensors[name]
        return np.memmap(self.file.path, np.dtype([("d", "<f2"), ("q", "u1", 16)]), "r", at, (rows, columns // 32))

    def _row_order(self, name, rows):
        """GGUF has the rows of q and k so that a rotated pair lies together; the graph rotates half a head apart."""
        if not name.endswith(("attn_q.weight", "attn_k.weight")):
            return np.arange(rows)
        d = self.file.metadata["llama.rope.dimension_count"]
        return np.arange(rows).reshape(rows // d, d // 2, 2).swapaxes(1, 2).reshape(-1)

    def _convert(self, name, shape):
        rows, columns = shape
        blocks, order, at = self._blocks(name), self._row_order(name, rows), self.out.tell()
        for first in range(0, rows, PIECE_ROWS):
            q = blocks["q"][order[first:first + PIECE_ROWS]]
            values = np.concatenate([q & 15, q >> 4], -1) ^ 8  # two's complement, in order
            self.out.write((values[..., 0::2] | values[..., 1::2] << 4).tobytes())
        scales_at = self.out.tell()
        self.out.write(blocks["d"][order].tobytes())
        return at, scales_at, rows, columns

    def vector(self, name):
        _, shape, at = self.file.tensors[name]
        return op.constant(np.fromfile(self.file.path, "<f4", shape[0], offset=at).reshape(1, 1, -1))

    def matrix(self, name):
        at, scales_at, rows, columns = self.places[name]
        groups = columns // GROUP
        packed = np.memmap(self.scratch, np.uint8, "c", at, (rows, groups, GROUP // 2))
        scales = np.memmap(self.scratch, np.float16, "c", scales_at, (rows, groups, 1))
        self.shared += [packed, scales]
        values = op.constant(ov.Tensor(packed, [rows, groups, GROUP], ov.Type.i4), shared_memory=True)
        scaled = op.multiply(op.convert(values, "f16"), op.constant(scales, shared_memory=True))
        return op.convert(op.reshape(scaled, i64(rows, columns), False), "f32")


class Decoder:
    """Builds the graph, layer by layer."""

    def __init__(self, weights):
        m = weights.file.metadata
        self.weights, self.layers = weights, m["llama.block_count"]
        self.heads, self.kv_heads = m["llama.attention.head_count"], m["llama.attention.head_count_kv"]
        self.head_dim, self.epsilon = m["llama.rope.dimension_count"], m["llama.attention.layer_norm_rms_epsilon"]
        self.base = m["llama.rope.freq_base"]
        self.ids = self._parameter("input_ids", "i64", [-1, -1])
        self.mask = self._parameter("attention_mask", "i64", [-1, -1])
        self.positions = self._parameter("position_ids", "i64", [-1, -1])
        self.beams = self._parameter("beam_idx", "i32", [-1])
        self.sinks = []

    @staticmethod
    def _parameter(name, kind, shape):
        p = op.parameter(ov.PartialShape(shape), getattr(ov.Type, kind), name)
        p.set_friendly_name(name)  # GenAI finds inputs by it
        p.output(0).set_names({name})
        return p

    def _linear(self, x, name):
        return op.matmul(x, self.weights.matrix(name), False, True)

    def _norm(self, x, name):
        mean = op.reduce_mean(op.power(x, const([[[2]]], np.float32)), const([-1], np.int32), True)
        root = op.sqrt(op.add(mean, const([[[self.epsilon]]], np.float32)))
        return op.multiply(op.multiply(op.divide(const([[[1]]], np.float32), root), x), self.weights.vector(name))

    def _rotation(self):
        half = self.head_dim // 2
        frequencies = (self.base ** (-np.arange(half) / half)).astype(np.float32).reshape(1, half, 1)
        at = op.convert(op.unsqueeze(self.positions, const(1, np.int64)), "f32")
        wide = op.broadcast(op.constant(frequencies), op.concat([self.batch, i64(1), i64(1)], 0),
                            broadcast_spec="BIDIRECTIONAL")
        angles = op.transpose(op.matmul(wide, at, False, False), const([0, 2, 1], np.int32))
        both = op.concat([angles, angles], -1)
        return [op.unsqueeze(f(both), const(1, np.int64)) for f in (op.cos, op.sin)]

    def _rotate(self, x, cos, sin):
        half = self.head_dim // 2
        low = op.slice(x, i64(0), i64(half), i64(1), i64(3))
        high = op.slice(x, i64(half), i64(2**63 - 1), i64(1), i64(3))
        turned = op.concat([op.multiply(high, const([[[[-1]]]], np.float32)), low], -1)
        return op.add(op.multiply(x, cos), op.multiply(turned, sin))

    def _heads(self, x, n):
        return op.transpose(op.reshape(x, i64(0, 0, n, self.head_dim), True), const([0, 2, 1, 3], np.int32))

    def _cached(self, x, name):
        """The cache's rows and x behind them; the cache grows by x."""
        shape = [-1, self.kv_heads, -1, self.head_dim]
        empty = op.broadcast(const(0, np.float32), op.concat(
            [self.batch, i64(self.kv_heads), i64(0), i64(self.head_dim)], 0))
        past = op.read_value(empty, name, ov.Type.f32, ov.PartialShape(shape))
        x = op.concat([op.gather(past, self.beams, const(0, np.int64)), x], 2)
        self.sinks.append(op.assign(x, name))
        return x

    def _shared(self, x):
        """Each KV head once for every query head of its group."""
        n = self.heads // self.kv_heads
        if n == 1:
            return x
        wide = op.broadcast(op.unsqueeze(x, const(2, np.int64)), op.concat(
            [self.batch, i64(1), i64(n), i64(1), i64(1)], 0), broadcast_spec="BIDIRECTIONAL")
        return op.reshape(wide, i64(0, self.heads, -1, self.head_dim), True)

    def _causal(self):
        """[batch, 1, rows, positions]: may a row see a position?"""
        n = op.gather(op.shape_of(self.mask, "i64"), const(1, np.int64), const(0, np.int64))
        columns = op.unsqueeze(op.range(const(0, np.int64), n, const(1, np.int64), "i64"), i64(0, 1, 2))
        before = op.less_equal(columns, op.unsqueeze(self.positions, i64(1, 3)))
        return op.logical_and(before, op.convert(op.unsqueeze(self.mask, i64(1, 2)), "boolean"))

    def _layer(self, x, i, cos, sin, causal):
        at = f"blk.{i}."
        h = self._norm(x, at + "attn_norm.weight")
        q = self._rotate(self._heads(self._linear(h, at + "attn_q.weight"), self.heads), cos, sin)
        k = self._rotate(self._heads(self._linear(h, at + "attn_k.weight"), self.kv_heads), cos, sin)
        v = self._heads(self._linear(h, at + "attn_v.weight"), self.kv_heads)
        k = self._shared(self._cached(k, f"past_key_values.{i}.keypresent.{i}.key"))
        v = self._shared(self._cached(v, f"past_key_values.{i}.valuepresent.{i}.value"))
        seen = op.transpose(op.scaled_dot_product_attention(q, k, v, causal), const([0, 2, 1, 3], np.int32))
        joined = op.reshape(seen, i64(0, 0, self.heads * self.head_dim), True)
        x = op.add(x, self._linear(joined, at + "attn_output.weight"))
        h = self._norm(x, at + "ffn_norm.weight")
        gated = op.multiply(op.swish(self._linear(h, at + "ffn_gate.weight")), self._linear(h, at + "ffn_up.weight"))
        return op.add(x, self._linear(gated, at + "ffn_down.weight"))

    def build(self):
        self.batch = op.gather(op.shape_of(self.ids, "i64"), i64(0), const(0, np.int64))
        embedding = self.weights.matrix("token_embd.weight")
        x = op.gather(embedding, op.convert(self.ids, "i32"), const(0, np.int32))
        cos, sin = self._rotation()
        causal = self._causal()
        for i in range(self.layers):
            x = self._layer(x, i, cos, sin, causal)
        x = self._norm(x, "output_norm.weight")
        tied = "output.weight" not in self.weights.file.tensors
        logits = op.matmul(x, embedding if tied else self.weights.matrix("output.weight"), False, True)
        logits.output(0).set_names({"logits"})
        parameters = [self.ids, self.mask, self.positions, self.beams]
        return ov.Model([op.result(logits)], self.sinks, parameters, "llama")


def convert(source, folder):
    """Writes openvino_model.xml and .bin into `folder`; they appear when they are whole."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / "scratch.bin"
    try:
        weights = Weights(source, scratch)
        ov.serialize(Decoder(weights).build(), folder / "part.xml", folder / "part.bin")
        del weights
    finally:
        scratch.unlink(missing_ok=True)
    (folder / "part.bin").replace(folder / "openvino_model.bin")
    (folder / "part.xml").replace(folder / "openvino_model.xml")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    convert(options.model, options.folder)


if __name__ == "__main__":
    main()
