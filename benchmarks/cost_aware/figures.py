"""Draw one figure per experiment from its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.cost_aware.races import PRINTED_EI
from benchmarks.cost_aware.traces import LIKELIHOOD
from benchmarks.plotting import plt

Lines = list[dict[str, Any]]
LABELS = {"alpha=0": "EI", "alpha=1": "EI per cost (alpha=1)", "ei_cool": "EI-cool", "carbo": "CArBO"}
RULES = ("alpha=0", "alpha=0.1", "alpha=0.2", "alpha=1", "cei=0.2", "cei=0.3", "cei=0.5", "ei_cool", "carbo", "random")
CEI_METHODS = ("cei=0.1", "cei=0.2", "cei=0.3", "cei=0.5")
MARKS = "osD^vPX*<>"


COST_MODELS = ("lv1*", "lv3*", "lv3* at once", "auto*", "gp", "lv3", "transfer")


def cost_model_error(lines: Lines, path: Path) -> None:
    curves = [line for line in lines if "rmse_log_cost" in line]
    folders = list(dict.fromkeys(line["folder"] for line in curves))
    figure, panels = plt.subplots(
        1, len(folders), figsize=(1 + 4 * len(folders), 4.5), layout="constrained", squeeze=False
    )
    for axes, folder in zip(panels[0], folders, strict=True):
        inside = [line for line in curves if line["folder"] == folder]
        for mark, name in zip(MARKS, COST_MODELS, strict=False):
            part = sorted((line for line in inside if line["model"] == name), key=lambda one: int(one["observations"]))
            x = [line["observations"] for line in part]
            axes.plot(x, [line["rmse_log_cost"] for line in part], mark + "-", ms=4, lw=1, label=name)
            low, high = ([line[f"rmse_log_cost_{end}"] for line in part] for end in ("low", "high"))
            axes.fill_between(x, low, high, alpha=0.1)
        ticks = sorted({line["observations"] for line in inside})
        axes.set(xscale="log", yscale="log", xlabel="observed trials", ylabel="RMSE of log cost", title=folder)
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.minorticks_off()
        axes.set_yticks([0.3, 0.5, 1.0, 1.5], ["0.3", "0.5", "1", "1.5"])
    panels[0][0].legend(fontsize=8, ncols=2, title="cost model; *: features named")
    _save(figure, list(panels[0]), path)


def transfer_models(lines: Lines, path: Path) -> None:
    kinds = list(dict.fromkeys(line["task"] for line in lines))
    figure, panels = plt.subplots(1, len(kinds), figsize=(6 * len(kinds), 4), layout="constrained", squeeze=False)
    for axes, kind in zip(panels[0], kinds, strict=True):
        part = [line for line in lines if line["task"] == kind]
        names = [line["model"] for line in part]
        axes.errorbar(
            range(len(part)), [line["rmse_log_cost"] for line in part], yerr=_bars(part, "rmse_log_cost"), fmt="o", ms=4
        )
        axes.set_xticks(range(len(part)), names, rotation=40, ha="right", fontsize=7)
        axes.set(ylabel="RMSE of log cost", title=kind, ylim=(0, None))
    _save(figure, list(panels[0]), path)


def tradeoff(lines: Lines, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for family, mark, label, above in (
        ("alpha", "o-", "EI / cost^alpha", True),
        ("cei", "s-", "contextual EI, slack", False),
        (LIKELIHOOD, "^-", "EI / cost^alpha against EI, both fitted as printed", True),
    ):
        part = [line for line in lines if _family(line["method"]) == family and line["method"] != PRINTED_EI]
        if not part:
            continue
        x, y = [line["time_relative_to_ei"] for line in part], [line["loss_above_ei"] for line in part]
        bars = axes.errorbar(
            x,
            y,
            yerr=_bars(part, "loss_above_ei"),
            xerr=_bars(part, "time_relative_to_ei"),
            fmt=mark,
            label=label,
            lw=1,
            ms=4,
            elinewidth=0.6,
        )
        for a, b, line in zip(x, y, part, strict=True):
            number = line["method"].removesuffix(LIKELIHOOD).partition("=")[2]
            offset = (4, 6) if above else (-4, -12)
            colour = bars.lines[0].get_color()
            axes.annotate(number, (a, b), fontsize=8, xytext=offset, textcoords="offset points", color=colour)
    axes.axhline(0.0, color="grey", lw=0.6)
    axes.set(xlabel="total time of N trials, relative to EI", ylabel="loss above EI's (from best to median row = 1)")
    axes.legend(fontsize=8)
    _save(figure, [axes], path)


def time_allocation(lines: Lines, path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    ranks = [line for line in lines if "rank" in line]
    multiples = sorted({line["multiple"] for line in ranks})
    shown = [name for name in RULES if any(line["method"] == name for line in ranks)]
    for mark, name in zip(MARKS, shown, strict=False):
        part = sorted((line for line in ranks if line["method"] == name), key=lambda line: float(line["multiple"]))
        heights = [line["rank"] for line in part]
        style = "-" if name.startswith("cei") else "--"
        left.plot(multiples, heights, mark + style, ms=4, lw=1, label=LABELS.get(name, name))
    left.set(xscale="log", xlabel="budget, multiples of the unit budget", ylabel="average rank (1 is best)")
    pairs = [line for line in lines if "against" in line]
    slacks = [name for name in CEI_METHODS if any(line["method"] == name for line in pairs)]
    names = [(name, against) for against in ("alpha=0", "alpha=1") for name in slacks]
    for position, (name, against) in enumerate(names):
        part = [line for line in pairs if line["method"] == name and line["against"] == against]
        shift = 1.05 ** (position - 0.5 * (len(names) - 1))
        right.errorbar(
            [line["multiple"] * shift for line in part],
            [line["rank_less"] for line in part],
            yerr=_bars(part, "rank_less"),
            fmt="osD^"[CEI_METHODS.index(name)],
            ms=4,
            lw=1,
            color="C0" if against == "alpha=0" else "C1",
            mfc="white" if name in (CEI_METHODS[0], CEI_METHODS[-1]) else None,
            label=f"{name} minus {LABELS[against].partition(' (')[0]}",
        )
    right.axhline(0.0, color="grey", lw=0.6)
    right.set(
        xscale="log", xlabel="budget, multiples of the unit budget", ylabel="difference of ranks (below 0: CEI better)"
    )
    for axes in (left, right):
        axes.set_xticks(multiples, [f"{m:g}" for m in multiples])
        axes.minorticks_off()
        axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    _save(figure, [left, right], path)


def front(lines: Lines, path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for line in lines:
        if "front_ei" in line and line["trials"] in (6, 10, 20, 40, 100):
            left.plot(line["front_cost_s"], line["front_ei"], ".-", lw=1, label=f"{line['trials']} trials")
    left.set(xscale="log", yscale="log", xlabel="predicted cost (s)", ylabel="EI (unit of the loss)")
    left.set_title("the front in one run", fontsize=9)
    left.legend(fontsize=8, loc="lower right")
    stay = [line for line in lines if "share_staying" in line]
    x = [f"{line['from']} to {line['to']}" for line in stay]
    right.errorbar(x, [line["share_staying"] for line in stay], yerr=_bars(stay, "share_staying"), fmt="o", capsize=3)
    right.set(xlabel="trials, from … to …", ylabel="share of the earlier front still on it", ylim=(0, 1))
    right.tick_params(axis="x", labelsize=7)
    right.set_title("mean over all runs", fontsize=9)
    _save(figure, [left, right], path)


def cost_model_effect(lines: Lines, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    rules = list(dict.fromkeys(line["rule"] for line in lines))
    for number, rule in enumerate(rules):
        shift = 0.2 * (number - 0.5 * (len(rules) - 1)) / max(1, len(rules) - 1)
        part = [line for line in lines if line["rule"] == rule]
        x = [position + shift for position in range(len(part))]
        for one, key in zip(axes, ("time_relative_to_lv3", "loss_above_lv3"), strict=True):
            label = LABELS.get(rule, rule)
            one.errorbar(x, [line[key] for line in part], yerr=_bars(part, key), fmt="o", ms=4, capsize=2, label=label)
            one.set_xticks(range(len(part)), [line["model"] for line in part])
    axes[0].axhline(1.0, color="grey", lw=0.6)
    axes[1].axhline(0.0, color="grey", lw=0.6)
    axes[0].set(xlabel="cost model", ylabel="total time of N trials, relative to LV-3")
    axes[1].set(xlabel="cost model", ylabel="loss above LV-3's (from best to median row = 1)")
    axes[0].legend(fontsize=8)
    _save(figure, list(axes), path)


def _family(method: str) -> str:
    return LIKELIHOOD if method.endswith(LIKELIHOOD) else method.partition("=")[0]


def _bars(lines: Lines, key: str) -> list[list[float]]:
    """Return the distances of the interval below and above the mean."""
    return [
        [line[key] - line[f"{key}_low"] for line in lines],
        [line[f"{key}_high"] - line[key] for line in lines],
    ]


def _save(figure: Any, axes: list[Any], path: Path) -> None:
    for one in axes:
        one.grid(alpha=0.2)
    figure.savefig(path, dpi=110)
    plt.close(figure)
