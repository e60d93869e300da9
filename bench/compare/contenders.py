"""Who is measured. A contender gives, for a model, the variants it can run it in, and for a variant and some figures
the commands that measure them, each with the figures that it measures, and the rates in its output. A peer's faster
variant counts, figure by figure."""
import json
import pathlib
import subprocess
import sys

import environment
import gguf
from environment import Absent
from record import build_of

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests" / "peers"))
import llama_peer  # noqa: E402


class Ours:
    name = "cascadia"

    def __init__(self, program, isa):
        self.program, self.isa = program, isa

    def version(self):
        done = subprocess.run([self.program, "--version"], capture_output=True, text=True)
        return f"{done.stdout.splitlines()[0]}, build {build_of(self.program)}"

    def variants(self, model, path):
        """The first use of a GGUF writes it as a shard; that is no part of a window."""
        words = [self.program, "bench", path, "--prefill", "1", "--depth", "0", "--decode", "1", "--rounds", "1"]
        subprocess.run(words, check=True, capture_output=True, text=True)
        return {"as we run it": path}

    def commands(self, path, figures, model, threads):
        return [(self._command(path, figure, model.steps, threads), [figure]) for figure in figures]

    def _command(self, path, figure, steps, threads):
        words = [self.program, "bench", path, "--threads", threads, "--rounds", 2]
        words += ["--isa", self.isa] if self.isa else []
        if figure.kind == "prefill":
            return words + ["--prefill", figure.rows, "--depth", 0, "--decode", 1]
        return words + ["--prefill", 1, "--depth", figure.rows, "--decode", steps]

    @staticmethod
    def rates(out, figures):
        """Of the second round: the first one warms up, as the peers do before their windows."""
        return [json.loads(out.strip().splitlines()[-1])[f"{figures[0].kind}_tokens_per_second"]]


class Limit:
    """No contender: the share of the machine's limit that we reach, by `cascadia bench model`, which reads as many
    bytes as a step does right before it, and runs the dot-product instruction on registers beside a prompt."""
    name = "limit"

    def __init__(self, ours):
        self.ours = ours

    @staticmethod
    def variants(model, path):
        return {"share": path}

    def commands(self, path, figures, model, threads):
        words = [self.ours.program, "bench", "model", path, "--json", "--threads", threads, "--batch", 1, "--rounds", 2]
        words += ["--isa", self.ours.isa] if self.ours.isa else []
        for option, kind, other in (("--prefill", "prefill", 16), ("--depth", "decode", 0)):
            rows = [f.rows for f in figures if f.kind == kind]
            words += [option, ",".join(map(str, rows or [other]))]
        return [(words, figures)]

    @staticmethod
    def rates(out, figures):
        rows = json.loads(out)["model"]["rows"]
        found = {(r["what"], r["rows"] if r["what"] == "prefill" else r["depth"]): r["share"] for r in rows}
        return [found[f.kind, f.rows] for f in figures]


class LlamaCpp:
    """llama-bench with the settings that are its fastest here: weights repacked at load, flash attention for prompts
    and not for single rows, f16 keys and values, memory mapped."""
    name = "llama.cpp"

    def __init__(self, isa):
        self.programs = llama_peer.build(isa, ["llama-bench", "llama-quantize"])

    @staticmethod
    def version():
        return f"llama-cpp-python {llama_peer.VERSION}, vendor/llama.cpp"

    def variants(self, model, path):
        """As it is, and requantised to Q4_0, the form that llama.cpp repacks, unless it is that already."""
        kinds = {kind for kind, shape, _ in gguf.File(path).tensors.values() if len(shape) > 1}
        if kinds == {"q4_0"}:
            return {"Q4_0": path}
        form = environment.CACHE / "peers" / "forms" / f"{model.name}.Q4_0.gguf"
        if not form.exists():
            form.parent.mkdir(parents=True, exist_ok=True)
            part = form.with_suffix(".part")
            subprocess.run([self.programs / "llama-quantize", "--allow-requantize", path, part, "Q4_0"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            part.replace(form)
        return {"as is": path, "Q4_0": form}

    def commands(self, path, figures, model, threads):
        return [(self._command(path, figure, model.steps, threads), [figure]) for figure in figures]

    def _command(self, path, figure, steps, threads):
        words = [self.programs / "llama-bench", "-m", path, "-t", threads, "-r", 1, "-o", "json"]
        if figure.kind == "prefill":
            return words + ["-p", figure.rows, "-n", 0, "-fa", 1]
        return words + ["-p", 0, "-n", steps, "-d", figure.rows, "-fa", 0]

    @staticmethod
    def rates(out, figures):
        return [json.loads(out)[0]["avg_ts"]]


class OpenVino:
    """GenAI on the CPU device with its default precisions: int8 keys and values, activations in groups of 32 at 8
    bits. Both of its attention back ends run; which one is faster depends on model and figure."""
    name = "OpenVINO"

    def __init__(self, isa):
        if isa:
            raise Absent("it cannot be held to an instruction set")
        environment.openvino_genai()

    @staticmethod
    def version():
        return f"openvino-genai {environment.OPENVINO_GENAI}"

    def variants(self, model, path):
        """SmolLM2's GGUF is read as it is; a synthetic model is turned into IR with the same 4-bit weights."""
        if model.shape:
            folder = path.with_suffix(".openvino")
            if not (folder / "openvino_model.xml").exists():
                print(f"converting {path.name} to OpenVINO IR, once", file=sys.stderr)
                subprocess.run([environment.PYTHON, HERE / "openvino_ir.py", path, folder], check=True)
            path = folder
        return {"paged": (path, "PA"), "stateful": (path, "SDPA")}

    @staticmethod
    def commands(variant, figures, model, threads):
        """One program for all figures, since loading takes longer than measuring."""
        path, backend = variant
        parts = [f"{f.rows}:0" if f.kind == "prefill" else f"{max(f.rows, 1)}:{model.steps}" for f in figures]
        return [([environment.PYTHON, HERE / "openvino_window.py", path, threads, model.warm, *parts,
                  f"ATTENTION_BACKEND={backend}"], figures)]

    @staticmethod
    def rates(out, figures):
        return [json.loads(line)[f.kind] for line, f in zip(out.strip().splitlines(), figures, strict=True)]


PEERS = {"llama.cpp": LlamaCpp, "openvino": OpenVino}


def windows(contender, variant, figures, model, threads, under=()):
    """Measures each figure once; yields it with its rate in tokens a second. `under` are words before each command."""
    for command, covered in contender.commands(variant, figures, model, threads):
        words = [str(w) for w in (*under, *command)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}\n{done.stderr.strip()[-2000:]}")
        yield from zip(covered, contender.rates(done.stdout, covered), strict=True)
