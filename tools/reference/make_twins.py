#!/usr/bin/env python3
"""Twins of the golden models: tiny random checkpoints of other dimensions, with the logits of transformers.

usage: make_twins.py OUT [FIRST_SEED [COUNT]] [--gguf] [--long]

Needs torch, transformers 5.24, safetensors, NumPy and gguf (for --gguf). Each seed is a folder of OUT:
config.json in one of its two generations and with few or many of the optional keys; the weights in f32, f16,
bf16 or f64, in one file or in several with an index (--gguf: one model.gguf of mixed types); ids.json; and
logits.npy, float32 [ids, vocabulary], from one forward in float32. transformers reads the same config.json
that the program under test reads, so that the meaning of each key is tested and not this script's opinion.
With --long prompts are 500 to 900 ids. tests/peers/twins.py compares."""
import json
import pathlib
import sys
import warnings

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}
ARCHITECTURES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
LOGITS_SPREAD = 3.0


def pick(r, *values):
    return values[int(r.integers(len(values)))]


# ---- configurations ----

def random_rope(r, dim, positions):
    """rope_scaling of one of the kinds, None for the plain rotation; factors may be left out or null."""
    kind = pick(r, None, None, "linear", "dynamic", "llama3", "yarn", "yarn", "yarn", "longrope", "longrope")
    if kind is None:
        return None
    factor, original = pick(r, 2.0, 4.0, 8.0, 1.5), max(2, positions // pick(r, 2, 4))
    rope = {pick(r, "rope_type", "type"): kind, "factor": factor}
    if kind in ("yarn", "longrope", "llama3"):
        rope["original_max_position_embeddings"] = original
    if kind == "llama3":
        rope |= {"low_freq_factor": pick(r, 1.0, 1.5), "high_freq_factor": pick(r, 4.0, 6.0)}
    if kind == "yarn":
        if r.random() < 0.5:
            rope |= {"beta_fast": pick(r, 32, 8.0, 4.0), "beta_slow": pick(r, 1, 0.5)}
        if r.random() < 0.4:
            rope["truncate"] = bool(r.random() < 0.3)
        scale = r.random()
        if scale < 0.25:
            rope |= {"mscale": pick(r, 0.7, 1.0), "mscale_all_dim": pick(r, 0.5, 1.0)}
        elif scale < 0.4:
            rope["mscale"] = 0.9
        elif scale < 0.6:
            rope["attention_factor"] = pick(r, 0.8, 1.3, None)
        if r.random() < 0.25:
            rope["factor"] = None
    if kind == "longrope":
        for name in ("short_factor", "long_factor"):
            rope[name] = [round(float(x), 3) for x in 1 + r.random(dim // 2) * pick(r, 1, 6)]
        if r.random() < 0.5:
            del rope["factor"]
        if r.random() < 0.2:
            rope["attention_factor"] = 1.2
    return rope


def random_heads(r):
    """Heads of each, and head_dim or None where it is hidden_size over the heads."""
    kv, group = pick(r, (1, 1), (1, 12), (1, 5), (2, 3), (3, 3), (4, 1), (5, 2), (1, 7), (6, 2), (3, 1), (2, 6))
    return kv * group, kv, pick(r, None, 8, 10, 20, 24, 6, 80, 128, 256)


def random_config(r, only=None):
    family = only or pick(r, "llama", "llama", "llama", "mistral", "qwen2", "qwen3")
    heads, kv, dim = random_heads(r)
    hidden = int(r.integers(40, 200))
    if dim is None or (family == "qwen2" and r.random() < 0.5):
        dim, per_head = None, 2 * int(r.integers(2, 9))
        hidden = heads * per_head
    if family == "llama":
        hidden -= hidden % heads  # transformers refuses others
    positions = pick(r, 32, 64, 100, 256)
    c = {
        "model_type": family,
        "architectures": [ARCHITECTURES[family] + "ForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": int(r.integers(50, 300)),
        "num_hidden_layers": int(r.integers(1, 6)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": pick(r, 301, 257, 33, 99, 500),
        "max_position_embeddings": positions,
    }
    if dim is not None:
        c["head_dim"] = dim
    elif family == "qwen3":
        c["head_dim"] = dim = hidden // heads
    elif family != "qwen2" and r.random() < 0.3:  # there transformers takes null for a number
        c["head_dim"] = None
    if r.random() < 0.8:
        c["rms_norm_eps"] = pick(r, 1e-5, 5e-3, 1e-6)
    if r.random() < 0.6:
        c["tie_word_embeddings"] = bool(r.random() < 0.6)
    if r.random() < 0.5:
        c |= {"hidden_act": "silu", "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True}
    if r.random() < 0.5:
        c |= {"bos_token_id": 1, "eos_token_id": pick(r, 2, [2, 3])}
    if family in ("llama", "qwen3") and r.random() < 0.6:
        c["attention_bias"] = bool(r.random() < 0.6)
    if family == "llama" and r.random() < 0.6:
        c["mlp_bias"] = bool(r.random() < 0.6)
    if family == "llama" and kv == heads and r.random() < 0.5:
        del c["num_key_value_heads"]
    add_windows(r, c)
    add_rope(r, c, dim or hidden // heads)
    return c


def add_windows(r, c):
    family, layers = c["model_type"], c["num_hidden_layers"]
    if family == "mistral" and r.random() < 0.8:
        c["sliding_window"] = pick(r, None, 1, 5, 17, 64, 100)
    if not family.startswith("qwen") or r.random() < 0.2:
        return
    uses = bool(r.random() < 0.7)
    c |= {"use_sliding_window": uses, "sliding_window": pick(r, 9, 16, 70), "max_window_layers": int(r.integers(layers + 1))}
    if uses and r.random() < 0.4:
        c["layer_types"] = [pick(r, "full_attention", "sliding_attention") for _ in range(layers)]
        if r.random() < 0.5:
            del c["max_window_layers"]
    elif not uses and r.random() < 0.5:
        c["sliding_window"] = None


def add_rope(r, c, dim):
    rope, theta = random_rope(r, dim, c["max_position_embeddings"]), pick(r, 100.0, 10000.0, 500000.0)
    if r.random() < 0.5:
        new = dict(rope or {"rope_type": "default"})
        if "type" in new:
            new = {"rope_type": new.pop("type"), **new}
        c["rope_parameters"] = new | {"rope_theta": theta}
        c["dtype"] = "bfloat16"
        return
    c |= {"rope_theta": theta, "torch_dtype": "bfloat16"}
    if c["model_type"] == "llama" and r.random() < 0.3:
        del c["rope_theta"]
    if rope is not None or r.random() < 0.5:
        c["rope_scaling"] = rope
    if rope and "original_max_position_embeddings" in rope and r.random() < 0.2:
        c["original_max_position_embeddings"] = rope.pop("original_max_position_embeddings")


# ---- weights ----

def build(folder):
    """The model that transformers makes of the folder's config.json."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    return model.eval()


def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    for name, t in model.named_parameters():
        x = torch.randn(t.shape, generator=g)
        if t.ndim == 1:
            x = 0.25 * x + (1 if name.endswith("norm.weight") else 0)
        elif "embed_tokens" not in name:
            x *= (1.3 if "q_proj" in name or "k_proj" in name else 1.2) / t.shape[1] ** 0.5
        t.data.copy_(x)
    if model.config.tie_word_embeddings:
        final = model.model.norm.weight  # random signs: a tied head must not just repeat its input
        final.data *= torch.sign(torch.randn(final.shape, generator=g))


@torch.no_grad()
def forward(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0].float()


def calibrate(model, ids):
    """The spread of the golden models, so that their tolerance means the same."""
    head = model.get_output_embeddings().weight
    for _ in range(4 if model.config.tie_word_embeddings else 1):
        spread = forward(model, ids).std().item()
        head.data *= LOGITS_SPREAD / min(max(spread, 0.05), 60.0)


def save_hf(r, model, folder):
    """In one of the dtypes, whole or in parts; the model keeps what was written."""
    name, dtype = pick(r, *DTYPES.items())
    tensors = {}
    for key, t in model.named_parameters():
        stored = t.data.to(torch.float64).to(dtype) if dtype == torch.float64 else t.data.to(dtype)
        if dtype == torch.float64:
            stored = stored * (1 + 1e-12)  # not exact in f32
        t.data.copy_(stored.float())
        tensors[key] = stored.contiguous()
    if model.config.tie_word_embeddings and r.random() < 0.3:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    n_parts = int(r.integers(2, 4)) if r.random() < 0.4 else 1
    if n_parts == 1:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return name
    parts, where = [{} for _ in range(n_parts)], {}
    for key, t in tensors.items():
        part = int(r.integers(n_parts))
        parts[part][key] = t
        where[key] = f"model-{part + 1:05}-of-{n_parts:05}.safetensors"
    for part, held in enumerate(parts):
        if held:
            save_file(held, folder / f"model-{part + 1:05}-of-{n_parts:05}.safetensors", {"format": "pt"})
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return f"{name} in {n_parts}"


# ---- GGUF ----

GGUF_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
              "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
              "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "model.embed_tokens": "token_embd",
              "model.norm": "output_norm", "lm_head": "output"}
GGUF_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")


def gguf_name(key):
    base, kind = key.rsplit(".", 1)
    if base in GGUF_NAMES:
        return f"{GGUF_NAMES[base]}.{kind}"
    layer, rest = base.split(".", 3)[2:]
    return f"blk.{layer}.{GGUF_NAMES[rest]}.{kind}"


def paired(w, heads):
    """Rows for a rotation of neighbours, as llama.cpp's arch llama keeps q and k."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def gguf_config(r, family):
    """Columns of quantised matrices are multiples of 32."""
    c = random_config(r, family)
    heads = c["num_attention_heads"]
    dim = pick(r, 16, 32, 64, 80, 96)
    while heads * dim % 32:
        dim += 16
    for key in ("rope_scaling", "rope_parameters", "original_max_position_embeddings", "layer_types"):
        c.pop(key, None)
    hidden = 32 * int(r.integers(1, 8))
    if family == "llama" and hidden % heads:
        hidden = 32 * heads  # transformers refuses others
    c |= {"hidden_size": hidden, "intermediate_size": 32 * int(r.integers(1, 10)), "head_dim": dim,
          "use_sliding_window": False, "sliding_window": None, "rope_theta": pick(r, 1000.0, 10000.0),
          "num_key_value_heads": c.get("num_key_value_heads", heads), "rms_norm_eps": pick(r, 1e-5, 5e-3)}
    kind = pick(r, None, "linear", "yarn", "llama3")
    if kind == "llama3" and family != "llama":
        kind = None
    if kind:
        c["rope_scaling"] = {"rope_type": kind, "factor": pick(r, 2.0, 4.0)}
    if kind in ("yarn", "llama3"):
        c["rope_scaling"]["original_max_position_embeddings"] = c["max_position_embeddings"] // 4
    if kind == "llama3":
        c["rope_scaling"] |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return c


def save_gguf(r, model, c, folder):
    import gguf
    from gguf.quants import dequantize, quantize
    types = gguf.GGMLQuantizationType
    w = gguf.GGUFWriter(folder / "model.gguf", c["model_type"])
    heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_rope_dimension_count(dim)
    w.add_rope_freq_base(c["rope_theta"])
    rope = c.get("rope_scaling") or {}
    if rope.get("rope_type") in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        w.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_type") == "yarn":
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope.get("rope_type") == "llama3":
        plain = c["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
        w.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq.double().numpy()).astype(np.float32))
    used, uniform = set(), pick(r, None, *GGUF_TYPES)
    for key, t in model.named_parameters():
        x, name = t.data.numpy(), gguf_name(key)
        n = {"attn_q": heads, "attn_k": kv}.get(name.split(".")[-2], 0) if c["model_type"] == "llama" else 0
        if n:
            x = paired(x, n)
        kind = "F32" if x.ndim == 1 else uniform or pick(r, *GGUF_TYPES)
        used.add(kind)
        x = np.ascontiguousarray(x, np.float32)
        raw = x if kind == "F32" else x.astype(np.float16) if kind == "F16" else quantize(x, types[kind])
        meant = dequantize(raw, types[kind]).reshape(x.shape)
        if n:
            meant = meant.reshape(n, dim // 2, 2, *meant.shape[1:]).swapaxes(1, 2).reshape(meant.shape)
        t.data.copy_(torch.from_numpy(np.array(meant)))
        w.add_tensor(name, raw, raw_dtype=None if kind in ("F32", "F16") else types[kind])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    (folder / "config.json").unlink()
    return "+".join(sorted(used))


# ---- one twin ----

def random_length(r, is_long):
    return int(r.integers(500, 900)) if is_long else pick(r, 1, 2, 15, 17, 63, 64, 65, 90, 129, 130, 200)


def make(out, seed, is_gguf, is_long):
    r = np.random.default_rng(seed)
    family = pick(r, "llama", "llama", "qwen2", "qwen3")
    c = gguf_config(r, family) if is_gguf else random_config(r)
    if is_long:
        c["num_hidden_layers"] = min(c["num_hidden_layers"], 2)
        c["layer_types"] = c.get("layer_types", [])[:2]
        if not c["layer_types"]:
            del c["layer_types"]
    ids = r.integers(0, c["vocab_size"], random_length(r, is_long)).tolist()
    folder = out / f"{'gguf-' if is_gguf else 'long-' if is_long else ''}{seed:04}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(c, indent=1))
    (folder / "ids.json").write_text(json.dumps(ids))
    model = build(folder)
    randomise(model, seed)
    calibrate(model, ids)
    form = save_gguf(r, model, c, folder) if is_gguf else save_hf(r, model, folder)
    np.save(folder / "logits.npy", forward(build_again(model), ids).numpy())
    rope = (c.get("rope_scaling") or c.get("rope_parameters") or {})
    note = (f"{c['model_type']} H {c['hidden_size']} I {c['intermediate_size']} L {c['num_hidden_layers']} V {c['vocab_size']}"
            f" heads {c['num_attention_heads']}/{c.get('num_key_value_heads')} x {c.get('head_dim')} ids {len(ids)}"
            f" {rope.get('rope_type', rope.get('type', 'plain'))} {form}")
    (folder / "note.txt").write_text(note + "\n")
    print(f"{folder.name} {note}", flush=True)


def build_again(model):
    """A copy that no earlier, longer prompt has touched (dynamic rotations remember the longest)."""
    fresh = transformers.AutoModelForCausalLM.from_config(model.config, attn_implementation="eager", dtype=torch.float32)
    fresh.load_state_dict(model.state_dict())
    return fresh.eval()


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    if not words:
        sys.exit(__doc__)
    first, count = (int(x) for x in (words[1:] + ["0", "20"][len(words) - 1:])[:2])
    for seed in range(first, first + count):
        make(pathlib.Path(words[0]), seed, "--gguf" in sys.argv, "--long" in sys.argv)


main()
