"""The checks of a study that was killed many times, and their sum over all studies."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.kill.killed_study import KilledStudy, work_done_s
from benchmarks.kill.studies import decisions
from shoestring.core.ledger.entries import Note, Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger

# The promised limits: a time budget may be exceeded by no more than the larger of these.
MAX_EXCESS_S, MAX_EXCESS_SHARE = 1.0, 0.01
MAX_UNCHARGED_S = 0.1  # of work in one study: the clocks of several processes may differ by this much


class Tally:
    """The figures of all studies so far."""

    def __init__(self) -> None:
        self.kills = 0
        self.studies: Counter[str] = Counter()
        self.kills_by_case: Counter[str] = Counter()
        self.lost = self.charged_twice = self.epochs_over = self.other_decisions = 0
        self.over_s: dict[str, float] = {}  # by world and kind: of the worst study
        self.largest_log_mb = 0.0
        self.is_over_limit = False
        self.uncharged_s: dict[str, float] = {}  # by world and kind: of the worst study
        self.too_much_s = 0.0  # charged per kill beyond the work done; of the worst study with one worker
        self.troubles: list[str] = []

    def add(self, killed_study: KilledStudy, reference: list[str] | None) -> None:
        study, case = killed_study.study, " ".join(killed_study.study.case)
        self.studies[case] += 1
        self.kills_by_case[case] += killed_study.kills
        self.lost += killed_study.lost_entries
        self.troubles += [f"{case}: {trouble}" for trouble in killed_study.troubles]
        if killed_study.troubles:
            return
        ledger = study.read()
        assert ledger is not None
        if twice := count_charged_twice(ledger):
            self.charged_twice += twice
            self.troubles.append(f"{case}: {twice} charged twice")
        unit = study.case.unit
        if unit == "epochs":
            self.epochs_over += int(max(0, ledger.spent - ledger.budget.total))
        if reference is not None and decisions(ledger) != reference:
            self.other_decisions += 1
        if study.case.kind != "simulated":
            self._add_times(killed_study, ledger, unit)

    def _add_times(self, killed_study: KilledStudy, ledger: Ledger, unit: str) -> None:
        (done_s, longest_step_s), kinds = work_done_s(killed_study.study), ledger.state.by_kind
        # Decisions, saving and loading are charged too, and are not in the log of the training code.
        charged_s = sum(seconds for kind, seconds in kinds.items() if kind not in ("thinking", "setup"))
        kind, world = killed_study.study.case.kind, killed_study.study.case.world
        where = kind if world == "kill" else f"{world} {kind}"
        self.uncharged_s[where] = max(self.uncharged_s.get(where, 0.0), done_s - charged_s)
        if killed_study.kills and ledger.workers == 1:
            self.too_much_s = max(self.too_much_s, (charged_s - done_s) / killed_study.kills)
        if unit != "seconds":
            return
        total = ledger.budget.total
        over_s = done_s - total
        self.over_s[where] = max(self.over_s.get(where, -math.inf), over_s)
        self.largest_log_mb = max(self.largest_log_mb, killed_study.largest_log_bytes / 1e6)
        allowed_s = longest_step_s if kind == "local" else max(MAX_EXCESS_SHARE * total, MAX_EXCESS_S)
        self.is_over_limit |= over_s > allowed_s

    def save(self, path: Path) -> None:
        """Write the figures to a file, from which a later run continues."""
        path.write_text(json.dumps(vars(self)))

    @classmethod
    def read(cls, path: Path) -> Tally:
        """Return the figures in a file; those of no study if there is no such file."""
        tally = cls()
        if path.exists():
            for name, value in json.loads(path.read_text()).items():
                setattr(tally, name, Counter(value) if isinstance(getattr(tally, name), Counter) else value)
        return tally

    def result(self, wanted: int) -> dict[str, Any]:
        measured = {
            "kills": self.kills,
            "studies": sum(self.studies.values()),
            "receipts_lost": self.lost,
            "charged_twice": self.charged_twice,
            "epochs_over": self.epochs_over,
            "seconds_over": {where: round(s, 3) for where, s in sorted(self.over_s.items())},
            "largest_log_mb": round(self.largest_log_mb, 1),
            "seconds_uncharged": {where: round(s, 3) for where, s in sorted(self.uncharged_s.items())},
            "seconds_too_much_a_kill": round(self.too_much_s, 3),
            "other_decisions": self.other_decisions,
            "troubles": self.troubles[:20],
        }
        ok = not (self.lost or self.charged_twice or self.epochs_over or self.other_decisions or self.troubles)
        ok = (
            ok
            and not self.is_over_limit
            and max(self.uncharged_s.values(), default=0.0) <= MAX_UNCHARGED_S
            and self.kills > 0
        )
        target = {
            "receipts_lost": 0,
            "charged_twice": 0,
            "epochs_over": 0,
            "seconds_over": f"max(1 %, {MAX_EXCESS_S:g} s); local: one step",
            "seconds_uncharged": MAX_UNCHARGED_S,
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
    """Count the steps with two receipts although their state was not lost in between, and epochs charged without a reason."""
    charged: dict[int, int] = {}  # by trial: the newest step that has a receipt and still exists
    twice = 0
    for entry in ledger.entries():
        if isinstance(entry, StateLoss):
            charged[entry.trial] = entry.resumable_step
        elif isinstance(entry, Receipt) and not entry.is_finished:  # its live state is gone
            charged[entry.trial] = min(charged.get(entry.trial, 0), entry.saved_step)
        elif isinstance(entry, Receipt):
            twice += entry.step <= charged.get(entry.trial, 0)
            charged[entry.trial] = entry.step
    state = ledger.state
    checks = sum(isinstance(entry, Note) and entry.topic == "check" for entry in ledger.entries())
    broken = sum(isinstance(entry, Receipt) and not entry.is_finished for entry in ledger.entries())
    return twice + abs(state.steps - sum(trial.steps for trial in state.trials) - checks - broken)
