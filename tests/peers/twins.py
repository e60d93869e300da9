#!/usr/bin/env python3
"""Holds `cascadia eval logits` against transformers, on twins of the golden models.

usage: twins.py CASCADIA [FOLDER...]

The folders are those that tools/reference/make_twins.py wrote; without any, some of each sort are made first,
by transformers and gguf-py in a cache outside the tree (or by what this Python can import already). With --quantization f32 every logit lies within 1e-3 of transformers'; 2 and 3 stages, 2 threads and every
instruction set give the same bits; keys and values in f16 stay near; a model in int8, int4 or int4-asym, with
every group size, gives the same bits on every instruction set and logits that still follow the float ones; and
its shard, read by docs/shard-format.md alone, is a model whose logits in transformers they follow closely."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TREE = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "cascadia-peers" / "twins"
PACKAGES = ["torch==2.15.0", "transformers==5.24.0", "safetensors==0.8.0", "numpy==2.4.6", "gguf==0.19.0"]
SORTS = (["0", "12"], ["0", "8", "--gguf"], ["0", "3", "--long"])


def install():
    """Runs this script again in a venv that has the packages; torch comes without CUDA where its own index is
    within reach."""
    probe = "import gguf, safetensors, torch, transformers"
    if subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL).returncode == 0:
        return
    python = CACHE / "venv" / "bin" / "python"
    if pathlib.Path(sys.prefix) == CACHE / "venv":
        sys.exit("torch or transformers is installed and cannot be imported")
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", CACHE / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--extra-index-url", "https://download.pytorch.org/whl/cpu",
                    *PACKAGES], check=True)
    os.execv(python, [str(python), *sys.argv])


if len(sys.argv) < 2:
    sys.exit(__doc__)
install()
import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from shard_reader import read_shard  # noqa: E402

transformers.logging.set_verbosity_error()
RUNGS = ("scalar", "avx2", "avxvnni", "avx512")
LEAST_CORRELATION = {"int8": 0.99, "int4": 0.6, "int4-asym": 0.6, "f16": 0.999, "bf16": 0.99}


class Program:
    def __init__(self, path, model, cache):
        self.path, self.model, self.cache = path, model, cache
        self.ids = model / "ids.json"

    def source(self):
        return self.model / "model.gguf" if (self.model / "model.gguf").exists() else self.model

    def logits(self, *options):
        """None when this CPU lacks the instruction set asked for."""
        out = pathlib.Path(self.cache) / "out.npy"
        words = [self.path, "eval", "logits", self.source(), "--ids", self.ids, "-o", out, "--all", *options]
        done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"XDG_CACHE_HOME": self.cache})
        if done.returncode and "--isa" in options and "has no instruction set" in done.stderr:
            return None
        if done.returncode:
            raise RuntimeError(f"{' '.join(options)}: ended {done.returncode}: {done.stderr.strip()[-400:]}")
        return np.load(out)


def check_same(program, first, form, n_layers):
    for options in (["--stages", "2"], ["--stages", "3"], ["--threads", "2"], *(["--isa", rung] for rung in RUNGS)):
        if options[0] == "--stages" and int(options[1]) > n_layers:
            continue
        again = program.logits(*form, *options)
        if again is not None and again.tobytes() != first.tobytes():
            raise RuntimeError(f"{' '.join([*form, *options])}: {np.abs(again - first).max():.1e} from the first run")


def check_shard(program, got, options):
    """What the activations' rounding leaves between the engine and the decoded weights is little."""
    shard = pathlib.Path(program.cache) / "shard"
    source = program.source()
    subprocess.run([program.path, "shard", "--model", source, "-o", shard, "--quiet", "--force", *options], check=True,
                   capture_output=True, env=os.environ | {"XDG_CACHE_HOME": program.cache})
    if "divisors" in (shard / "config.json").read_text():
        return  # a rotation that only this program's configurations say
    folder = shard if source.is_file() else source
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    decoded, stored = read_shard(shard), {}
    for file in folder.glob("*.safetensors"):
        stored |= safetensors.torch.load_file(file)
    for name, t in model.named_parameters():
        values, error = decoded.pop(name)
        t.data.copy_(torch.from_numpy(np.array(values if t.ndim == 1 else values[:t.shape[0]])))
        if name in stored and error is not None:
            exact = stored[name].double()
            measured = ((t.data.double() - exact).norm() / exact.norm()).item()
            if abs(measured - error) > 1e-5 + 1e-3 * error:
                raise RuntimeError(f"{name}: the manifest's error is {error}, and {measured:.6f} here")
    if decoded:
        raise RuntimeError(f"the shard has {', '.join(decoded)} too")
    ids = torch.tensor([json.loads(program.ids.read_text())])
    with torch.no_grad():
        meant = model.eval()(ids, use_cache=False).logits[0].numpy()
    follows = np.corrcoef(got.ravel(), meant.ravel())[0, 1]
    if follows < 0.99:
        raise RuntimeError(f"{' '.join(options)}: correlation {follows:.4f} with the decoded shard")


