"""Reads a shard directory by docs/shard-format.md alone: the values of every tensor, in NumPy.

Written from the document and not from the C code, so that either being wrong shows."""
import json

import numpy as np

PANEL = 32
FLOATS = {"f32": np.float32, "f16": np.float16}
LAYER_NAMES = {
    "attn_norm": "input_layernorm.weight", "mlp_norm": "post_attention_layernorm.weight",
    "q": "self_attn.q_proj.weight", "k": "self_attn.k_proj.weight", "v": "self_attn.v_proj.weight",
    "q_bias": "self_attn.q_proj.bias", "k_bias": "self_attn.k_proj.bias", "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight", "k_norm": "self_attn.k_norm.weight",
    "o": "self_attn.o_proj.weight", "o_bias": "self_attn.o_proj.bias",
    "gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight", "down": "mlp.down_proj.weight",
    "gate_bias": "mlp.gate_proj.bias", "up_bias": "mlp.up_proj.bias", "down_bias": "mlp.down_proj.bias",
}
MODEL_NAMES = {"embedding": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "head": "lm_head.weight"}


def of_rows(block, first, dtype):
    """32 values of a block's header, [panels, rows, groups, 1]."""
    size = PANEL * np.dtype(dtype).itemsize
    values = np.ascontiguousarray(block[:, :, first:first + size]).view(dtype)
    return values.astype(np.float64).transpose(0, 2, 1)[..., None]


def integers(payload, bits, group):
    """[panels, rows, groups, group] of the two half-panels of a payload."""
    panels, groups = payload.shape[:2]
    if bits == 8:
        lines = payload.reshape(panels, groups, 2, group // 4, 16, 4)
        order = lines.transpose(0, 2, 4, 1, 3, 5)
    else:
        lines = payload.reshape(panels, groups, 2, group // 8, 16, 4)
        order = np.stack([lines & 15, lines >> 4], -2).transpose(0, 2, 4, 1, 3, 5, 6)
    return order.reshape(panels, PANEL, groups, group).astype(np.float64)


def decode_blocks(data, form, n_panels, cols, group):
    n_groups, bits = -(-cols // group), 4 if form.startswith("int4") else 8
    header = 64 if form in ("int4", "int8") else 128
    block = data.reshape(n_panels, n_groups, header + PANEL * group * bits // 8)
    q, scale = integers(block[:, :, header:], bits, group), of_rows(block, 0, np.float16)
    if form == "int4-asym":
        w = scale * (q - of_rows(block, 64, np.uint8))
    elif form.endswith("-min"):
        w = (q - (128 if bits == 8 else 0)) * scale + of_rows(block, 64, np.float16)
    else:
        w = scale * (q - (128 if bits == 8 else 8))
    return w.reshape(n_panels * PANEL, n_groups * group)[:, :cols]


def decode(data, tensor):
    form, rows, cols = tensor["format"], tensor["rows"], tensor["cols"]
    if tensor["role"].endswith(("norm", "bias")):
        return data.view(np.float32)[:cols]
    n_panels = -(-rows // PANEL)
    if form not in FLOATS and form != "bf16":
        return decode_blocks(data, form, n_panels, cols, tensor["group"]).astype(np.float32)
    if form == "bf16":
        values = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = data.view(FLOATS[form]).astype(np.float32)
    return values.reshape(n_panels, cols, PANEL).transpose(0, 2, 1).reshape(n_panels * PANEL, cols)


def read_shard(directory):
    """{Hugging Face name: (values with the padding of rows, the manifest's relative error or None)}."""
    out = {}
    for file in json.loads((directory / "manifest.json").read_text())["files"]:
        raw = np.fromfile(directory / file["name"], np.uint8)
        for tensor in file.get("tensors", ()):
            values = decode(raw[tensor["offset"]:tensor["offset"] + tensor["bytes"]], tensor)
            parts, error = {tensor["role"]: values}, tensor.get("error")
            if tensor["role"] == "gate_up":  # panels of gate and up take turns; the error is of both
                turns = values.reshape(-1, 2, PANEL, values.shape[1])
                parts = {role: turns[:, i].reshape(-1, values.shape[1]) for i, role in enumerate(("gate", "up"))}
                error = None
            for role, part in parts.items():
                name = MODEL_NAMES.get(role) or f"model.layers.{tensor['layer']}.{LAYER_NAMES[role]}"
                out[name] = part, error
    return out
