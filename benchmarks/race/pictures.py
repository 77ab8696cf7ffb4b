"""Pictures of the race as SVG text, drawn for a phone's width; colours come from the page, light or dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH = 480
_LABEL = 11  # height of a line of text


def number(value: float | None, digits: int = 3) -> str:
    """`.052`, as tables of regrets are usually written."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def regret_against_money(
    rows: Sequence[Mapping[str, Any]],
    budgets: Sequence[float],
    kinds: Mapping[str, str],
    unit: str,
    labels: Mapping[str, str] | None = None,
) -> str:
    """One line a method; `kinds` says of each shown method whether it is the reference, one of ours, or a peer."""
    shown = [row for row in rows if row["method"] in kinds and row["budget"] in budgets and row["mean"] > 0]
    if not shown:
        return ""
    left, right, top, bottom, height = 44, 160, 12, 34, 380
    lowest = max(1e-4, min(row["mean"] for row in shown))
    y_low, y_high = math.log10(lowest) - 0.1, math.log10(max(row["mean"] for row in shown)) + 0.1
    x_low, x_high = math.log(min(budgets)), math.log(max(budgets))

    def x(budget: float) -> float:
        return left + (WIDTH - left - right) * (
            (math.log(budget) - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        )

    def y(regret: float) -> float:
        return top + (height - top - bottom) * (y_high - math.log10(max(regret, lowest))) / (y_high - y_low)

    parts = [_axes(left, right, top, bottom, height)]
    for tick in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0):
        if y_low <= math.log10(tick) <= y_high:
            parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
            parts.append(f'<text x="{left - 5}" y="{y(tick) + 3.5:.1f}" text-anchor="end">{number(tick)}</text>')
    for budget in budgets:
        parts.append(f'<text x="{x(budget):.1f}" y="{height - bottom + 14}" text-anchor="middle">{budget:g}</text>')
    axis = "full curves of money" if unit == "curves" else "money, in the time of a full curve"
    parts.append(f'<text x="{(left + WIDTH - right) / 2:.0f}" y="{height - 5}" text-anchor="middle">{axis}</text>')
    parts.append(f'<text x="{WIDTH - right}" y="{top + 4}" text-anchor="end">mean regret: low is good</text>')
    lines = {name: [row for row in shown if row["method"] == name] for name in kinds}
    ends = {name: y(own[-1]["mean"]) for name, own in lines.items() if own}
    for name, place in _spread(ends, top + 4, height - 4).items():
        own = lines[name]
        points = " ".join(f"{x(row['budget']):.1f},{y(row['mean']):.1f}" for row in own)
        dots = "".join(f'<circle cx="{x(r["budget"]):.1f}" cy="{y(r["mean"]):.1f}" r="2"/>' for r in own)
        end = x(own[-1]["budget"])
        parts.append(
            f'<g class="{kinds[name]}"><title>{escape(name)}</title><polyline points="{points}"/>{dots}'
            f'<path class="lead" d="M{end + 3:.1f} {ends[name]:.1f} L{WIDTH - right + 12} {place:.1f}"/>'
            f'<text x="{WIDTH - right + 15}" y="{place + 3.5:.1f}">{escape((labels or {}).get(name, name))}</text></g>'
        )
    return _svg(height, "mean normalised regret against money", parts)


def critical_difference(
    average: Mapping[str, float], critical: float, groups: Sequence[tuple[str, str]], kinds: Mapping[str, str]
) -> str:
    """Demšar's picture turned on its side: one line a method, bars join those that are not told apart."""
    if len(average) < 2:
        return ""
    names = list(average)
    left, right, top = 168, 16, 34
    height = top + 17 * len(names) + 10
    low, high = 1.0, max(2.0, float(math.ceil(max(average.values()))))

    def x(rank: float) -> float:
        return left + (WIDTH - left - right) * (rank - low) / (high - low)

    def y(name: str) -> float:
        return top + 17 * names.index(name) + 8

    step = max(1, math.ceil((high - low) / 10))
    parts = [
        f'<text x="{x(tick):.1f}" y="{top - 6}" text-anchor="middle">{tick:g}</text>'
        f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{height - 6}"/>'
        for tick in range(int(low), int(high) + 1, step)
    ]
    reach = min(x(low + critical), WIDTH - right)
    parts.append(f'<path class="bar" d="M{x(low):.1f} 8 L{reach:.1f} 8"/>')
    parts.append(f'<text x="{left - 8}" y="11.5" text-anchor="end">critical difference {critical:.2f}</text>')
    for name in names:
        parts.append(
            f'<g class="{kinds.get(name, "peer")}"><text x="{left - 8}" y="{y(name) + 3.5:.1f}" text-anchor="end">{escape(name)}'
            f'</text><circle cx="{x(average[name]):.1f}" cy="{y(name):.1f}" r="4"><title>{average[name]:.2f}</title></circle></g>'
        )
    for number_of, (first, last) in enumerate(groups):
        # Each bar stands at the mean rank of its first method, a little apart from the others.
        at = x(average[first]) - 7 - 3 * (number_of % 3)
        parts.append(f'<path class="bar" d="M{at:.1f} {y(first) - 4:.1f} L{at:.1f} {y(last) + 4:.1f}"/>')
    return _svg(height, "average ranks; bars join methods that are not told apart", parts)


def difference_dots(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> str:
    """Paired differences at one budget: left of the middle line the reference is ahead."""
    if not rows:
        return ""
    ordered = sorted(rows, key=lambda row: row["difference"], reverse=True)
    left, right, top = 168, 16, 22
    height = top + 17 * len(ordered) + 12
    bound = max(max(abs(row["low"]), abs(row["high"])) for row in ordered) or 1.0

    def x(value: float) -> float:
        root = math.copysign(math.sqrt(abs(value) / bound), value)  # small differences stay visible
        return left + (WIDTH - left - right) * (root + 1.0) / 2.0

    parts = [
        f'<line class="axis" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{top - 4}" y2="{height - 6}"/>',
        f'<text x="{x(0) - 8:.1f}" y="12" text-anchor="end">reference ahead</text>',
        f'<text x="{x(0) + 8:.1f}" y="12">behind</text>',
    ]
    for i, row in enumerate(ordered):
        at = top + 17 * i + 8
        tip = f"{number(row['difference'])} [{number(row['low'])}, {number(row['high'])}]"
        parts.append(
            f'<g class="{kinds.get(row["method"], "peer")}"><title>{tip}</title>'
            f'<text x="{left - 8}" y="{at + 3.5}" text-anchor="end">{escape(row["method"])}</text>'
            f'<path d="M{x(row["low"]):.1f} {at} L{x(row["high"]):.1f} {at}"/>'
            f'<circle cx="{x(row["difference"]):.1f}" cy="{at}" r="3.5"/></g>'
        )
    return _svg(height, "paired differences to the reference, with 95 % intervals", parts)


def _axes(left: int, right: int, top: int, bottom: int, height: int) -> str:
    return f'<path class="axis" d="M{left} {top} L{left} {height - bottom} L{WIDTH - right} {height - bottom}"/>'


def _spread(wanted: Mapping[str, float], low: float, high: float) -> dict[str, float]:
    """Places for labels near where they are wanted, a line of text apart."""
    names = sorted(wanted, key=lambda name: wanted[name])
    gap = min(_LABEL, (high - low) / max(1, len(names) - 1))
    places: dict[str, float] = {}
    for name in names:
        places[name] = max(wanted[name], low if not places else max(places.values()) + gap)
    for i, name in enumerate(reversed(names)):
        places[name] = min(places[name], high - i * gap)
    return places


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
