"""A chain of worker processes on loopback, and the API client of the tests. Standard library only.

Every wait is bounded; every process is one that we started and is ended by its own handle."""
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time

READY_SECONDS = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Stream:
    """One streamed request on a thread of its own; what came is in the fields."""

    def __init__(self, chain, body):
        self.text, self.events, self.error, self.finish, self.done = "", 0, None, None, False
        self.status, self.broken, self.first, self.ended_at = None, None, threading.Event(), None
        self.body = {**body, "stream": True}
        self.chain = chain
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self._read()
        except (OSError, http.client.HTTPException) as why:
            self.broken = why
        self.ended_at = time.monotonic()
        self.first.set()

    def _read(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.chain.api, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(self.body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.status = response.status
        if response.status != 200:
            self.error = json.loads(response.read())["error"]
            return
        for line in response:
            if not line.startswith(b"data: "):
                continue
            self._take(line[6:].strip())
        connection.close()

    def _take(self, data):
        if data == b"[DONE]":
            self.done = True
            return
        event = json.loads(data)
        if "error" in event:
            assert self.error is None, "two errors for one stream"
            self.error = event["error"]
            return
        for choice in event.get("choices", []):
            piece = choice["delta"].get("content") or ""
            self.text += piece
            self.finish = choice.get("finish_reason") or self.finish
            if piece:
                self.events += 1
                self.first.set()

    def join(self, seconds):
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "a stream did not end in time"
        return self


class Chain:
    def __init__(self, program, total, model="mock-model", engine="mock", extra=()):
        self.program, self.total, self.model, self.engine = program, total, model, engine
        self.extra = list(extra)
        self.api = free_port()
        self.ports = [free_port() for _ in range(total)]
        self.processes = [None] * total
        self.logs = pathlib.Path(tempfile.mkdtemp(prefix="cascadia-e2e-"))

    def command(self, rank):
        words = [self.program, "worker", "--rank", str(rank), "--total", str(self.total),
                 "--model", self.model, "--engine", self.engine,
                 "--listen", f"127.0.0.1:{self.ports[rank]}", "--threads", "1", *self.extra]
        if rank + 1 < self.total:
            words += ["--next", f"127.0.0.1:{self.ports[rank + 1]}"]
        if rank == 0:
            words += ["--api", f"127.0.0.1:{self.api}"]
        return words

    def start(self, rank):
        log = open(self.logs / f"rank{rank}.log", "ab")
        self.processes[rank] = subprocess.Popen(self.command(rank), stderr=log, stdout=log)
        log.close()

    def start_all(self, order=None):
        for rank in order or range(self.total):
            self.start(rank)
        self.await_ready()

    def kill(self, rank):
        self.processes[rank].send_signal(signal.SIGKILL)
        self.processes[rank].wait(10)

    def stop_all(self):
        """SIGTERM to all; the exit statuses."""
        for process in self.processes:
            if process and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        statuses = []
        for process in self.processes:
            try:
                statuses.append(process.wait(20) if process else None)
            except subprocess.TimeoutExpired:
                process.kill()
                statuses.append("did not end")
        return statuses

    def health(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.api, timeout=5)
            connection.request("GET", "/health")
            response = connection.getresponse()
            response.read()
            return response.status
        except OSError:
            return None

    def await_ready(self, seconds=READY_SECONDS):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.health() == 200:
                return
            time.sleep(0.02)
        raise AssertionError("not ready:\n" + self.log_tail())

    def log_tail(self):
        parts = []
        for path in sorted(self.logs.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-15:]
            parts.append(f"-- {path.name}\n" + "\n".join(lines))
        return "\n".join(parts)

    def stream(self, text, **more):
        return Stream(self, {"model": "m", "messages": [{"role": "user", "content": text}], **more})

    def ask(self, text, **more):
        stream = self.stream(text, **more).join(120)
        assert stream.done and stream.error is None, (stream.status, stream.error, stream.broken, self.log_tail())
        return stream.text


@contextlib.contextmanager
def chain(program, total, **more):
    c = Chain(program, total, **more)
    try:
        yield c
    except BaseException:
        print(c.log_tail())
        raise
    finally:
        for process in c.processes:
            if process and process.poll() is None:
                process.kill()
                process.wait(10)
        for path in c.logs.iterdir():
            path.unlink()
        os.rmdir(c.logs)
