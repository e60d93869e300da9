#!/usr/bin/env python3
"""Windows of OpenVINO GenAI: loads a model and warms up, then for each pair of a prompt's length and a number of steps
feeds a prompt, decodes, and prints the rates as a JSON line.

usage: openvino_window.py MODEL THREADS WARM-UP-ROWS PROMPT:STEPS ... [KEY=VALUE ...]

Times are those of the inferences alone, as GenAI counts them: no sampling, no tokens to text. Prompts are random and
the prefix cache is off, so that nothing is found again. Properties go to the pipeline as they are given."""
import json
import os
import sys

import numpy as np
import openvino as ov
import openvino_genai as genai

ID_CAP = 49152  # below the vocabulary of each model that is compared


def open_pipeline(model, threads, properties):
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", **properties}
    if options.get("ATTENTION_BACKEND", "PA") == "PA":
        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = 1 << 30  # a prompt is one batch
        options["scheduler_config"] = scheduler
    return genai.LLMPipeline(model, "CPU", **options)


def run(pipeline, random, prompt, steps):
    """Seconds of each inference; the first takes the prompt."""
    config = genai.GenerationConfig()
    config.max_new_tokens = steps + 1
    config.do_sample = False
    config.set_eos_token_id(0)  # models without tokenizer have none
    config.stop_token_ids = {0}
    config.ignore_eos = True
    ids = ov.Tensor(random.integers(1, ID_CAP, (1, prompt), np.int64))
    return [t / 1e6 for t in pipeline.generate(ids, config).perf_metrics.raw_metrics.token_infer_durations]


def measure(pipeline, random, prompt, steps):
    first, *others = run(pipeline, random, prompt, steps)
    if len(others) != steps:
        sys.exit(f"{len(others)} steps counted instead of {steps}")
    return {"prompt": prompt, "prefill": prompt / first, "decode": steps / sum(others) if steps else None}


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    model, threads, warm, words = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    pipeline = open_pipeline(model, threads, dict(word.split("=", 1) for word in words if "=" in word))
    random = np.random.default_rng(1)
    run(pipeline, random, warm, 2)
    for word in words:
        if ":" in word:
            print(json.dumps(measure(pipeline, random, *map(int, word.split(":")))), flush=True)
    os._exit(0)  # the libraries' destructors take seconds


main()
