"""Store runs of one method on one problem, so that they can be reused and continued.

The choices of most methods do not depend on the budget, so one run serves every experiment: its first N trials are the run of N
trials, and its best loss after some seconds is that of a budget of these seconds (without the trial that exceeds them). The
choices of EI-cool and CArBO depend on the budget, so they have a run per budget.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.cost_aware.problems import Problem
from shoestring import policies
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.models.gp import fit as gp_fit
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, Source
from shoestring.study.journal import Journal
from shoestring.study.loop import Loop

Array = NDArray[np.float64]
ALPHAS = (0.0, 0.01, 0.1, 0.2, 0.5, 1.0)
SLACKS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # those of the paper end at 0.5
NO_LIMIT_S = 1e9
LIKELIHOOD = "~"
_NO_PRIOR = 1e6  # standard deviation of a log-normal prior: flat within the bounds


def method(name: str, problem: Problem | None = None) -> dict[str, Any]:
    """Return the settings of a method: ei_cool, carbo, random, alpha=0.2 (0: EI, 1: EI per cost), cei=0.2.

    The cost model follows a slash (default: LV-3), as in cei=0.2/gp. With a star it gets the named features of the problem, as in
    cei=0.2/lv3*. A tilde at the end makes `continue_run` fit the process of losses as printed, by likelihood only.
    """
    name, _, cost_model = name.removesuffix(LIKELIHOOD).partition("/")
    kind, _, number = name.partition("=")
    settings: dict[str, Any] = {
        "ei_cool": {"acquisition": "ei_cool"},
        "carbo": {"acquisition": "ei_cool", "initial_design": "cheap"},
        "alpha": {"acquisition": "ei_alpha", "cost_exponent": float(number or 0)},
        "cei": {"acquisition": "cei", "slack": float(number or 0)},
        "random": {},
    }[kind]
    if kind == "random":
        return settings
    if cost_model.endswith("*") and problem is not None:
        settings["cost_features"] = list(problem.named)
    if cost_model == "transfer" and problem is not None:
        settings["transferred"] = dict(problem.transferred)
    return settings | {"cost_model": cost_model.removesuffix("*") or "lv3"}


class Searchable(Source, Protocol):
    """A problem of a table, or one with real training."""

    @property
    def space(self) -> Space: ...


def empty_ledger(problem: Problem, name: str, seed: int, budget_s: float = NO_LIMIT_S) -> Ledger:
    """Return an empty ledger for a run."""
    kind = "random_search" if name == "random" else "cost_aware_ei"
    budget = Budget(f"{budget_s}s")
    settings = method(name, problem)
    return Ledger([StudyDefinition(space=problem.space, budget=budget, policy=kind, settings=settings, seed=seed)])


@contextmanager
def without_priors() -> Iterator[None]:
    """Fit processes without priors on their parameters, as in the paper."""
    original = gp_fit.priors
    gp_fit.priors = lambda kernel: [replace(prior, log_std=_NO_PRIOR) for prior in original(kernel)]
    try:
        yield
    finally:
        gp_fit.priors = original


def continue_run(
    problem: Searchable, ledger: Ledger, trials: int, seconds: float = np.inf, *, by_likelihood: bool = False
) -> Ledger:
    """Continue a run until `trials` trials are finished, `seconds` are used up, or nothing is left to train."""
    if by_likelihood:
        with without_priors():
            return continue_run(problem, ledger, trials, seconds)
    journal = Journal.in_memory(ledger)

    def enough() -> bool:
        now = journal.ledger
        return (len(now.trials) >= trials or now.spent >= seconds) and not now.open_orders

    policy = policies.make(ledger.definition.policy, ledger.definition.settings)
    with journal.store.lease(journal.name) as lease:
        return Loop(journal, lease, policy, SimulatedRunner(problem), should_stop=enough).run().ledger


@dataclass(frozen=True)
class Trace:
    seconds: Array  # per finished trial
    losses: Array
    implied_alpha: list[float | None]  # per choice of the rule, None for the initial design
    alpha_misses_by: list[float | None]

    def first(self, trials: int) -> Trace:
        return Trace(
            self.seconds[:trials], self.losses[:trials], self.implied_alpha[:trials], self.alpha_misses_by[:trials]
        )

    def best_after(self, seconds: float) -> float:
        """Return the best loss of the trials finished within that time, or inf if there is none."""
        return float(np.min(self.losses[: self.trials_after(seconds)], initial=np.inf))

    def trials_after(self, seconds: float) -> int:
        return int(np.count_nonzero(np.cumsum(self.seconds) <= seconds * (1 + 1e-12)))


class Traces:
    """Runs stored as JSON lines in traces*.jsonl of a folder; of two lines for one run the longer one counts.

    New runs go to a file of this process, so several processes can share the work. The ledgers of the last problem and seed stay
    in memory, so that their runs can be continued.
    """

    def __init__(self, folder: Path, part: str = "") -> None:
        self.path = folder / f"traces{part}.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, dict[str, Any]] = {}
        for path in sorted(folder.glob("traces*.jsonl")):
            for line in path.read_text().splitlines():
                record = json.loads(line)
                if len(record["losses"]) >= len(self._known.get(record["key"], {"losses": []})["losses"]):
                    self._known[record["key"]] = record
        self._ledgers: dict[str, Ledger] = {}
        self._current: tuple[str, int] = ("", -1)

    def get(
        self,
        problem: Problem,
        name: str,
        seed: int,
        trials: int,
        *,
        seconds: float = np.inf,
        budget_s: float = NO_LIMIT_S,
    ) -> Trace:
        """Return a run of at least `trials` trials or `seconds` seconds, whichever comes first."""
        key = f"{problem.key} {name} seed={seed} s={budget_s:.6g}"
        record = self._known.get(key)
        if record is None or not (record["ended"] or _covers(record, trials, seconds)):
            record = self._known[key] = self._execute(
                key, (problem.key, seed), problem, name, trials, seconds, budget_s
            )
        return Trace(
            np.array(record["seconds"]), np.array(record["losses"]), record["implied_alpha"], record["alpha_misses_by"]
        )

    def _execute(
        self,
        key: str,
        at: tuple[str, int],
        problem: Problem,
        name: str,
        trials: int,
        seconds: float,
        budget_s: float,
    ) -> dict[str, Any]:
        if at != self._current:
            self._ledgers, self._current = {}, at
        before = self._ledgers.get(key) or empty_ledger(problem, name, at[1], budget_s)
        by_likelihood = name.endswith(LIKELIHOOD)
        ledger = self._ledgers[key] = continue_run(problem, before, trials, seconds, by_likelihood=by_likelihood)
        done = [t for t in ledger.trials if t.steps == 1]
        record: dict[str, Any] = {
            "key": key,
            "seconds": [t.step_costs[0] for t in done],
            "losses": [t.losses[0] for t in done],
            "implied_alpha": [ledger.orders[t.number].why.get("implied_alpha") for t in done],
            "alpha_misses_by": [ledger.orders[t.number].why.get("alpha_misses_by") for t in done],
        }
        record["ended"] = not _covers(record, trials, seconds)  # the table or the budget is used up
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        return record


def _covers(record: dict[str, Any], trials: int, seconds: float) -> bool:
    return len(record["losses"]) >= trials or sum(record["seconds"]) >= seconds


def interval(values: Iterable[float], groups: Sequence[str] = (), resamples: int = 1000) -> tuple[float, float, float]:
    """Return the mean and its 95 % bootstrap interval; with `groups`, whole groups are resampled."""
    data = np.array(list(values), dtype=float)
    index = np.unique(groups, return_inverse=True)[1] if groups else np.arange(data.size)
    sums, counts = np.bincount(index, data), np.bincount(index)
    drawn = np.random.default_rng(0).integers(sums.size, size=(resamples, sums.size))
    low, high = np.quantile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), [0.025, 0.975])
    return float(data.mean()), float(low), float(high)


def with_interval(name: str, values: Iterable[float], groups: Sequence[str] = ()) -> dict[str, float]:
    """Return the three numbers of `interval` as fields of a record."""
    mean, low, high = interval(values, groups)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}
