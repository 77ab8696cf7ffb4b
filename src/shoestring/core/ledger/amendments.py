"""What may change about an existing study, what must not change, and what an interrupted run has lost.

When a study is begun again under the same name, its budget, policy and number of workers may differ; that is recorded as an
amendment. Another space, direction, number of steps or training function is an error, because old and new values could not be
compared. `find_losses` compares the ledger with the trials that survived the end of the last process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoestring.core.ledger.budget import price_of
from shoestring.core.ledger.entries import Amendment, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.errors import BudgetError, StudyError, show_argument


def find_amendment(ledger: Ledger, name: str, wanted: StudyDefinition, *, seed_given: bool) -> Amendment | None:
    """Return what `wanted` changes about the study `name`; None if nothing. Raise StudyError if the change is not allowed."""
    current = ledger.definition
    remedy = f"start another study, with {show_argument('name')}"
    if (before := _name_target(current)) and (now := _name_target(wanted)) and before != now:
        raise StudyError(f"the study {name!r} trains {before}, not {now}; {remedy}")
    _require_same_place(name, current.target.get("checkpoints"), wanted.target.get("checkpoints"), remedy)
    if wanted.budget.unit != current.budget.unit:
        raise StudyError(
            f"the study {name!r} has a budget in {current.budget.unit}, not in {wanted.budget.unit}: keep the unit, or {remedy}"
        )
    if not wanted.space.has_same_configs(current.space):
        raise StudyError(f"the study {name!r} has another space: {_describe_difference(current, wanted)}; {remedy}")
    if wanted.direction != current.direction:
        raise StudyError(
            f"the study {name!r} has the direction {current.direction!r}, not {wanted.direction!r}; {remedy}"
        )
    if wanted.max_steps != current.max_steps:
        raise StudyError(f"the study {name!r} trains up to {current.max_steps} steps, not {wanted.max_steps}; {remedy}")
    if wanted.metric and wanted.metric != current.metric:
        known = f"the metric {current.metric!r}" if current.metric else "no name for its metric"
        raise StudyError(f"the study {name!r} has {known}, not {wanted.metric!r}: leave the metric out, or {remedy}")
    if wanted.prices != current.prices:
        raise StudyError(
            f"the study {name!r} charges {current.prices.validate_epochs:g} epochs for a validation pass, "
            f"not {wanted.prices.validate_epochs:g}; {remedy}"
        )
    if seed_given and wanted.seed != current.seed:
        raise StudyError(
            f"the study {name!r} has the seed {current.seed}, not {wanted.seed}: leave the seed out, or {remedy}"
        )
    return find_changes(ledger, wanted)


def _require_same_place(name: str, current: object, wanted: object, remedy: str) -> None:
    if wanted is not None and wanted != current:
        where = "beside its store" if current is None else f"at {current}"
        raise StudyError(
            f"the study {name!r} has its checkpoints {where}, not at {wanted}: leave that out, or {remedy}"
        )


def find_changes(ledger: Ledger, wanted: StudyDefinition) -> Amendment | None:
    """Return what `wanted` changes about the study; None if nothing. `Ledger.append` checks whether the change is allowed."""
    budget, state = wanted.budget, ledger.state
    new_policy = wanted.policy != state.policy or dumps(wanted.settings) != dumps(state.settings)
    if budget == state.budget and not new_policy and wanted.workers == state.workers:
        return None
    return Amendment(
        budget=budget if budget != state.budget else None,
        policy=wanted.policy if new_policy else None,
        settings=wanted.settings if new_policy else None,
        workers=wanted.workers if wanted.workers != state.workers else None,
    )


def _name_target(definition: StudyDefinition) -> str:
    """Return the file and function of Python code, without folders; for other targets the kind; empty if none was recorded."""
    kind, where = definition.target.get("kind"), definition.target.get("where")
    if not isinstance(kind, str):
        return ""
    return where.rpartition("/")[2] if kind == "python" and isinstance(where, str) else f"a {kind}"


def _describe_difference(was: StudyDefinition, wanted: StudyDefinition) -> str:
    old, new = was.space.parameters, wanted.space.parameters
    for parameter in old:
        if parameter not in new:
            return f"{parameter} is missing"
        before, after = ({k: v for k, v in p[parameter].describe().items() if k != "cost"} for p in (old, new))
        if dumps(before) != dumps(after):
            return _describe_changed_option(parameter, before, after) or f"{parameter} was {before}, not {after}"
    extra = [parameter for parameter in new if parameter not in old]
    return f"{extra[0]} is new" if extra else "its conditions or rows differ"


def _describe_changed_option(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Return which option of a choice with objects was replaced; None if anything else has changed."""
    if not ("types" in before and "types" in after and len(before["types"]) == len(after["types"])):
        return None
    old, new = (list(zip(body["choice"], body["types"], strict=True)) for body in (before, after))
    place = next(i for i, (was, now) in enumerate(zip(old, new, strict=True)) if dumps(was) != dumps(now))
    return f"option {place} of {name} was {_describe_option(*old[place])}, not {_describe_option(*new[place])}"


def _describe_option(stored: Any, kind: str | None) -> str:
    return repr(stored) if kind is None else f"{stored} ({kind})"


def require_possible(definition: StudyDefinition) -> None:
    """Raise an error if a new study with this first entry is not possible. This is called before anything is stored."""
    if definition.direction not in ("min", "max"):
        raise StudyError(f"{show_argument('direction', definition.direction)} must be 'min' or 'max'")
    if not isinstance(definition.max_steps, int) or definition.max_steps < 1:
        raise StudyError(
            f"{show_argument('max_steps', definition.max_steps)} must be a whole number, 1 or more: the steps of a full training"
        )
    if not isinstance(definition.workers, int) or definition.workers < 1:
        raise StudyError(f"{show_argument('workers', definition.workers)} must be a whole number, 1 or more")
    if not isinstance(definition.seed, int) or definition.seed < 0:
        raise StudyError(f"{show_argument('seed', definition.seed)} must be a whole number, 0 or more")
    definition.budget.require_fit(definition.max_steps, definition.prices.validate_epochs)
    price = 1 + definition.prices.validate_epochs
    if definition.budget.unit == "epochs" and definition.budget.total < price:
        raise BudgetError(
            f"the budget {definition.budget.show(definition.budget.total)} is too small: one step with its validation costs "
            f"{price:g}; raise it to that at least"
        )


def find_losses(ledger: Ledger, survivors: Mapping[int, int], uncharged_s: Mapping[int, float]) -> list[StateLoss]:
    """Return what was lost with the process that ran the study before: states of trials, and the time of their running steps.

    `survivors` has the step of each trial whose state still exists. `uncharged_s` has the seconds of each open order that
    were not charged. Trials that are complete and trials that the user trains are left out.
    """
    seconds = {one.order.trial: uncharged_s.get(number, 0.0) for number, one in ledger.open_orders.items()}
    losses = []
    for trial in ledger.trials:
        is_external = trial.open_order is not None and ledger.open_orders[trial.open_order].order.is_external
        if trial.steps >= trial.limit or is_external:
            continue
        resumable_step, lost_s = min(survivors.get(trial.number, 0), trial.steps), seconds.get(trial.number, 0.0)
        if resumable_step != trial.resumable_step or lost_s > 0:
            why = "the process that ran the study ended"
            price = price_of(lost_s)
            losses.append(
                StateLoss(
                    trial=trial.number,
                    resumable_step=resumable_step,
                    seconds=float(lost_s),
                    why=why,
                    price_factor=price,
                )
            )
    return losses
