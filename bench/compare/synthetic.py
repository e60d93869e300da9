#!/usr/bin/env python3
"""Models of random 4-bit weights in the shape of well-known ones, as GGUF: what a model weighs and computes decides
its speed, what it says does not, so a speed can be compared on sizes whose weights cannot be had here.

usage: synthetic.py SHAPE [--kind q4_0|q4_1] [-o FILE.gguf]

All matrices, embedding and head among them, are of the one kind: 4.5 or 5 bits a weight. Weights are close to normal
with variance 1 / inputs, and those that write into the residual stream smaller, so that activations keep their
size through all layers and softmax sees scores of order one. A file is written in pieces of some MiB."""
import argparse
import dataclasses
import math
import os
import pathlib
import sys
import zlib

import gguf

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cascadia" / "synthetic"
PIECE_BLOCKS = 1 << 18  # of 32 weights


@dataclasses.dataclass(frozen=True)
class Shape:
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    context: int = 131072
    rope_base: float = 500000.0
    epsilon: float = 1e-5

    def tensors(self, kind):
        """(name, kind, shape) in the order of the file; shapes are rows x columns."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "token_embd.weight", kind, (self.vocabulary, self.width)
        for i in range(self.layers):
            at = f"blk.{i}."
            yield at + "attn_norm.weight", "f32", (self.width,)
            yield at + "attn_q.weight", kind, (q, self.width)
            yield at + "attn_k.weight", kind, (kv, self.width)
            yield at + "attn_v.weight", kind, (kv, self.width)
            yield at + "attn_output.weight", kind, (self.width, q)
            yield at + "ffn_norm.weight", "f32", (self.width,)
            yield at + "ffn_gate.weight", kind, (self.inner, self.width)
            yield at + "ffn_up.weight", kind, (self.inner, self.width)
            yield at + "ffn_down.weight", kind, (self.width, self.inner)
        yield "output_norm.weight", "f32", (self.width,)
        if not self.tied:
            yield "output.weight", kind, (self.vocabulary, self.width)

    def metadata(self, name, kind):
        return {
            "general.architecture": "llama",
            "general.name": f"synthetic {name}",
            "general.file_type": {"q4_0": 2, "q4_1": 3}[kind],
            "general.quantization_version": 2,
            "llama.block_count": self.layers,
            "llama.context_length": self.context,
            "llama.embedding_length": self.width,
            "llama.feed_forward_length": self.inner,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.key_length": self.head_dim,
            "llama.attention.value_length": self.head_dim,
            "llama.attention.layer_norm_rms_epsilon": self.epsilon,
            "llama.rope.dimension_count": self.head_dim,
            "llama.rope.freq_base": self.rope_base,
            "llama.vocab_size": self.vocabulary,
            "tokenizer.ggml.model": "none",
        }


# Llama 3.2 1B and 3B, Llama 3.1 8B; `mini` is for tests of the tools themselves.
SHAPES = {
    "mini": Shape(256, 512, 2, 4, 2, 64, 1024, True),
    "1b": Shape(2048, 8192, 16, 32, 8, 64, 128256, True),
    "3b": Shape(3072, 8192, 28, 24, 8, 128, 128256, True),
    "8b": Shape(4096, 14336, 32, 32, 8, 128, 128256, False),
}


def _nibble_pairs():
    """65,536 bytes of two nibbles each, their values 0 to 15 spread as a normal variable around 8 with deviation 3
    that is rounded and cut: a random index gives two random weights."""
    import numpy as np
    edges = [math.erf((v - 8 + 0.5) / (3 * math.sqrt(2))) for v in range(15)]
    cumulative = [0.5 * (1 + e) for e in edges]
    nibbles = np.searchsorted(np.array(cumulative), (np.arange(256) + 0.5) / 256).astype(np.uint8)
    high, low = np.divmod(np.arange(65536), 256)
    return nibbles[low] | (nibbles[high] << 4)


class Weights:
    """Yields the bytes of each tensor; the same for the same name, kind and shape on every machine."""

    DEVIATION = 3.0  # of a nibble

    def __init__(self, layers, progress=None):
        import numpy as np
        self.np, self.pairs, self.layers, self.progress = np, _nibble_pairs(), layers, progress

    def __call__(self, name, kind, shape):
        if self.progress:
            self.progress(name)
        if kind == "f32":
            yield self.np.ones(shape, "<f4").tobytes()
            return
        random = self.np.random.Generator(self.np.random.SFC64(zlib.crc32(name.encode())))
        deviation = 1 / math.sqrt(shape[-1])
        if name.startswith("token_embd"):
            deviation = 1.0
        elif name.endswith(("attn_output.weight", "ffn_down.weight")):
            deviation /= math.sqrt(2 * self.layers)
        n_blocks = shape[0] * shape[1] // 32
        for at in range(0, n_blocks, PIECE_BLOCKS):
            yield self._blocks(random, kind, deviation, min(PIECE_BLOCKS, n_blocks - at)).tobytes()

    def _blocks(self, random, kind, deviation, n):
        np = self.np
        fields = [("d", "<f2")] + ([("m", "<f2")] if kind == "q4_1" else []) + [("q", "u1", 16)]
        blocks = np.empty(n, fields)
        blocks["d"] = deviation / self.DEVIATION * random.uniform(0.7, 1.3, n)
        if kind == "q4_1":
            blocks["m"] = -8 * blocks["d"].astype(np.float32)
        blocks["q"] = self.pairs[random.integers(0, 65536, (n, 16), np.uint16)]
        return blocks


def make(name, kind="q4_0", path=None, log=print):
    """The path of the synthetic model; writes it if it is not there."""
    shape = SHAPES[name]
    path = pathlib.Path(path or CACHE / f"synthetic-{name}.{kind}.gguf")
    if path.exists():
        return path
    tensors = list(shape.tensors(kind))
    total = sum(gguf.tensor_bytes(k, s) for _, k, s in tensors)
    log(f"writing {path.name}: {total / 1e9:.2f} GB, once")
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize < 2 * total:
        raise OSError(f"not enough room in {path.parent} for {total / 1e9:.1f} GB twice (its shard is as large)")
    gguf.write(path, shape.metadata(name, kind), tensors, Weights(shape.layers))
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--kind", choices=["q4_0", "q4_1"], default="q4_0")
    parser.add_argument("-o", "--out", type=pathlib.Path, help=f"default: in {CACHE}")
    options = parser.parse_args()
    print(make(options.shape, options.kind, options.out, log=lambda s: print(s, file=sys.stderr)))


if __name__ == "__main__":
    main()
