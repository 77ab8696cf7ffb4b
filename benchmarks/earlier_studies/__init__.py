"""Whether earlier studies make the next one cheaper: a study of one table that learns from studies of related tables.

    python -m benchmarks earlier_studies --quick
    python -m benchmarks earlier_studies run --data DIR benchmarks/data --seeds 10 -o runs.jsonl
    python -m benchmarks earlier_studies run --suite plain --unit seconds --data DIR --budgets 10 20 -o plain.jsonl
    python -m benchmarks earlier_studies store runs.jsonl -o results/tables.json        keep the regrets in a small file
    python -m benchmarks earlier_studies report runs.jsonl plain.jsonl                  or stored files

`README.md` beside this file has the protocol. Runs that are in the file already are not executed again. The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks import guided
from benchmarks.race import problems, results, running, statistics
from benchmarks.race.problems import ProblemSpec, Unit, stable_hash
from shoestring import policies
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.errors import StudyError
from shoestring.study.earlier import copy_source, read_ledger
from shoestring.study.loop import run_in_memory

A_STRANGER = "a stranger"  # an earlier study of another source
GOALS = {1.0: 0.80, 2.0: 0.80}  # of the mean regret with one earlier study, over that without


@dataclass(frozen=True)
class Methods:
    """What is compared on the problems of a suite."""

    policy: str
    base: str  # a policy without a model
    earlier_curves: float  # full trainings in the budget of an earlier study

    def list(self, studies: Sequence[int]) -> list[str]:
        return [self.base, self.policy, *(f"{self.policy} after {number}" for number in (*studies, A_STRANGER))]


SUITES = {
    "tables": Methods("guided_halving", "sequential_halving", 2.0),
    "plain": Methods("cost_aware_ei", "random_search", 20.0),
}


@dataclass(frozen=True)
class Case:
    """A table, the other tables of its source, and tables of other sources."""

    spec: ProblemSpec
    related: Sequence[ProblemSpec]
    strangers: Sequence[ProblemSpec]

    def earlier(self, method: str, seed: int) -> Sequence[ProblemSpec]:
        """Return the tables of the earlier studies of a method."""
        if method.endswith(A_STRANGER):
            return [self.strangers[seed % len(self.strangers)]]
        return self.related[: count_earlier(method)]


def count_earlier(method: str) -> int:
    """Return how many earlier studies of related tables a method has: 3 for "guided_halving after 3"."""
    words = method.split(" after ")
    return int(words[1]) if len(words) == 2 and words[1] != A_STRANGER else 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks earlier_studies", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("action", nargs="?", choices=["run", "store", "report"])
    parser.add_argument("runs", type=Path, nargs="*", help="of `store` and `report`: files of runs")
    parser.add_argument("--quick", action="store_true", help="the shipped tables, one seed, one budget")
    parser.add_argument("--data", type=Path, nargs="+", default=[problems.SHIPPED])
    parser.add_argument("--suite", choices=list(SUITES), default="tables")
    parser.add_argument("--tables", type=int, default=2, help="tables of each source that a study is about")
    parser.add_argument("--studies", type=int, nargs="*", default=[1, 3, 8], help="numbers of earlier studies")
    parser.add_argument("--budgets", type=float, nargs="+", default=[1.0, 2.0, 5.0, 10.0])
    parser.add_argument("--unit", choices=["curves", "seconds"], default="curves")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("-o", "--output", type=Path, default=Path("out/earlier_studies/runs.jsonl"))
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        cases, methods = find_cases([problems.SHIPPED], 1, "curves")[:1], SUITES["tables"].list([1])
        return report([execute(case, method, 1.0, "curves", 0) for case in cases for method in methods])
    if chosen.action == "report":
        return report([run for path in chosen.runs for run in guided.read(path)])
    if chosen.action == "store":
        store([run for path in chosen.runs for run in guided.read(path)], chosen.output)
        return 0
    run_all(chosen)
    return report(running.read(chosen.output))


def find_cases(data: Sequence[Path], tables: int, unit: Unit, suite: str = "tables") -> list[Case]:
    """Return the first tables of each source that has at least two."""
    by_source: dict[str, list[ProblemSpec]] = {}
    for spec in problems.find_problems(suite, data, per_source=None):
        if spec.path is not None and unit in spec.units(["curves", "seconds"]):
            by_source.setdefault(spec.source, []).append(spec)
    sources = {source: specs for source, specs in by_source.items() if len(specs) >= 2}
    cases = []
    for source, specs in sources.items():
        strangers = [others[0] for name, others in sources.items() if name != source]
        cases += [Case(specs[i], specs[i + 1 :] + specs[:i], strangers) for i in range(min(tables, len(specs)))]
    return cases


def run_all(chosen: argparse.Namespace) -> None:
    """Execute the runs that are not in the file yet, seed by seed, so that a part of them is a fair sample."""
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    done = {_key(run) for run in running.read(chosen.output)} if chosen.output.exists() else set()
    cases = find_cases(chosen.data, chosen.tables, chosen.unit, chosen.suite)
    left = [one for one in _list_runs(chosen, cases) if (*_names(one), chosen.unit) not in done]
    began = time.monotonic()
    with chosen.output.open("a", encoding="utf-8") as file:
        for number, (case, method, budget, seed) in enumerate(left, 1):
            file.write(json.dumps(execute(case, method, budget, chosen.unit, seed)) + "\n")
            file.flush()
            if number % 100 == 0:
                print(f"{number} of {len(left)} runs, {time.monotonic() - began:.0f} s", flush=True)


def _list_runs(chosen: argparse.Namespace, cases: Sequence[Case]) -> Iterator[tuple[Case, str, float, int]]:
    for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
        for case in cases:
            for budget in chosen.budgets:
                for method in SUITES[chosen.suite].list(chosen.studies):
                    if count_earlier(method) <= len(case.related):
                        yield case, method, budget, seed


def _names(run: tuple[Case, str, float, int]) -> tuple[Any, ...]:
    case, method, budget, seed = run
    return case.spec.source, case.spec.table, method, budget, seed


def _key(run: dict[str, Any]) -> tuple[Any, ...]:
    return run["source"], run["table"], run["method"], run["budget"], run["seed"], run["unit"]


def execute(case: Case, method: str, budget: float, unit: Unit, seed: int) -> dict[str, Any]:
    """Execute one study and return its record, in the form of the race."""
    problem = case.spec.draw(seed)
    policy = policies.make(method.partition(" after ")[0])
    run = running.Run(case.spec, policy.name, budget, unit, seed)
    ledger = Ledger([running.opening_entry(problem, policy, budget, unit, running.seed_of(run))])
    used = 0
    for spec in case.earlier(method, seed):
        if (note := _make_note(spec, problem.space, seed, unit)) is not None:
            ledger, used = ledger.append(note), used + 1
    ended = run_in_memory(ledger, policy, problem.runner()).ledger
    regret = problem.regret(problem.best(ended), budget, unit)
    expensive = sum(trial.seconds > problem.curve_s() for trial in ended.trials) if unit == "seconds" else 0
    return {
        **run.key,
        "method": method,
        "regret": regret,
        "spent": ended.spent,
        "trials": len(ended.trials),
        "earlier": used,
        "expensive": expensive,
    }


def _make_note(spec: ProblemSpec, space: Space, seed: int, unit: Unit) -> Any:
    """Return the entry that holds what a study of another table found; None if the two have too little in common."""
    try:
        return copy_source(
            read_ledger(spec.table, spec.name, _run_earlier(spec, seed, unit)), {}, space, "min"
        ).to_note()
    except StudyError:
        return None


@lru_cache(maxsize=512)
def _run_earlier(spec: ProblemSpec, seed: int, unit: Unit) -> Ledger:
    """Return the ledger of an earlier study, with configurations and a seed of its own."""
    problem, methods = spec.draw(stable_hash("earlier", seed) % 10**6), SUITES[spec.suite]
    policy, own_seed = policies.make(methods.policy), stable_hash("earlier", spec.name, seed)
    return running.run_study(problem, policy, curves=methods.earlier_curves, unit=unit, seed=own_seed).ledger


def store(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Store the regrets of the runs in a small file."""
    unknown = {"version": "", "at": "", "error": None, **dict.fromkeys(results.SUMS, 0)}
    results.write(results.pack([unknown | run for run in runs], []), path)


