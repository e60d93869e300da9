#!/usr/bin/env python3
"""The same text on 1, 2 and 3 stages in separate processes over TCP, alone and eight at once, whatever
rank starts first; and a clean end on SIGTERM."""
import sys

from chain import chain

PROMPTS = [f"prompt {i}: " + "the quick brown fox \u00e9\u4e2d\U0001F600 " * (i * 3 + 1) for i in range(8)]
WISHES = {"max_tokens": 400}


def check_total(program, total, order, expected):
    with chain(program, total) as c:
        c.start_all(order)
        alone = [c.ask(p, **WISHES) for p in PROMPTS]
        together = [c.stream(p, **WISHES) for p in PROMPTS]
        texts = [s.join(120).text for s in together]
        assert texts == alone, "text depends on what runs beside it"
        assert alone == expected, (total, alone[0][:80], expected[0][:80])
        statuses = c.stop_all()
        assert statuses == [0] * total, statuses
    print(f"{total} stages, started {order}: {len(PROMPTS)} texts equal, alone and together")


def main(program):
    expected = [p.encode()[:400].decode(errors="ignore") for p in PROMPTS]  # the mock says it back
    check_total(program, 1, [0], expected)
    check_total(program, 2, [1, 0], expected)
    check_total(program, 2, [0, 1], expected)
    check_total(program, 3, [1, 2, 0], expected)


main(sys.argv[1])
