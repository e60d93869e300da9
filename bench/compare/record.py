"""The raw data of a comparison: a JSON file of windows, which later calls may continue, and the statistics over it."""
import hashlib
import json
import pathlib
import platform
import statistics

OURS, LIMIT = "cascadia", "limit"


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text().splitlines()

    def value(key):
        return next((line.split(": ", 1)[1] for line in info if line.startswith(key + "\t")), "unknown")

    known = {"avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8"}
    return {"cpu": value("model name"), "family": value("cpu family"), "model": value("model"),
            "processors": sum(line.startswith("processor\t") for line in info),
            "flags": sorted(set(value("flags").split()) & known), "system": platform.platform()}


def build_of(program):
    return hashlib.sha256(pathlib.Path(program).read_bytes()).hexdigest()[:12]


class Record:
    """Windows in the order they were measured. A file belongs to one machine, one build of ours and one instruction
    set: ratios of different ones do not mix."""

    def __init__(self, path, program=None, isa=None):
        self.path = path
        self.data = {"windows": [], "versions": {}, "absent": {}}
        if path.exists():
            self.data = json.loads(path.read_text())
        if program is None:
            return
        identity = {"machine": machine(), "build": build_of(program), "isa": isa or "best"}
        for key, mine in identity.items():
            if self.data.setdefault(key, mine) != mine:
                raise ValueError(f"{path} was measured with another {key} ({self.data[key]}, this is {mine}): "
                                 "give another --out, or --fresh to start it again")

    @property
    def windows(self):
        return self.data["windows"]

    def next_round(self, model, threads):
        return 1 + max((w["round"] for w in self.windows if w["model"] == model and w["threads"] == threads), default=0)

    def add(self, **window):
        self.windows.append(window)
        self.save()

    def save(self):
        part = self.path.with_suffix(".part")
        head = {k: v for k, v in self.data.items() if k != "windows"}
        lines = ",\n".join("  " + json.dumps(w) for w in self.windows)  # a line each: a change is easy to read
        part.write_text(json.dumps(head, indent=1)[:-2] + ',\n "windows": [\n' + lines + "\n ]\n}\n")
        part.replace(self.path)

    def rates(self, model, threads, figure):
        """{contender: {variant: {round: rate}}}"""
        found = {}
        for w in self.windows:
            if (w["model"], w["threads"], w["figure"]) == (model, threads, figure):
                found.setdefault(w["contender"], {}).setdefault(w["variant"], {})[w["round"]] = w["rate"]
        return found

    def cells(self):
        """(model, threads, figure) of all windows, as they first appear."""
        return list(dict.fromkeys((w["model"], w["threads"], w["figure"]) for w in self.windows))


def best_variant(variants):
    """(name, {round: rate}) of the one with the highest median."""
    return max(variants.items(), key=lambda item: statistics.median(item[1].values()))


def paired(ours, theirs):
    """Median, least and greatest of ours / theirs over the rounds that have both, and how many; None without any."""
    ratios = [ours[r] / theirs[r] for r in sorted(ours.keys() & theirs.keys())]
    return (statistics.median(ratios), min(ratios), max(ratios), len(ratios)) if ratios else None
