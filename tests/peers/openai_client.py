#!/usr/bin/env python3
"""The official OpenAI client and curl, unchanged, against two stages joined by TCP: every endpoint, streamed and not,
errors as the client's own exceptions, and eight requests at once whose texts equal those they get alone.

usage: openai_client.py PROGRAM [MODEL.gguf]     with the mock model; and with MODEL, or SmolLM2 if it is in the cache"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

CLIENT = "openai==3.57.0"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cascadia"
SMOLLM2 = CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def enter_venv():
    """Runs this file again with a Python that has the client; makes it once."""
    venv = CACHE / "peers" / CLIENT.replace("==", "-")
    python = venv / "bin" / "python"
    if pathlib.Path(sys.prefix) == venv:
        return
    if not (venv / "ready").exists():
        print(f"installing {CLIENT}, once", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", CLIENT], check=True)
        (venv / "ready").touch()
    os.execv(python, [str(python), *sys.argv])


def free_ports(count):
    import socket
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, None


class Chain:
    """Two stages; ready when /health says so."""

    def __init__(self, program, model, engine, log):
        api, head, following = free_ports(3)
        common = [program, "worker", "--total", "2", "--model", str(model), "--engine", engine, "--threads", "1"]
        self.url = f"http://127.0.0.1:{api}"
        self.processes = [
            subprocess.Popen(common + ["--rank", "1", "--listen", f"127.0.0.1:{following}"], stdout=log, stderr=log),
            subprocess.Popen(common + ["--rank", "0", "--listen", f"127.0.0.1:{head}", "--next",
                                       f"127.0.0.1:{following}", "--api", f"127.0.0.1:{api}"], stdout=log, stderr=log)]
        until = time.monotonic() + 120
        while get(self.url + "/health")[0] != 200:
            if time.monotonic() > until or any(process.poll() is not None for process in self.processes):
                self.stop()
                raise RuntimeError("the chain did not become ready")
            time.sleep(0.1)

    def stop(self):
        """The exit statuses after SIGTERM."""
        for process in self.processes:
            process.terminate()
        try:
            return [process.wait(30) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()


failures = []


def check(condition, what):
    print(("ok      " if condition else "FAILED  ") + what)
    if not condition:
        failures.append(what)


def raises(kind, call, what, param=None):
    try:
        call()
    except kind as error:
        check(param is None or error.param == param, f"{what}: {kind.__name__}")
    except Exception as error:  # another kind is a failure to report, not a crash
        check(False, f"{what}: {type(error).__name__} instead of {kind.__name__}")
    else:
        check(False, f"{what}: no error")


def ask(client, text, stream=False, **more):
    """The text of an answer and its finish reason."""
    messages = [{"role": "user", "content": text}]
    answer = client.chat.completions.create(model="any", messages=messages, stream=stream, **more)
    if not stream:
        return answer.choices[0].message.content, answer.choices[0].finish_reason
    pieces, finish = [], None
    for chunk in answer:
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
            finish = choice.finish_reason or finish
    return "".join(pieces), finish


def check_models(client, openai):
    names = [model.id for model in client.models.list()]
    check(len(names) == 1, f"models.list: {names}")
    check(client.models.retrieve(names[0]).id == names[0], "models.retrieve")
    raises(openai.NotFoundError, lambda: client.models.retrieve("no-such-model"), "models.retrieve of another")


def check_says_back(client):
    """The mock model says the last message back, so every text is known."""
    text = "Grüße, 世界! 😀 \"quoted\" \\ \n\ttail"
    for stream in False, True:
        name = "streamed" if stream else "whole"
        check(ask(client, text, stream) == (text, "stop"), f"chat, {name}: the message comes back")
        check(ask(client, text, stream, max_tokens=3) == (text[:2] + "\ufffd", "length"), f"chat, {name}: max_tokens in mid-character")
        check(ask(client, "one two three", stream, stop=["two", "x"]) == ("one ", "stop"), f"chat, {name}: stop string")
        check(ask(client, [{"type": "text", "text": "part 1"}, {"type": "text", "text": "part 2"}], stream)[1] == "stop",
              f"chat, {name}: content in parts")


def check_usage(client):
    chunks = list(client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "abc"}], stream=True, stream_options={"include_usage": True}))
    usage = chunks[-1].usage
    check(not chunks[-1].choices and all(chunk.usage is None for chunk in chunks[:-1]), "usage in the last chunk alone")
    whole = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "abc"}]).usage
    check((usage.prompt_tokens, usage.completion_tokens) == (whole.prompt_tokens, whole.completion_tokens) == (6, 4),
          f"usage: {usage.prompt_tokens} + {usage.completion_tokens}, streamed as whole")
    check(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, "usage adds up")


def check_logprobs(client):
    answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "ab"}], logprobs=True,
                                            top_logprobs=2, temperature=0)
    content = answer.choices[0].logprobs.content
    check([token.token for token in content][:2] == ["a", "b"] and len(content[0].top_logprobs) == 2,
          "logprobs of each token, with two alternatives")
    check(content[0].top_logprobs[0].token == "a" and content[0].logprob > -0.1, "the chosen token is the likeliest")
    answer = client.completions.create(model="any", prompt="ab", logprobs=1, max_tokens=2, temperature=0)
    check(len(answer.choices[0].logprobs.tokens) == len(answer.choices[0].logprobs.token_logprobs) > 0,
          "logprobs of /v1/completions")


def check_errors(client, openai):
    messages = [{"role": "user", "content": "x"}]
    create = client.chat.completions.create
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    bad = openai.BadRequestError
    raises(bad, lambda: create(model="any", messages=messages, temperature=3), "temperature 3", "temperature")
    raises(bad, lambda: create(model="any", messages=messages, n=2), "n 2", "n")
    raises(bad, lambda: create(model="any", messages=[]), "no messages", "messages")
    raises(bad, lambda: create(model="any", messages=image), "an image", "messages[0].content[0]")
    raises(bad, lambda: create(model="any", messages=[{"role": "user", "content": "x" * 100000}], stream=True),
           "too long a prompt, streamed", "messages")
    raises(openai.NotFoundError, lambda: client.embeddings.create(model="any", input="x"), "an endpoint that is not there")


def check_leaving(client, chain):
    stream = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "a" * 200}], stream=True,
                                            max_tokens=7000, logit_bias={"259": -100})
    next(iter(stream))
    stream.close()
    until = time.monotonic() + 5
    while get(chain.url + "/health")[1]["requests"]["running"] and time.monotonic() < until:
        time.sleep(0.02)
    check(get(chain.url + "/health")[1]["requests"]["running"] == 0, "a stream that is closed cancels its request")


def check_eight(client, texts, **more):
    """Each alone, then all at once, streamed and not."""
    alone = [ask(client, text, **more) for text in texts]
    together = [None] * len(texts)

    def work(index):
        together[index] = ask(client, texts[index], stream=index % 2 == 0, **more)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(together == alone, f"{len(texts)} at once equal alone {more or ''}")
    for mine, other in zip(together, alone):
        if mine != other:
            print(f"        {mine!r}\n        {other!r}")
    return alone


def check_curl(url, text, expected):
    body = {"model": "any", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 32}
    command = ["curl", "-fsSN", "-m", "60", url + "/v1/chat/completions", "-H", "Content-Type: application/json", "-d"]
    whole = json.loads(subprocess.run(command + [json.dumps(body)], check=True, capture_output=True).stdout)
    check(whole["choices"][0]["message"]["content"] == expected, "curl, whole")
    lines = subprocess.run(command + [json.dumps({**body, "stream": True})], check=True, capture_output=True,
                           text=True).stdout.split("\n\n")
    check(lines[-2:] == ["data: [DONE]", ""], "curl, streamed: the end mark")
    chunks = [json.loads(line[6:]) for line in lines[:-2]]
    check("".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == expected, "curl, streamed")
    check(chunks[-1]["timings"]["predicted_n"] > 0, "curl, streamed: timings in the last chunk")


def with_chain(program, model, engine, work):
    import openai
    with tempfile.TemporaryFile("w+") as log:
        chain = Chain(program, model, engine, log)
        try:
            work(openai.OpenAI(base_url=chain.url + "/v1", api_key="none", max_retries=0, timeout=120), openai, chain)
        finally:
            statuses = chain.stop()
            check(statuses == [0, 0], f"both stages end with 0 after SIGTERM: {statuses}")
            if failures:
                log.seek(0)
                print(log.read()[-4000:])


def with_mock(client, openai, chain):
    check_models(client, openai)
    check_says_back(client)
    check_usage(client)
    check_logprobs(client)
    check_errors(client, openai)
    check_leaving(client, chain)
    check_eight(client, [f"message {i} " * (i + 1) for i in range(8)])
    check_curl(chain.url, "hello", "hello")


def with_smollm2(client, openai, chain):
    texts = ["What is the capital of France?", "Name three primary colors.", "Write a haiku about rain.", "What is 2 + 2?",
             "Why is the sky blue?", "Say hello in Spanish.", "Who wrote Hamlet?", "What do bees make?"]
    alone = check_eight(client, texts, temperature=0, max_tokens=32)
    check("Paris" in alone[0][0], f"an answer that makes sense: {alone[0][0]!r}")
    check_eight(client, texts, temperature=0.9, top_p=0.9, seed=11, max_tokens=32)
    check_curl(chain.url, texts[0], alone[0][0])


def main():
    program = sys.argv[1]
    model = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else SMOLLM2
    with_chain(program, "mock-model", "mock", with_mock)
    if model.exists():
        with_chain(program, model, "native", with_smollm2)
    else:
        print(f"skipped the real model: no {model}; give one as the second argument")
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    enter_venv()
    sys.exit(main())
