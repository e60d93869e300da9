#!/usr/bin/env python3
"""/metrics of a served model, read as strictly as promtool reads it: names, types before samples, one block a name,
cumulative buckets. Then that its figures are those of the requests that were made, with the mock engine and with the
native one, whose answers and metrics also say how near the read limit decoding was. usage: test_metrics.py PROGRAM"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*)\}})? (\S+)')
failed = 0


def check(what, good, shown=""):
    global failed
    print(f"{'ok' if good else 'FAILED':8}{what}{'' if good else f': {shown}'}")
    failed += not good


def number(text):
    return {"+Inf": float("inf"), "-Inf": float("-inf"), "NaN": float("nan")}.get(text) if text[-1] in "fN" else float(text)


def parse(text):
    """{name: {labels: value}}, or a ValueError with the line that is wrong."""
    samples, types, current = {}, {}, None
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current = re.fullmatch(rf"# HELP ({NAME}) \S.*", line)[1]
            if current in types:
                raise ValueError(f"{current} begins twice")
        elif line.startswith("# TYPE "):
            name, kind = re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line).groups()
            if name != current or name in types:
                raise ValueError(line)
            types[name] = kind
            if (kind == "counter") != name.endswith("_total"):
                raise ValueError(f"{name} is a {kind}")
        else:
            match = SAMPLE.fullmatch(line)
            if not match:
                raise ValueError(line)
            name, labels, value = match[1], match[2] or "", number(match[3])
            base = re.sub("_(bucket|sum|count)$", "", name) if types.get(current) == "histogram" else name
            if base != current or labels in samples.setdefault(name, {}):
                raise ValueError(line)
            samples[name][labels] = value
    for name in (n for n, kind in types.items() if kind == "histogram"):
        check_buckets(name, samples)
    return samples


def check_buckets(name, samples):
    buckets = [(number(re.fullmatch('le="(.*)"', labels)[1]), value) for labels, value in samples[name + "_bucket"].items()]
    if buckets != sorted(buckets) or [v for _, v in buckets] != sorted(v for _, v in buckets):
        raise ValueError(f"the buckets of {name} do not rise: {buckets}")
    if buckets[-1][0] != float("inf") or buckets[-1][1] != samples[name + "_count"][""]:
        raise ValueError(f"{name} does not end with all")


class Server:
    def __init__(self, program, *options):
        self.process = subprocess.Popen([program, "run", *options, "--port", "0"], stdout=subprocess.PIPE, text=True)
        self.url = re.search(r"http://\S+?:\d+", self.process.stdout.readline())[0]
        until = time.monotonic() + 30
        while time.monotonic() < until and self.get("/health", True)[0] != 200:
            time.sleep(0.02)

    def get(self, path, any_status=False):
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            if not any_status:
                raise
            return error.code, "", error.headers

    def complete(self, **fields):
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(fields).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def metrics(self):
        _, text, headers = self.get("/metrics")
        check("the type is Prometheus'", headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8",
              headers["Content-Type"])
        try:
            return parse(text)
        except (ValueError, TypeError) as error:
            check("the text is well formed", False, f"{error}\n{text}")
            return {}

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        check("it stops", self.process.wait(30) == 0)


def read(samples, name, labels=""):
    return samples.get("cascadia_" + name, {}).get(labels, float("nan"))


def test_mock(program):
    server = Server(program, "mock-model", "--engine", "mock", "--ctx-size", "256")
    before = server.metrics()
    check("nothing has been asked yet", read(before, "requests_accepted_total") == 0, before)
    for n in (4, 8):
        server.complete(prompt=[256, 97, 97, 97, 97, 97, 97, 97, 97, 259, 257], max_tokens=n, temperature=0)
    after = server.metrics()
    check("two requests are done", read(after, "requests_total", 'outcome="done"') == 2, after)
    check("their prompts are counted", read(after, "prompt_tokens_total") == 22, after)
    check("their tokens are counted", read(after, "generated_tokens_total") == 12, after)
    check("first tokens have their times", read(after, "time_to_first_token_seconds_count") == 2, after)
    check("and all others theirs", read(after, "inter_token_seconds_count") == 10, after)
    check("nothing runs", read(after, "requests_running") == 0 and read(after, "kv_pages_used") == 0, after)
    share = read(after, "decode_read_share")
    check("the mock engine knows no limit", share != share, after)
    server.close()


def test_native(program):
    golden = pathlib.Path(__file__).resolve().parent.parent / "golden" / "llama"
    with tempfile.TemporaryDirectory() as work:
        os.environ["XDG_CACHE_HOME"] = work
        model = pathlib.Path(work) / "model"
        model.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(golden / name, model)
        model.joinpath("tokenizer.json").write_text(json.dumps({ # a vocabulary of a few letters
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "d": 4}, "merges": ["a b"]},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "decoder": {"type": "ByteLevel"}}))
        server = Server(program, str(model), "--threads", "1")
        answer = server.complete(prompt=[3, 4, 2], max_tokens=20, ignore_eos=True)
        share = answer["timings"]["predicted_read_share"]
        check("an answer says its share of the read limit", isinstance(share, float) and 0 < share < 100, answer)
        check("and its rates", answer["timings"]["predicted_per_second"] > 0 and answer["timings"]["prompt_per_second"] > 0,
              answer)
        until = time.monotonic() + 10
        while time.monotonic() < until and not read(server.metrics(), "decode_read_share") > 0:
            time.sleep(0.1)
        samples = server.metrics()
        check("the metrics say it too", read(samples, "decode_read_share") > 0, samples)
        check("and the limit", 0 < read(samples, "decode_step_limit_seconds") < 1, samples)
        server.close()


def main():
    for bad in ("a 1\n", "# HELP a b\n# TYPE a gauge\na 1", "# HELP a b\n# TYPE a counter\na 1\n",
                "# HELP a b\n# TYPE a gauge\na 1\na 2\n", '# HELP a b\n# TYPE a gauge\na{x=1} 1\n',
                '# HELP a b\n# TYPE a histogram\na_bucket{le="1"} 2\na_bucket{le="+Inf"} 1\na_sum 1\na_count 1\n'):
        try:
            parse(bad)
            check(f"{bad!r} is refused", False)
        except (ValueError, TypeError):
            pass
    test_mock(sys.argv[1])
    test_native(sys.argv[1])
    return 1 if failed else 0


sys.exit(main())
