"""Replays transcripts against `cascadia run mock-model --engine mock`. Standard library only.

    # a sentence                  what follows is one exchange
    > POST /v1/completions        method and path
    > {"prompt": "x"}             the body, if any; lines are joined
    < 200                         status
    < Allow: POST                 a field that must be there, any number
    <                             then, after an empty line, the body; its lines are compared one by one
    < {"id": "cmpl-*", ...        * stands for anything

A transcript whose answer is another in any line fails, with both shown. usage: replay_transcripts.py PROGRAM FILE..."""
import http.client
import pathlib
import re
import signal
import subprocess
import sys


def exchanges(text):
    """(title, request lines, answer lines) of each exchange."""
    for block in re.split(r"^# ", text, flags=re.M)[1:]:
        title, *lines = block.rstrip("\n").split("\n")
        yield (title, [line[2:] for line in lines if line.startswith(">")],
               [line[2:] for line in lines if line.startswith("<")])


def matches(expected, actual):
    return re.fullmatch(".*".join(re.escape(part) for part in expected.split("*")), actual) is not None


def compare(expected, answer, body):
    """What is wrong, or None."""
    end = expected.index("") if "" in expected else len(expected)
    if str(answer.status) != expected[0]:
        return f"status {answer.status}, not {expected[0]}: {body}"
    for field in expected[1:end]:
        name, value = field.split(": ", 1)
        if not matches(value, answer.getheader(name) or ""):
            return f"{name} is {answer.getheader(name)!r}, not {value!r}"
    wanted, lines = expected[end + 1:], body.rstrip("\n").split("\n")
    for want, line in zip(wanted, lines):
        if not matches(want, line):
            return f"\n    {line}\n  is not\n    {want}"
    if len(wanted) > len(lines) or (wanted and len(wanted) != len(lines)):
        return f"{len(lines)} lines, not {len(wanted)}:\n{body}"
    return None


def replay(port, path):
    failed = 0
    for title, request, expected in exchanges(path.read_text()):
        method, target = request[0].split(" ", 1)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(method, target, "\n".join(request[1:]).encode() or None)
        answer = connection.getresponse()
        wrong = compare(expected, answer, answer.read().decode())
        connection.close()
        print(f"{'FAILED' if wrong else 'ok':8}{path.name}: {title}{': ' + wrong if wrong else ''}")
        failed += bool(wrong)
    return failed


def main():
    server = subprocess.Popen([sys.argv[1], "run", "mock-model", "--engine", "mock", "--port", "0", "--ctx-size", "256"],
                              stdout=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)", server.stdout.readline()).group(1))
        failed = sum(replay(port, pathlib.Path(name)) for name in sys.argv[2:])
        server.send_signal(signal.SIGTERM)
        status = server.wait(30)
    finally:
        server.kill()
    print(f"{failed} failed; the server ended with status {status}")
    return 1 if failed or status else 0


if __name__ == "__main__":
    sys.exit(main())
