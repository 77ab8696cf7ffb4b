"""Who worked on what, when: one lane a worker, one bar an order."""

from __future__ import annotations

from shoestring.core.money import show_seconds
from shoestring.reports.pictures.figure import LEFT, MOST_TABLE_ROWS, RIGHT, Figure, why_tip
from shoestring.reports.pictures.story import Segment, Story
from shoestring.reports.pictures.svg import PlotAxis, Sheet

_LANE, _GAP = 22.0, 6.0
_MOST_LANES = 64


def draw_timeline(story: Story) -> Figure | None:
    done = [segment for segment in story.segments if segment.ended_s > segment.began_s]
    if not done:
        return None
    lanes = _lanes(done)
    names = sorted(set(lanes.values()), key=lambda name: (len(name), name))[:_MOST_LANES]
    end = max(segment.ended_s for segment in done)
    sheet = Sheet(height=len(names) * (_LANE + _GAP) + 44, label="orders by worker and time")
    x = PlotAxis(0.0, end, LEFT, sheet.width - RIGHT)
    bottom = len(names) * (_LANE + _GAP) + 6
    for tick in x.ticks():
        sheet.segment((x(tick), 2), (x(tick), bottom), "grid")
        sheet.text(x(tick), bottom + 15, show_seconds(tick), anchor="middle")
    for number, name in enumerate(names):
        sheet.text(LEFT - 6, number * (_LANE + _GAP) + 20, name, anchor="end")
    busy = 0.0
    best = story.ledger.best
    for segment in done:
        lane = lanes[id(segment)]
        busy += segment.ended_s - segment.began_s
        if lane not in names:
            continue
        top = names.index(lane) * (_LANE + _GAP) + 4
        style = "best" if best is not None and segment.order.trial == best.number else segment.status
        left = x(segment.began_s)
        sheet.box(left, top, max(0.8, x(segment.ended_s) - left), _LANE, f"bar {style}", why_tip(segment, story.budget))
    sheet.text((LEFT + sheet.width) / 2, sheet.height - 4, "time of the study", "name", "middle")
    share = busy / (end * max(1, story.ledger.workers))
    sentence = f"{len(done)} orders in {show_seconds(end)}; workers were busy {min(1.0, share):.0%} of the time."
    rows = [
        [s.order.number, lanes[id(s)], s.order.trial, s.order.until, show_seconds(s.began_s), show_seconds(s.seconds)]
        for s in done[:MOST_TABLE_ROWS]
    ]
    columns = ("order", "worker", "trial", "to step", "began at", "took")
    return Figure("timeline", "Who worked on what", sentence, str(sheet), columns, rows)


def _lanes(segments: list[Segment]) -> dict[int, str]:
    """The lane of each order: its worker, or where none is named the first lane that is free."""
    lanes: dict[int, str] = {}
    free_at: dict[str, float] = {}
    for segment in segments:
        name = segment.worker
        if not name:
            free = (known for known, at in free_at.items() if at <= segment.began_s + 1e-9)
            name = next(free, None) or str(len(free_at) + 1)
        free_at[name] = max(free_at.get(name, 0.0), segment.ended_s)
        lanes[id(segment)] = name
    return lanes
