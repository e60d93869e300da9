"""llama.cpp as a peer: built once from the PyPI source package llama-cpp-python into a cache outside the tree, run
side by side, never copied from. Standard library only."""
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tarfile
import time

VERSION = "0.3.36"
TARGETS = ["llama-server", "llama-bench", "llama-perplexity"]
ISA = {
    None: ["-DGGML_NATIVE=ON"],
    "avx2": ["-DGGML_NATIVE=OFF"] + [f"-DGGML_{flag}=ON" for flag in ("SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2")],
}
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cascadia"
MODEL = CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def run(*words, **more):
    return subprocess.run([str(w) for w in words], check=True, **more)


def build(isa=None, targets=TARGETS):
    """The folder with the peer's programs, built for this CPU or for an instruction set; builds them if they are not
    there (some minutes)."""
    home = CACHE / "peers" / f"llama-cpp-python-{VERSION}"
    folder = home / ("build" if isa is None else f"build-{isa}")
    programs = folder / "bin"
    if all((programs / name).exists() for name in targets):
        return programs
    home.mkdir(parents=True, exist_ok=True)
    print("building llama.cpp, once", file=sys.stderr)
    if not any(home.glob("llama_cpp_python-*/vendor")):
        run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", "-d", home,
            f"llama-cpp-python=={VERSION}")
        with tarfile.open(next(home.glob("*.tar.gz"))) as archive:
            archive.extractall(home)
    source = next(home.glob("llama_cpp_python-*/vendor")) / "llama.cpp"
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *ISA[isa], "-DLLAMA_CURL=OFF",
        "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DGGML_RPC=ON", stdout=subprocess.DEVNULL)
    run("cmake", "--build", folder, "--target", *targets, stdout=subprocess.DEVNULL)
    return programs


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """An HTTP server that we start and end; ready when /health says 200."""

    def __init__(self, words, port, log):
        self.port = port
        self.process = subprocess.Popen([str(w) for w in words], stdout=log, stderr=log)
        until = time.monotonic() + 120
        while self.get("/health") != 200:
            if time.monotonic() > until or self.process.poll() is not None:
                self.stop()
                raise RuntimeError(f"{words[0]} did not become ready")
            time.sleep(0.1)

    def get(self, path):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return None

    def post(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {answer}")
        return answer

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)


def final_perplexity(text):
    return float(re.findall(r"PPL = ([0-9.]+)", text)[-1])
