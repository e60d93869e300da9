#!/usr/bin/env python3
"""Random little models of the dense families, computed in NumPy float64 and held against `cascadia eval logits`.

usage: dense.py CASCADIA [FIRST_SEED [COUNT]]     (NumPy is installed into a cache outside the tree)

Each seed is a model: a family, odd dimensions (widths that no panel, group or vector divides), biases, tied or
not, windows, a rotation scaling, config.json in the old or the new form; weights in f32, f16 or bf16. The
formulas are written from the families' definitions, not from the C code. With --quantization f32 every logit
must lie within 1e-3; with int4 the scalar rung on one thread and a stage a layer on three give the same bits."""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cascadia-peers" / "dense"


def install():
    """Puts NumPy into the cache and runs this script again in its venv."""
    python = CACHE / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", CACHE / "venv"], check=True)
    if subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", "numpy==2.4.6"], check=True)
    if pathlib.Path(sys.prefix) != CACHE / "venv":
        os.execv(python, [str(python), *sys.argv])


if len(sys.argv) < 2:
    sys.exit(__doc__)
install()
import numpy as np  # noqa: E402


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


STORE = {
    "F32": lambda x: np.asarray(x, np.float32),
    "F16": lambda x: np.asarray(x, np.float16),
    "BF16": bf16,
}
LOAD = {
    "F32": lambda x: x.astype(np.float64),
    "F16": lambda x: x.astype(np.float64),
    "BF16": lambda x: (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64),
}


def write_safetensors(path, tensors, dtype):
    header, blobs, at = {}, [], 0
    for name, x in tensors.items():
        blob = STORE[dtype](x).tobytes()
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---- a random model ----

