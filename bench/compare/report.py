"""Table and picture of a record."""
import statistics

import bars
from models import MODELS, figure
from record import LIMIT, OURS, best_variant, paired

COLOURS = {OURS: "#1b6ca8", "llama.cpp": "#d98324", "OpenVINO": "#7a9e3a"}


def rate_text(rate):
    return f"{rate:.0f}" if rate >= 99.5 else f"{rate:.1f}"


def rows(record):
    """One for each cell and peer that has been measured: a dict of what the table and the picture say."""
    for model, threads, key in sorted(record.cells(), key=lambda cell: (list(MODELS).index(cell[0]), cell[1])):
        found = record.rates(model, threads, key)
        if OURS not in found:
            continue
        ours = best_variant(found[OURS])[1]
        share = statistics.median(best_variant(found[LIMIT])[1].values()) if LIMIT in found else None
        for peer in found:
            if peer in (OURS, LIMIT):
                continue
            variant, theirs = best_variant(found[peer])
            ratio = paired(ours, theirs)
            if ratio:
                bar = bars.find(record.data["isa"], record.data["machine"]["flags"], peer, model, key, threads)
                yield {"model": model, "threads": threads, "figure": key, "peer": peer, "variant": variant,
                       "ours": statistics.median(ours.values()), "theirs": statistics.median(theirs.values()),
                       "ratio": ratio, "bar": bar, "share": share}


def verdict(row):
    if not row["bar"]:
        return ""
    must, aim = row["bar"]
    ratio = row["ratio"][0]
    return f"{must} / {aim}: " + ("aim" if ratio >= aim else "must" if ratio >= must else "**missed**")


def markdown(record):
    d, m = record.data, record.data["machine"]
    lines = [f"{m['cpu']} (family {m['family']}, model {m['model']}), {m['processors']} processors, "
             f"{', '.join(m['flags'])}; instruction set: {d['isa']}. Tokens a second, medians of the rounds; the "
             "ratio is the median of the paired ratios of each round, with their range.", ""]
    lines += [f"- {name}: {version}" for name, version in d["versions"].items()]
    lines += [f"- {name} is absent: {why}" for name, why in d["absent"].items()]
    heads = ["model", "figure", "threads", "ours", "of the limit", "peer", "its rate", "ratio", "range, rounds",
             "must / aim: reached"]
    lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for r in rows(record):
        median, low, high, n = r["ratio"]
        share = "" if r["share"] is None else f"{r['share']:.2f}"
        lines.append(f"| {MODELS[r['model']].title} | {figure(r['figure']).title} | {r['threads']} | "
                     f"{rate_text(r['ours'])} | {share} | {r['peer']}, {r['variant']} | {rate_text(r['theirs'])} | "
                     f"**{median:.2f}** | {low:.2f} to {high:.2f}, {n} | {verdict(r)} |")
    return "\n".join(lines) + "\n"


def _panel(axis, cell, models):
    """Bars of the contenders for each model, ours the unit of height; rates on the bars, ratios below."""
    contenders = [c for c in COLOURS if any(c in cell.get(m, {}) for m in models)]
    width = 0.8 / max(len(contenders), 1)
    for i, contender in enumerate(contenders):
        for at, model in enumerate(models):
            got = cell.get(model, {}).get(contender)
            if not got:
                continue
            x = at + (i - (len(contenders) - 1) / 2) * width
            height = got["rate"] / cell[model][OURS]["rate"]
            axis.bar(x, height, width * 0.92, color=COLOURS[contender], label=contender)
            text = rate_text(got["rate"]) + (f"\n{got['ratio']:.2f}x" if "ratio" in got else "")
            axis.text(x, height + 0.02, text, ha="center", va="bottom", fontsize=7.5)
    axis.set_xticks(range(len(models)), [MODELS[m].title.replace(" (", "\n(") for m in models], fontsize=8)
    axis.set_yticks([])
    axis.spines[["top", "right", "left"]].set_visible(False)


def picture(record, path):
    """One panel for each figure and number of threads."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    cells = {}
    for r in rows(record):
        cell = cells.setdefault((r["threads"], r["figure"]), {}).setdefault(r["model"], {})
        cell[OURS] = {"rate": r["ours"]}
        cell[r["peer"]] = {"rate": r["theirs"], "ratio": r["ratio"][0]}
    if not cells:
        return False
    threads = sorted({t for t, _ in cells})
    figures = sorted({f for _, f in cells}, key=lambda f: (figure(f).kind != "prefill", figure(f).rows))
    models = [m for m in MODELS if any(m in cell for cell in cells.values())]
    grid, axes = pyplot.subplots(len(threads), len(figures), squeeze=False,
                                 figsize=(1.2 + len(figures) * (1.0 + 1.05 * len(models)), 0.9 + 2.9 * len(threads)))
    for y, t in enumerate(threads):
        for x, key in enumerate(figures):
            cell = cells.get((t, key), {})
            here = [m for m in models if m in cell]
            _panel(axes[y][x], cell, here)
            tallest = max((c["rate"] / cell[m][OURS]["rate"] for m in here for c in cell[m].values()), default=1)
            axes[y][x].set_ylim(0, 1.3 * tallest)
            axes[y][x].set_title(f"{figure(key).title}, {t} thread{'s' if t > 1 else ''}", fontsize=10)
    handles, labels = {}, []
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    labels = list(handles)
    grid.legend([handles[name] for name in labels], labels, loc="lower center", ncols=len(labels), frameon=False)
    m = record.data["machine"]
    grid.suptitle(f"Tokens a second on {m['cpu']}, {m['processors']} processors, rung: {record.data['isa']}; "
                  "below a rate of a peer: how many times as fast we are", fontsize=10)
    grid.tight_layout(rect=(0, 0.05, 1, 0.98))
    grid.savefig(path, dpi=130)
    return True
