#!/usr/bin/env python3
"""kill -9 of each rank in every phase: exactly one typed error a stream within five seconds, never an empty
success; the restarted rank serves again with no restart of the others; a killed head ends its clients'
connections and a new head is served by the ranks that stayed."""
import sys
import time

from chain import chain

ERROR_SECONDS = 5
LONG = "abcdefghij" * 390  # said back token by token: streams that last
SHORT = "are you there?"


def check_serves(c):
    c.await_ready()
    assert c.ask(SHORT, max_tokens=50) == SHORT


def assert_failed(stream, killed_at):
    stream.join(ERROR_SECONDS + 5)
    assert stream.error is not None, f"no error: {len(stream.text)} characters, {stream.finish}, {stream.broken}"
    assert stream.error["type"], stream.error
    assert not stream.done and stream.finish is None, "an error and a success"
    assert stream.ended_at - killed_at < ERROR_SECONDS, f"took {stream.ended_at - killed_at:.1f} s"


def kill_in_phase(c, rank, phase):
    others = [p.pid for r, p in enumerate(c.processes) if r != rank]
    streams = []
    if phase != "idle":
        streams = [c.stream(LONG) for _ in range(4)]
    if phase == "decode":
        for stream in streams:
            assert stream.first.wait(60), "no first token"
    elif phase == "prefill":
        time.sleep(0.03)
    killed_at = time.monotonic()
    c.kill(rank)
    for stream in streams:
        assert_failed(stream, killed_at)
    c.start(rank)
    check_serves(c)
    assert others == [p.pid for r, p in enumerate(c.processes) if r != rank and p.poll() is None]
    print(f"rank {rank} killed in {phase}: {len(streams)} typed errors, serves again")


def kill_head(c):
    streams = [c.stream(LONG) for _ in range(4)]
    for stream in streams:
        assert stream.first.wait(60)
    c.kill(0)
    for stream in streams:
        stream.join(ERROR_SECONDS)
        assert not stream.done and stream.finish is None
    c.start(0)
    check_serves(c)
    print("head killed: its streams ended, a new head is served")


def main(program):
    with chain(program, 3) as c:
        c.start_all()
        check_serves(c)
        for rank in (1, 2):
            for phase in ("idle", "prefill", "decode"):
                kill_in_phase(c, rank, phase)
        kill_head(c)
        assert c.stop_all() == [0, 0, 0]


main(sys.argv[1])
