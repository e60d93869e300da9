"""What is asked of a ratio to a peer: (must, aim), by instruction set, peer, model, figure and threads; the first
pattern that fits counts, `None` fits all. Figures without a bar are reported without one."""

_VNNI = [
    ("llama.cpp", "135m", "decode@512", None, 1.8, 2.4),
    ("llama.cpp", "1b", "decode@0", None, 1.4, 1.7),
    ("llama.cpp", "1b", "decode@512", None, 1.4, 1.7),
    ("llama.cpp", "8b", "decode@0", None, 1.3, 1.6),
    ("llama.cpp", None, "prefill@512", None, 2.2, 2.9),
    ("OpenVINO", None, "decode@0", None, 1.3, 2.0),
    ("OpenVINO", None, "decode@512", None, 1.3, 2.0),
    ("OpenVINO", None, "prefill@512", None, 1.1, 1.5),
]
_AVX2 = [
    ("llama.cpp", "135m", "decode@0", 1, 1.55, 1.9),  # SmolLM2's file has minimums (q4_1)
    ("llama.cpp", "135m", "decode@0", 2, 1.4, 1.75),
    ("llama.cpp", "135m-q4_0", "decode@0", 1, 1.75, 2.1),
    ("llama.cpp", "135m-q4_0", "decode@0", 2, 1.5, 1.9),
    ("llama.cpp", "135m-q4_0", "decode@512", 1, 2.4, 3.0),
    ("llama.cpp", "135m-q4_0", "decode@512", 2, 2.1, 2.8),
    ("llama.cpp", "135m", "prefill@512", None, 1.65, 1.95),
    ("llama.cpp", "135m-q4_0", "prefill@512", None, 1.8, 2.15),
    ("llama.cpp", "1b", "decode@0", None, 1.5, 1.9),
    ("llama.cpp", "8b", "decode@0", None, 1.5, 1.9),
    ("llama.cpp", "1b", "prefill@512", None, 2.0, 2.4),
    ("llama.cpp", "8b", "prefill@512", None, 2.0, 2.4),
]


def find(isa, flags, peer, model, figure, threads):
    """(must, aim), or None."""
    rows = _VNNI if isa == "best" and "avx512_vnni" in flags else _AVX2 if isa in ("best", "avx2") else []
    for row in rows:
        if all(want in (None, got) for want, got in zip(row[:4], (peer, model, figure, threads))):
            return row[4:]
    return None
