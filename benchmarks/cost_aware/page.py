"""Format the results of (b) and (c) as the tables of README.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.cost_aware.traces import LIKELIHOOD
from benchmarks.markdown import table

Lines = Sequence[Mapping[str, Any]]
NAMES = {"alpha=0": "EI", "alpha=1": "EI per cost"}


def tradeoff(lines: Lines) -> str:
    """Return the table of (b), without EI, with which the others are compared."""
    rows = [
        [
            name(line["method"]),
            span(line, "time_relative_to_ei", "{:.2f}"),
            f"{line['time_median']:.2f}",
            f"{line['time_in_all']:.2f}",
            span(line, "loss_above_ei", "{:+.3f}"),
            span(line, "accuracy_lost", "{:+.1%}"),
        ]
        for line in lines
        if line["method"] != "alpha=0"
    ]
    return table(["method", "time", "median", "in all", "loss above EI", "accuracy lost"], rows)


def time_allocation(lines: Lines) -> str:
    """Return the tables of (c): ranks, and their differences from EI and from EI per cost."""
    multiples = sorted({line["multiple"] for line in lines})
    ranked = [line for line in lines if "rank" in line]
    methods = list(dict.fromkeys(line["method"] for line in ranked))
    at = {(line["method"], line.get("against"), line["multiple"]): line for line in lines}
    heads = [f"at {multiple:g}" for multiple in multiples]
    ranks = [[name(method), *(span(at[method, None, m], "rank", "{:.2f}") for m in multiples)] for method in methods]
    pairs = list(dict.fromkeys((line["method"], line["against"]) for line in lines if "against" in line))
    differences = [
        [f"{name(method)} minus {name(against)}"]
        + [span(at[method, against, m], "rank_less", "{:+.2f}") for m in multiples]
        + [span(at[method, against, m], "regret_less", "{:+.3f}") for m in multiples]
        for method, against in pairs
    ]
    paired = ["", *(f"rank {head}" for head in heads), *(f"regret {head}" for head in heads)]
    return f"{table(['method', *heads], ranks)}\n\n{table(paired, differences)}"


TABLES: dict[str, Callable[[Lines], str]] = {"tradeoff": tradeoff, "time_allocation": time_allocation}


def name(method: str) -> str:
    plain = method.removesuffix(LIKELIHOOD)
    if plain == method:
        return NAMES.get(method, method)
    return "EI as printed, against our EI" if plain == "alpha=0" else f"{plain} as printed, against EI as printed"


def span(line: Mapping[str, Any], key: str, form: str) -> str:
    """Format a mean and its interval, or an empty text if it was not measured."""
    if key not in line:
        return ""
    separator = " to " if "+" in form else "–"
    mean, low, high = (form.format(line[f"{key}{end}"]).replace("%", " %") for end in ("", "_low", "_high"))
    return f"{mean} ({low}{separator}{high})"
