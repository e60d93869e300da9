"""The Python environment of the comparison: a venv in the cache with NumPy, matplotlib and OpenVINO GenAI. The command
starts again inside it, so that the system's Python needs nothing."""
import os
import pathlib
import subprocess
import sys

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cascadia"
OPENVINO_GENAI = "2026.4.1.0"
NEEDED = ["numpy==2.4.6", "matplotlib==3.11.2"]
HOME = CACHE / "peers" / f"compare-{OPENVINO_GENAI}"
PYTHON = HOME / "bin" / "python"


class Absent(Exception):
    """A peer that cannot be had here, and why: it is left out and said so, the rest goes on."""


def _pip(*packages):
    return subprocess.run([PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages],
                          capture_output=True, text=True)


def enter():
    """Comes back inside the venv only; makes it when it is not there."""
    if pathlib.Path(sys.prefix) == HOME:
        return
    if subprocess.run([PYTHON, "-c", "import numpy, matplotlib"], capture_output=True).returncode if PYTHON.exists() \
            else True:
        print(f"preparing {HOME}, once", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        done = _pip(*NEEDED)
        if done.returncode:
            sys.exit(f"compare: NumPy and matplotlib cannot be installed:\n{done.stderr.strip()}")
    os.execv(PYTHON, [str(PYTHON), *sys.orig_argv[1:]])


def openvino_genai():
    """Installs OpenVINO GenAI unless it is there."""
    if subprocess.run([PYTHON, "-c", "import openvino_genai"], capture_output=True).returncode == 0:
        return
    print("installing OpenVINO GenAI, once", file=sys.stderr)
    done = _pip(f"openvino-genai=={OPENVINO_GENAI}")
    if done.returncode:
        raise Absent(f"openvino-genai {OPENVINO_GENAI} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
