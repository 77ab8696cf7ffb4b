"""Facts about a study as plain data: `--json` prints them, and the reports for people show them.

Workers that differ are listed too: those with another price, and those that take longer than the others for the same work. A
slow worker may be throttled, shared or broken. A worker is judged by the median of many steps of several trials, against the
median of all other workers' steps, because configurations differ in the cost of a step. A worker that was given three expensive
trials by chance may still be listed: it is a hint to look.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from shoestring.core.ledger.entries import Order, Receipt, StateLoss
from shoestring.core.ledger.failures import describe_failure, kind_of_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import EarlierStudy, list_earlier_studies
from shoestring.core.ledger.state import Trial
from shoestring.core.values.checks import is_same
from shoestring.core.values.text import count, printable

_BARS = "▁▂▃▄▅▆▇█"
_MAX_VALUES = 100  # of one configuration, in one line; `--json` has all of them
_MAX_FAILURES = 5  # kinds of failure that are listed
_SLOW = 1.5  # times the median of the other workers
_MIN_STEPS, _MIN_TRIALS = 10, 3  # of a worker before it is judged


def summary(name: str, ledger: Ledger, checkpoint: Path | str | None) -> dict[str, Any]:
    """Return the facts about a study; `checkpoint` is the checkpoint of its best step, if there is one."""
    state, best = ledger.state, ledger.best
    return {
        "study": name,
        "policy": state.policy,
        "settings": dict(state.settings),
        "seed": ledger.definition.seed,
        "direction": ledger.definition.direction,
        "metric": ledger.definition.metric or None,
        "max_steps": ledger.max_steps,
        "budget": str(state.budget),
        "unit": state.budget.unit,
        "spent": ledger.spent,
        "reserved": ledger.reserved,
        "left": ledger.left,
        "workers": state.workers,
        "trials": len(state.trials),
        "orders": len(state.orders),
        "receipts": state.receipts,
        "seconds": {kind: seconds for kind, seconds in state.by_kind.items() if seconds},
        "training_share": state.training_share,
        "validation_passes": passes(ledger),
        "best": None if best is None else _best_facts(ledger, best, checkpoint),
        "earlier_studies": [_earlier_facts(one) for one in list_earlier_studies(ledger.entries())],
        "failures": failures(ledger),
        "slow_workers": slow_workers(ledger),
        "cost_by_price": cost_by_price(ledger),
    }


def list_entry(name: str, ledger: Ledger) -> dict[str, Any]:
    """Return the facts about a study in the list of a store's studies."""
    return {
        "study": name,
        "policy": ledger.state.policy,
        "budget": str(ledger.budget),
        "unit": ledger.budget.unit,
        "spent": ledger.spent,
        "left": ledger.left,
        "trials": len(ledger.trials),
        "best": None if ledger.best is None else ledger.best.best_value,
    }


def passes(ledger: Ledger) -> dict[str, Any]:
    """Return the number of validated steps, of trained steps that were not, and the seconds that this saved, if measured."""
    steps = sum(len(trial.losses) for trial in ledger.trials)
    saved = sum(loss is None for trial in ledger.trials for loss in trial.losses)
    seconds = ledger.state.by_kind["validate"] / (steps - saved) * saved if steps > saved else 0.0
    return {"done": steps - saved, "saved": saved, "saved_seconds": seconds or None}


def _best_facts(ledger: Ledger, best: Trial, checkpoint: Path | str | None) -> dict[str, Any]:
    order = best.step_orders[best.best_step - 1]
    metrics = next((r.metrics for r in receipts_of(ledger, order) if r.step == best.best_step), {})
    return {
        "value": best.best_value,
        "trial": best.number,
        "step": best.best_step,
        "config": dict(best.best_config or best.config),
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "metrics": dict(metrics),
        "steps_left": left[0] if (left := finishing(ledger)) is not None else 0,
        "cost_to_finish": 0.0 if left is None else left[1],
    }


def finishing(ledger: Ledger) -> tuple[int, float] | None:
    """Return how many steps the best trial is from its end, and what they would cost in the unit of the budget.

    None if it is trained to its end, or cannot be trained further.
    """
    best = ledger.best
    if best is None or not best.can_continue or best.steps >= best.limit:
        return None
    steps = best.limit - best.steps
    is_repeated_free = ledger.budget.unit == "epochs"  # steps that must be repeated cost time, but no epochs
    return steps, ledger.step_price(best.number) * (steps if is_repeated_free else best.limit - best.resumable_step)


