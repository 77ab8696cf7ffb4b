"""Draw the output of `calibrate` by source: the coverage of intervals and the order of arms.

    python -m training picture calibration.jsonl --out docs/pictures/calibration.svg

On the left is the share of outcomes inside the 50 % and the 90 % interval; dots on the two lines would be perfect. On the right
is the rank correlation of predictions with the results of arms, and that of their newest losses, which sequential halving uses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _ROW, _TOP = 720, 20, 56
_LEFT, _SPLIT, _RIGHT = 180, 450, 700  # right ends of the names and of the two panels
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 } .small { font-size: 11px; fill: #666 }
.grid { stroke: #ddd } .wish { stroke: #888; stroke-dasharray: 3 3 }
.half { fill: #0b7a75 } .ninety { fill: #b3541e } .last { fill: none; stroke: #666; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .small { fill: #aaa } .grid { stroke: #444 }
  .half { fill: #4fd1c5 } .ninety { fill: #f6ad55 } .last { stroke: #aaa }
}"""


def read(lines: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return means over trainings, by source."""
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    names = ("inside_50", "inside_90", "order", "order_by_last")
    sources = sorted({row["source"] for row in rows})
    return {
        source: {name: _mean([row[name] for row in rows if row["source"] == source]) for name in names}
        for source in sources
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def draw(found: Mapping[str, Mapping[str, float]]) -> str:
    """Return the picture as SVG."""
    height = _TOP + _ROW * len(found) + 34
    bottom = height - 26

    def share(value: float) -> float:
        return _LEFT + (_SPLIT - 30 - _LEFT) * value

    def order(value: float) -> float:
        return _SPLIT + (_RIGHT - _SPLIT) * max(0.0, value)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="Calibration of the learned surrogate by source"><style>{_STYLE}</style>',
        f'<text x="{_LEFT}" y="18">share of outcomes inside the interval</text>',
        f'<circle class="half" cx="{_LEFT + 5}" cy="33" r="4"/><text class="small" x="{_LEFT + 14}" y="37">50 %</text>',
        f'<circle class="ninety" cx="{_LEFT + 65}" cy="33" r="4"/><text class="small" x="{_LEFT + 74}" y="37">90 %</text>',
        f'<text x="{_SPLIT}" y="18">order of arms (rank correlation)</text>',
        f'<circle class="half" cx="{_SPLIT + 5}" cy="33" r="4"/><text class="small" x="{_SPLIT + 14}" y="37">forecast</text>',
        f'<circle class="last" cx="{_SPLIT + 85}" cy="33" r="4"/><text class="small" x="{_SPLIT + 94}" y="37">newest loss</text>',
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        for place in (share(tick), order(tick)):
            parts.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP - 8}" y2="{bottom}"/>')
            parts.append(f'<text class="small" x="{place:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for wish in (0.5, 0.9):
        parts.append(
            f'<line class="wish" x1="{share(wish):.1f}" x2="{share(wish):.1f}" y1="{_TOP - 8}" y2="{bottom}"/>'
        )
    for row, (source, numbers) in enumerate(found.items()):
        y = _TOP + _ROW * row + 6
        numbers_text = ", ".join(f"{name} {value:.2f}" for name, value in numbers.items())
        parts.append(f"<g><title>{escape(source)}: {escape(numbers_text)}</title>")
        parts.append(f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(source)}</text>')
        parts.append(f'<circle class="half" cx="{share(numbers["inside_50"]):.1f}" cy="{y}" r="4"/>')
        parts.append(f'<circle class="ninety" cx="{share(numbers["inside_90"]):.1f}" cy="{y}" r="4"/>')
        parts.append(f'<circle class="last" cx="{order(numbers["order_by_last"]):.1f}" cy="{y}" r="4"/>')
        parts.append(f'<circle class="half" cx="{order(numbers["order"]):.1f}" cy="{y}" r="3"/></g>')
    return "\n".join([*parts, "</svg>\n"])


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Return the same numbers as a table in Markdown."""
    head = ["| source | in 50 % | in 90 % | order | by newest loss |", "|---|---|---|---|---|"]
    rows = (
        " | ".join([source, *(f"{value:.2f}".replace("0.", ".", 1) for value in numbers.values())])
        for source, numbers in found.items()
    )
    return "\n".join([*head, *(f"| {row} |" for row in rows)])