def report(runs: Sequence[dict[str, Any]]) -> int:
    """Print the ratios of mean regrets and return 0 if the goals are met."""
    found: dict[str, Any] = {"name": "earlier_studies"}
    ok = True
    for suite, unit in sorted({(run["suite"], run["unit"]) for run in runs}):
        own, methods = [run for run in runs if (run["suite"], run["unit"]) == (suite, unit)], SUITES[suite]
        grid = statistics.Grid.from_runs(own)
        rows = []
        for method in grid.methods:
            for base in (methods.policy, methods.base):
                if method not in (base, methods.base) and base in grid.methods:
                    compared = guided.compare(grid, method, base)
                    rows += [{**row, "base_mean": row["base"], "method": method, "base": base} for row in compared]
        print(f"\n{suite}, budgets in {unit}: {len({cell[:2] for cell in grid.cells})} tables, {len(own)} runs")
        for row in rows:
            numbers = "{mean:.4f} / {base_mean:.4f} = {ratio:.3f} [{low:.3f}, {high:.3f}]  {pairs} pairs".format(**row)
            print(f"{row['budget']:5g}  {row['method']:<32} / {row['base']:<20} {numbers}")
        if all("expensive" in run for run in own) and unit == "seconds":
            for method in grid.methods:
                trials = [(run["expensive"], run["trials"]) for run in own if run["method"] == method]
                print(f"{method:<32} trials that cost more than a median full training: {_share(trials):.1%}")
        ok = ok and all(
            row["ratio"] <= GOALS[row["budget"]]
            for row in rows
            if row["method"] == "guided_halving after 1" and row["base"] == "guided_halving" and row["budget"] in GOALS
        )
        found[f"{suite} in {unit}"] = rows
    print(json.dumps({**found, "goals": {f"{budget:g}": goal for budget, goal in GOALS.items()}, "ok": ok}))
    return 0 if ok else 1


def _share(pairs: Sequence[tuple[int, int]]) -> float:
    return sum(first for first, _ in pairs) / max(1, sum(second for _, second in pairs))