def check_quantised(program, expected, seed, n_layers):
    """Each seed tries a part of the formats, so that a run of many tries all."""
    forms = [(form, size) for form in ("int8", "int4", "int4-asym") for size in ("32", "64", "128")]
    forms += [("f16", "32"), ("bf16", "32")]
    worst = 1.0
    for form, size in (forms[(2 * seed + i) % len(forms)] for i in range(2)):
        options = ["--quantization", form, "--group-size", size]
        got = program.logits(*options)
        check_same(program, got, options, n_layers)
        check_shard(program, got, options)
        follows = np.corrcoef(got.ravel(), expected.ravel())[0, 1]
        worst = min(worst, follows)
        if not np.isfinite(got).all() or follows < LEAST_CORRELATION[form]:
            raise RuntimeError(f"{form} in groups of {size}: correlation {follows:.3f}")
    return worst


def check(path, folder):
    expected = np.load(folder / "logits.npy")
    note = (folder / "note.txt").read_text().strip()
    n_layers = int(note.split(" L ")[1].split()[0])
    seed = int(folder.name.split("-")[-1])
    is_gguf = (folder / "model.gguf").exists()
    with tempfile.TemporaryDirectory() as cache:
        program = Program(path, folder, cache)
        form = ["--quantization", "f32"]
        got = program.logits(*form)
        distance = np.abs(got - expected).max()
        if got.shape != expected.shape or not distance < 1e-3:
            raise RuntimeError(f"{got.shape} {distance:.1e} from transformers, first in row "
                               f"{int((np.abs(got - expected).max(1) > 1e-3).argmax())}")
        check_same(program, got, form, n_layers)
        half = np.abs(program.logits(*form, "--kv-type", "f16") - expected).max()
        if not half < 0.3:  # rounding keys and values in transformers moves lively models as far
            raise RuntimeError(f"--kv-type f16: {half:.1e} from transformers")
        if is_gguf:
            plain = program.logits()
            check_same(program, plain, [], n_layers)
            check_shard(program, plain, [])
            worst = np.corrcoef(plain.ravel(), expected.ravel())[0, 1]
            if worst < LEAST_CORRELATION["int4"]:  # what float matrices of the file become
                raise RuntimeError(f"as the file has it: correlation {worst:.3f}")
        else:
            worst = check_quantised(program, expected, seed, n_layers)
    print(f"ok   {folder.name:10} {distance:.1e} kv f16 {half:.1e} quantised {worst:.4f} {note}", flush=True)


def check_all(path, folders):
    n_bad = 0
    for folder in folders:
        try:
            check(path, folder)
        except RuntimeError as e:
            n_bad += 1
            print(f"BAD  {folder.name:10} {e} {(folder / 'note.txt').read_text().strip()}", flush=True)
    return n_bad == 0


def main():
    if len(sys.argv) > 2:
        return check_all(sys.argv[1], map(pathlib.Path, sys.argv[2:]))
    with tempfile.TemporaryDirectory() as made:
        for words in SORTS:
            subprocess.run([sys.executable, TREE / "tools" / "reference" / "make_twins.py", made, *words], check=True)
        return check_all(sys.argv[1], sorted(pathlib.Path(made).iterdir()))


sys.exit(0 if main() else 1)
