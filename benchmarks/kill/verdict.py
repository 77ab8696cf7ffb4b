"""What is checked of a study that was killed many times, and the sum over all of them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from benchmarks.kill.lives import Life, work_done_s
from benchmarks.kill.studies import decisions
from shoestring.core.ledger.entries import Lost, Note, Receipt
from shoestring.core.ledger.ledger import Ledger

WALL_S, WALL_SHARE = 1.0, 0.01  # more than this much over a budget of time is too much
UNCHARGED_S = 0.1  # of work in one study: what the clocks of several processes may disagree about


class Tally:
    """Figures of all studies so far."""

    def __init__(self) -> None:
        self.kills = 0
        self.studies: Counter[str] = Counter()
        self.kills_by_case: Counter[str] = Counter()
        self.lost = self.charged_twice = self.epochs_over = self.other_decisions = 0
        self.over_s = {"local": -math.inf, "process": -math.inf, "command": -math.inf}
        self.is_over_wall = False
        self.uncharged_s = 0.0  # the worst study
        self.too_much_s = 0.0  # that the ledger charged per kill beyond the work done; the worst study of one worker
        self.troubles: list[str] = []

    def add(self, life: Life, reference: list[str] | None) -> None:
        study, case = life.study, " ".join(life.study.case)
        self.studies[case] += 1
        self.kills_by_case[case] += life.kills
        self.lost += life.lost_entries
        self.troubles += [f"{case}: {trouble}" for trouble in life.troubles]
        if life.troubles:
            return
        ledger = study.read()
        assert ledger is not None
        self.charged_twice += count_charged_twice(ledger)
        unit = study.case.unit
        if unit == "epochs":
            self.epochs_over += int(max(0, ledger.spent - ledger.budget.total))
        if reference is not None and decisions(ledger) != reference:
            self.other_decisions += 1
        if study.case.kind != "simulated":
            self._weigh(life, ledger, unit)

    def _weigh(self, life: Life, ledger: Ledger, unit: str) -> None:
        (done_s, longest_step_s), kinds = work_done_s(life.study), ledger.books.by_kind
        # Thinking, saving and loading are charged too, and the training code's log knows nothing of them.
        charged_s = sum(seconds for kind, seconds in kinds.items() if kind not in ("thinking", "setup"))
        self.uncharged_s = max(self.uncharged_s, done_s - charged_s)
        if life.kills and ledger.workers == 1:
            self.too_much_s = max(self.too_much_s, (charged_s - done_s) / life.kills)
        if unit != "seconds":
            return
        kind, total = life.study.case.kind, ledger.budget.total
        over_s = done_s - total
        self.over_s[kind] = max(self.over_s[kind], over_s)
        allowed_s = longest_step_s if kind == "local" else max(WALL_SHARE * total, WALL_S)
        self.is_over_wall |= over_s > allowed_s

    def result(self, wanted: int) -> dict[str, Any]:
        measured = {
            "kills": self.kills,
            "studies": sum(self.studies.values()),
            "receipts_lost": self.lost,
            "charged_twice": self.charged_twice,
            "epochs_over": self.epochs_over,
            "seconds_over": {kind: round(s, 3) for kind, s in self.over_s.items() if math.isfinite(s)},
            "seconds_uncharged": round(self.uncharged_s, 3),
            "seconds_too_much_a_kill": round(self.too_much_s, 3),
            "other_decisions": self.other_decisions,
            "troubles": self.troubles[:20],
        }
        ok = not (self.lost or self.charged_twice or self.epochs_over or self.other_decisions or self.troubles)
        ok = ok and not self.is_over_wall and self.uncharged_s <= UNCHARGED_S and self.kills > 0
        target = {
            "receipts_lost": 0,
            "charged_twice": 0,
            "epochs_over": 0,
            "seconds_over": f"max(1 %, {WALL_S:g} s); local: one step",
            "seconds_uncharged": UNCHARGED_S,
            "other_decisions": 0,
        }
        return {"name": "kill", "measured": measured, "wanted_kills": wanted, "target": target, "peers": {}, "ok": ok}

    def show(self) -> None:
        for case, kills in sorted(self.kills_by_case.items()):
            print(f"{case:32s} {self.studies[case]:4d} studies {kills:5d} kills")
        for trouble in self.troubles[:20]:
            print(f"trouble: {trouble}")
        print(f"charged beyond the work done, with one worker: {self.too_much_s:.3f} s a kill at worst")


def count_charged_twice(ledger: Ledger) -> int:
    """Steps that are paid for by two receipts with nothing lost between them; and losses of steps already paid for."""
    paid: dict[int, int] = {}  # by trial: the newest step that has a receipt, as far as it still exists
    twice = 0
    for entry in ledger.entries():
        if isinstance(entry, Lost):
            paid[entry.trial] = entry.held
        elif isinstance(entry, Receipt) and entry.is_finished:
            twice += entry.step <= paid.get(entry.trial, 0)
            paid[entry.trial] = entry.step
    books = ledger.books
    checks = sum(isinstance(entry, Note) and entry.topic == "check" for entry in ledger.entries())
    broken = sum(isinstance(entry, Receipt) and not entry.is_finished for entry in ledger.entries())
    return twice + abs(books.steps - sum(trial.steps for trial in books.trials) - checks - broken)