def random_rope(r, dim, positions):
    kind = r.choice(["default", "linear", "dynamic", "llama3", "yarn", "longrope"])
    rope = {"rope_type": str(kind)}
    if kind != "default":
        rope["factor"] = float(r.choice([2.0, 4.0, 8.0]))
    if kind in ("llama3", "yarn", "longrope"):
        rope["original_max_position_embeddings"] = int(positions // 4)
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "yarn":
        rope |= {"beta_fast": 4.0, "beta_slow": 1.0}
        if r.random() < 0.5:
            rope["truncate"] = False
    if kind == "longrope":
        for name in ("short_factor", "long_factor"):
            rope[name] = [round(float(x), 3) for x in 1 + r.random(dim // 2) * 4]
    return rope


def random_config(r):
    family = str(r.choice(["llama", "mistral", "qwen2", "qwen3"]))
    kv = int(r.integers(1, 4))
    heads = kv * int(r.integers(1, 5))
    dim = 2 * int(r.integers(1, 40))
    positions = 64
    c = {
        "model_type": family,
        "hidden_size": int(r.integers(3, 300)),
        "intermediate_size": int(r.integers(3, 400)),
        "num_hidden_layers": int(r.integers(1, 4)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": dim,
        "vocab_size": int(r.integers(33, 400)),
        "max_position_embeddings": positions,
        "rms_norm_eps": float(r.choice([1e-5, 5e-3])),
        "tie_word_embeddings": bool(r.random() < 0.5),
        "hidden_act": "silu",
        "eos_token_id": 2,
    }
    if family in ("llama", "qwen3"):
        c["attention_bias"] = bool(r.random() < 0.5)
    if family == "llama":
        c["mlp_bias"] = bool(r.random() < 0.5)
    if family == "mistral":
        c["sliding_window"] = [None, 5, 17][int(r.integers(3))]
    if family.startswith("qwen"):
        c |= {"use_sliding_window": bool(r.random() < 0.5), "sliding_window": 9, "max_window_layers": 1}
    rope, theta = random_rope(r, dim, positions), float(r.choice([1000.0, 10000.0]))
    if r.random() < 0.5:
        c["rope_parameters"] = rope | {"rope_theta": theta}
    else:
        c |= {"rope_theta": theta, "rope_scaling": None if rope["rope_type"] == "default" else rope}
    return c, rope, theta


def random_weights(r, c):
    H, I, V, d = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    family = c["model_type"]
    t = {}

    def matrix(name, rows, cols):
        t[name + ".weight"] = r.normal(size=(rows, cols)) / math.sqrt(cols)

    def vector(name, n, around):
        t[name] = around + 0.3 * r.normal(size=n)

    matrix("model.embed_tokens", V, H)
    t["model.embed_tokens.weight"] *= math.sqrt(H)
    for i in range(c["num_hidden_layers"]):
        L = f"model.layers.{i}."
        vector(L + "input_layernorm.weight", H, 1)
        vector(L + "post_attention_layernorm.weight", H, 1)
        for name, rows, cols in (("q", q, H), ("k", kv, H), ("v", kv, H), ("o", H, q)):
            matrix(f"{L}self_attn.{name}_proj", rows, cols)
            if c.get("attention_bias") or (family == "qwen2" and name != "o"):
                vector(f"{L}self_attn.{name}_proj.bias", rows, 0)
        if family == "qwen3":
            vector(L + "self_attn.q_norm.weight", d, 1)
            vector(L + "self_attn.k_norm.weight", d, 1)
        for name, rows, cols in (("gate", I, H), ("up", I, H), ("down", H, I)):
            matrix(f"{L}mlp.{name}_proj", rows, cols)
            if c.get("mlp_bias"):
                vector(f"{L}mlp.{name}_proj.bias", rows, 0)
    vector("model.norm.weight", H, 1)
    if not c["tie_word_embeddings"]:
        matrix("lm_head", V, H)
    return t


# ---- the mathematics ----

def rope_table(c, rope, theta, n):
    d, kind, positions = c["head_dim"], rope["rope_type"], c["max_position_embeddings"]
    original, factor, scale = rope.get("original_max_position_embeddings", positions), rope.get("factor"), 1.0
    i = np.arange(d // 2)
    if kind == "dynamic" and d > 2:
        length = max(n, positions)
        theta *= (factor * length / positions - (factor - 1)) ** (d / (d - 2))
    f = theta ** (-2.0 * i / d)
    if kind == "linear":
        f = f / factor
    if kind == "llama3":
        wave = 2 * math.pi / f
        smooth = (original / wave - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
        middle = (1 - smooth) * f / factor + smooth * f
        f = np.where(wave < original / rope["high_freq_factor"], f,
                     np.where(wave > original / rope["low_freq_factor"], f / factor, middle))
    if kind == "yarn":
        corr = lambda turns: d * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        low, high = corr(rope["beta_fast"]), corr(rope["beta_slow"])
        if rope.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, d - 1)
        high += 0.001 if low == high else 0
        ramp = np.clip((i - low) / (high - low), 0, 1)
        f = f / factor * ramp + f * (1 - ramp)
        scale = 0.1 * math.log(factor) + 1
    if kind == "longrope":
        f = f / np.array(rope["long_factor" if n > original else "short_factor"])
        scale = math.sqrt(1 + math.log(factor) / math.log(original))
    angle = np.arange(n)[:, None] * f
    return np.cos(angle) * scale, np.sin(angle) * scale


def rmsnorm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rotate(x, cos, sin):  # [n, heads, d]
    a, b = np.split(x, 2, -1)
    c, s = cos[:, None], sin[:, None]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def window_of(c, layer):
    if c["model_type"] == "mistral":
        return c["sliding_window"]
    if c.get("use_sliding_window") and layer >= c["max_window_layers"]:
        return c["sliding_window"]
    return None


def forward(c, rope, theta, t, ids):
    n, d, eps = len(ids), c["head_dim"], c["rms_norm_eps"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    cos, sin = rope_table(c, rope, theta, n)
    linear = lambda x, name: x @ t[name + ".weight"].T + t.get(name + ".bias", 0)
    h = t["model.embed_tokens.weight"][ids]
    at = np.arange(n)
    for i in range(c["num_hidden_layers"]):
        L = f"model.layers.{i}."
        x = rmsnorm(h, t[L + "input_layernorm.weight"], eps)
        q = linear(x, L + "self_attn.q_proj").reshape(n, heads, d)
        k = linear(x, L + "self_attn.k_proj").reshape(n, kv, d)
        v = linear(x, L + "self_attn.v_proj").reshape(n, kv, d)
        if L + "self_attn.q_norm.weight" in t:
            q = rmsnorm(q, t[L + "self_attn.q_norm.weight"], eps)
            k = rmsnorm(k, t[L + "self_attn.k_norm.weight"], eps)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
        s = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(d)
        seen, window = at[None] <= at[:, None], window_of(c, i)
        if window:
            seen &= at[None] > at[:, None] - window
        s = np.where(seen, s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        h = h + linear(np.einsum("hqk,khd->qhd", p, v).reshape(n, heads * d), L + "self_attn.o_proj")
        x = rmsnorm(h, t[L + "post_attention_layernorm.weight"], eps)
        gate = linear(x, L + "mlp.gate_proj")
        h = h + linear(gate / (1 + np.exp(-gate)) * linear(x, L + "mlp.up_proj"), L + "mlp.down_proj")
    head = t["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return rmsnorm(h, t["model.norm.weight"], eps) @ head.T


# ---- comparing ----

def run(program, folder, *options):
    out = os.path.join(folder, "out.npy")
    subprocess.run([program, "eval", "logits", folder, "--ids", os.path.join(folder, "ids.json"), "-o", out,
                    "--all", *options], check=True, stderr=subprocess.PIPE,
                   env=os.environ | {"XDG_CACHE_HOME": os.path.join(folder, "cache")})
    return np.load(out)


def check(program, seed):
    r = np.random.default_rng(seed)
    c, rope, theta = random_config(r)
    dtype = str(r.choice(list(STORE)))
    weights = random_weights(r, c)
    ids = r.integers(0, c["vocab_size"], int(r.integers(1, 90)))
    exact = {name: LOAD[dtype](STORE[dtype](x)) for name, x in weights.items()}
    expected = forward(c, rope, theta, exact, ids)
    with tempfile.TemporaryDirectory() as folder:
        json.dump(c, open(os.path.join(folder, "config.json"), "w"))
        json.dump(ids.tolist(), open(os.path.join(folder, "ids.json"), "w"))
        write_safetensors(os.path.join(folder, "model.safetensors"), weights, dtype)
        logits = run(program, folder, "--quantization", "f32")
        stages = str(c["num_hidden_layers"])
        parted = run(program, folder, "--quantization", "int4", "--isa", "scalar", "--threads", "1")
        same = run(program, folder, "--quantization", "int4", "--stages", stages, "--threads", "3")
    distance = np.abs(logits - expected).max()
    ok = logits.shape == expected.shape and distance < 1e-3 and parted.tobytes() == same.tobytes()
    print(f"{seed:5} {'ok  ' if ok else 'BAD '} {distance:.1e}  {c['model_type']:8} {rope['rope_type']:9} {dtype:5}"
          f" H {c['hidden_size']} I {c['intermediate_size']} V {c['vocab_size']} heads"
          f" {c['num_attention_heads']}/{c['num_key_value_heads']} x {c['head_dim']} ids {len(ids)}", flush=True)
    return ok


first, count = (int(x) for x in (sys.argv[2:] + ["0", "40"][len(sys.argv) - 2:])[:2])
sys.exit(0 if all([check(sys.argv[1], seed) for seed in range(first, first + count)]) else 1)
