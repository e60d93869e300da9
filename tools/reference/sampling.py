#!/usr/bin/env python3
"""The definition of sampling, in NumPy: makes tests/golden/sampling/sampling.json.

usage: sampling.py OUT.json

Penalties are computed in float32, step by step, since their results are compared bit for bit.
Distributions are computed in float64: what the program draws is held against them statistically
and by its set of candidates.
"""
import json
import sys

import numpy as np

F = np.float32


def penalise(logits, params, ids):
    """Repetition as transformers' RepetitionPenaltyLogitsProcessor, frequency and presence as
    OpenAI documents them, then the bias."""
    z = logits.astype(F).copy()
    repetition = F(params.get("repetition_penalty", 1.0))
    for token in sorted(set(ids)):
        if repetition != 1:
            z[token] = z[token] * repetition if z[token] < 0 else z[token] / repetition
    answer = ids[params.get("prompt_rows", 0):]
    for token in sorted(set(answer)):
        count = F(answer.count(token))
        z[token] = z[token] - count * F(params.get("frequency_penalty", 0.0))
        z[token] = z[token] - F(params.get("presence_penalty", 0.0))
    for token, bias in params.get("bias", []):
        z[token] = z[token] + F(bias)
    return z


def distribution(logits, params, ids):
    """[(token, probability)] of what is kept, in candidate order."""
    z = penalise(logits, params, ids)
    cap = params.get("token_cap", 0) or len(z)
    order = sorted((t for t in range(cap) if z[t] > -np.inf), key=lambda t: (-z[t], t))
    if params["temperature"] == 0:
        return [(order[0], 1.0)]
    top_k = params.get("top_k", 0)
    if top_k:
        order = order[:top_k]
    scaled = z[order].astype(np.float64) / float(F(params["temperature"]))
    p = np.exp(scaled - scaled[0])
    p /= p.sum()
    top_p = float(F(params.get("top_p", 1.0)))
    if top_p < 1:
        before = np.cumsum(p) - p
        kept = max(1, int((before < top_p).sum()))
        order, p = order[:kept], p[:kept] / p[:kept].sum()
    min_p = float(F(params.get("min_p", 0.0)))
    kept = max(1, int((p >= min_p * p[0]).sum()))
    order, p = order[:kept], p[:kept] / p[:kept].sum()
    return list(zip(order, p.tolist()))


def logprobs(logits):
    z = logits.astype(np.float64)
    return z - z.max() - np.log(np.exp(z - z.max()).sum())


def main():
    rng = np.random.default_rng(7)
    ids = [3, 5, 5, 0, 7, 3, 3, 11, 5, 1, 1, 1]
    penalty_cases = [
        {},
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.7, "prompt_rows": 4},
        {"presence_penalty": 0.6, "prompt_rows": 4},
        {"frequency_penalty": -0.4, "prompt_rows": 6},
        {"presence_penalty": 1.1, "frequency_penalty": 0.3, "prompt_rows": 0},
        {"presence_penalty": 1.1, "frequency_penalty": 0.3, "prompt_rows": 12},
        {"bias": [[2, 4.25], [7, -100.0], [2, 0.1]]},
        {"repetition_penalty": 1.17, "presence_penalty": -0.9, "frequency_penalty": 0.37,
         "prompt_rows": 3, "bias": [[5, 1.7], [13, -2.9]]},
    ]
    distribution_cases = [
        {"temperature": 1.0},
        {"temperature": 0.0},
        {"temperature": 0.35},
        {"temperature": 1.9},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_k": 5},
        {"temperature": 0.8, "top_k": 1000},
        {"temperature": 1.0, "top_p": 0.0},
        {"temperature": 1.0, "top_p": 0.5},
        {"temperature": 1.5, "top_p": 0.97},
        {"temperature": 1.0, "min_p": 0.2},
        {"temperature": 1.0, "min_p": 1.0},
        {"temperature": 1.2, "top_k": 9, "top_p": 0.8, "min_p": 0.1},
        {"temperature": 1.0, "token_cap": 10},
        {"temperature": 0.9, "top_p": 0.9, "repetition_penalty": 1.4, "presence_penalty": 0.5,
         "prompt_rows": 5, "bias": [[2, 1.5]]},
    ]
    cases = {"penalties": [], "distributions": [], "logprobs": []}
    for params in penalty_cases:
        logits = (rng.standard_normal(16) * 3).astype(F)
        cases["penalties"].append({
            "params": params, "ids": ids, "logits": logits.tolist(),
            "expected": penalise(logits, params, ids).tolist()})
    for params in distribution_cases:
        logits = (rng.standard_normal(24) * 2).astype(F)
        cases["distributions"].append({
            "params": params, "ids": ids, "logits": logits.tolist(),
            "expected": [[t, p] for t, p in distribution(logits, params, ids)]})
    for scale in (0.1, 3.0, 20.0):
        logits = (rng.standard_normal(300) * scale).astype(F)
        cases["logprobs"].append({"logits": logits.tolist(),
                                  "expected": logprobs(logits).tolist()})
    with open(sys.argv[1], "w") as out:
        json.dump(cases, out, indent=None, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