def split_parameters(ledger: Ledger) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the parameters in which trials differ, and the values that are the same in all of several trials."""
    configs = [trial.config for trial in ledger.trials]
    names = list(dict.fromkeys(name for config in configs for name in config))
    if len(configs) < 2:
        return names, {}
    first = configs[0]
    same = {
        name: first[name]
        for name in names
        if name in first and all(name in config and is_same(config[name], first[name]) for config in configs)
    }
    return [name for name in names if name not in same], same


def _earlier_facts(earlier: EarlierStudy) -> dict[str, Any]:
    return {
        "name": earlier.name,
        "source": earlier.source,
        "digest": earlier.digest,
        "date": earlier.date,
        "trials": earlier.trials,
        "trials_used": len(earlier.scores),
        "parameters": list(earlier.parameters),
        "has_prices": bool(earlier.step_s),
    }


def trial_facts(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "state": state_of(trial),
        "steps": trial.steps,
        "resumable_step": trial.resumable_step,
        "value": trial.best_value,
        "best_step": trial.best_step or None,
        "last_order": trial.last_order,
        "config": dict(trial.config),
        "failure": describe_failure(trial.failure) or None,
    }


def order_facts(order: Order) -> dict[str, Any]:
    return order.body() | {"memo": {name: len(numbers) for name, numbers in order.memo.items()}}


def step_facts(receipt: Receipt) -> dict[str, Any]:
    """Return the facts about one step of an order."""
    return {
        "step": receipt.step,
        "value": receipt.value,
        "status": receipt.status,
        "seconds": receipt.cost.total,
        "metrics": dict(receipt.metrics),
    }


def receipts_of(ledger: Ledger, order: int) -> Iterator[Receipt]:
    return (entry for entry in ledger.entries() if isinstance(entry, Receipt) and entry.order == order)


def failures(ledger: Ledger) -> list[dict[str, Any]]:
    """Return the most frequent kinds of failure, each with its number of trials, the most frequent first."""
    kinds: dict[str, list[Trial]] = {}
    for trial in ledger.trials:
        if trial.failure:
            kinds.setdefault(kind_of_failure(trial.failure), []).append(trial)
    groups = sorted(kinds.values(), key=len, reverse=True)[:_MAX_FAILURES]
    return [
        {"count": len(group), "text": describe_failure(group[0].failure), "trials": [trial.number for trial in group]}
        for group in groups
    ]


def state_of(trial: Trial) -> str:
    if trial.open_order is not None:
        return "unfinished"  # it has an open order, and is being trained if a process runs the study
    if trial.failure:
        return "failed"
    if trial.diverged:
        return "diverged"
    return "complete" if trial.steps >= trial.limit else "paused"


def rank_trials(ledger: Ledger) -> list[Trial]:
    return sorted(ledger.trials, key=lambda trial: (trial.best_loss, trial.number))


def draw_curve(trial: Trial, width: int = 12) -> str:
    """Return the trial's values as a row of small bars; a higher bar is a larger value."""
    known = [value for value in trial.values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    shown = known if len(known) <= width else [known[round(i * (len(known) - 1) / (width - 1))] for i in range(width)]
    low, high = min(shown), max(shown)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in shown)


def format_config(config: Any) -> str:
    """Return a configuration, or other named values, in one line; of very many, the first ones and how many there are more."""
    shown = [f"{printable(name)}={format_value(value)}" for name, value in islice(config.items(), _MAX_VALUES)]
    more = len(config) - len(shown)
    return ", ".join([*shown, f"and {more:,} more"] if more else shown)


def show_bytes(size: int) -> str:
    """Return a size as text: 640 bytes, 3.4 MB."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return count(size, "byte")


def format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


def slow_workers(ledger: Ledger) -> list[dict[str, Any]]:
    """Return each slow `worker`, its finished `steps` and how many `times_slower` it was, the slowest first.

    Only runners that name their workers are covered.
    """
    seconds: dict[str, list[float]] = {}
    trials: dict[str, set[int]] = {}
    for entry in ledger.entries():
        if isinstance(entry, Receipt) and entry.worker and entry.is_finished:
            seconds.setdefault(entry.worker, []).append(entry.cost.total)
            trials.setdefault(entry.worker, set()).add(entry.trial)
    if len(seconds) < 2:
        return []
    ranked = sorted(cost for costs in seconds.values() for cost in costs)
    found = []
    for worker, costs in seconds.items():
        # The median of the others is at least this: the k-th cost of all is no more than the k-th cost of the others.
        least_usual = ranked[max(0, len(ranked) - len(costs) - 1) // 2]
        if len(costs) < _MIN_STEPS or len(trials[worker]) < _MIN_TRIALS or median(costs) < _SLOW * least_usual:
            continue
        usual = median(cost for other, theirs in seconds.items() if other != worker for cost in theirs)
        if usual > 0 and median(costs) >= _SLOW * usual:
            found.append({"worker": worker, "steps": len(costs), "times_slower": median(costs) / usual})
    return sorted(found, key=lambda facts: -float(facts["times_slower"]))


def cost_by_price(ledger: Ledger) -> list[dict[str, Any]]:
    """Return each `price_factor` with its number of `workers` and their `seconds`, lost steps included; highest price first.

    The list is empty if all workers have the price factor 1.
    """
    seconds: dict[float, float] = {}
    workers: dict[float, set[str]] = {}
    for entry in ledger.entries():
        if isinstance(entry, Receipt | StateLoss) and entry.worker:
            seconds_used = entry.cost.total if isinstance(entry, Receipt) else entry.seconds
            seconds[entry.price_factor] = seconds.get(entry.price_factor, 0.0) + seconds_used
            workers.setdefault(entry.price_factor, set()).add(entry.worker)
    if not seconds.keys() - {1.0}:
        return []
    return [
        {"price_factor": factor, "workers": len(workers[factor]), "seconds": seconds[factor]}
        for factor in sorted(seconds, reverse=True)
    ]
