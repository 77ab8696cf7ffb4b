"""Read from a ledger, in one pass for all figures, what was trained, when, at what cost and with what result.

Costs are in the budget's unit. A cost without a price in that unit (such as setup in a budget of epochs) is shown in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from shoestring.core.deciding.prediction import Prediction
from shoestring.core.ledger.accounting import StudyStateView
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Order, Receipt, StateLoss
from shoestring.core.ledger.failures import describe_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import StudyState, Trial

KINDS = {  # what the seconds were spent on, in the order in which they are drawn
    "train": "training",
    "validate": "validation",
    "setup": "setup and saving",
    "thinking": "policy decisions",
    "repeated": "repeated steps",
    "check": "resume check",
    "failed": "failed or interrupted",
    "lost": "lost with a worker",
}
PredictFunction = Callable[[Ledger, Order], Prediction | None]  # takes the ledger as it was before the order


@dataclass(slots=True)
class Segment:
    """The part of a trial that one order trained."""

    order: Order
    began_s: float  # on the runner's clock; of ask and tell, which have Unix time: since the first of their orders
    ended_s: float
    spent_before: float  # what the study had spent when the order was placed
    from_step: int  # the step of the trial when the order was placed
    to_step: int
    seconds: float = 0.0  # the sum of its receipts
    cost: float = 0.0  # what it was charged, in the budget's unit
    worker: str = ""
    status: str = "open"  # ok, diverged, failed, interrupted, open
    text: str = ""  # a failure, in one line


@dataclass(frozen=True, slots=True)
class NewBest:
    """A new best value, and what had been spent when it was found."""

    spent: float
    value: float
    trial: int
    step: int


@dataclass(frozen=True, slots=True)
class PastPrediction:
    """What the policy predicted at a decision, and the state of the study then."""

    prediction: Prediction
    steps_then: Mapping[int, int]  # trial -> its steps, for the predicted trials
    best_then: float | None  # the best value


@dataclass
class StudyHistory:
    """What happened in a study; `read_history` makes it."""

    name: str
    ledger: Ledger
    segments: list[Segment] = field(default_factory=list)  # by order number
    bests: list[NewBest] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    failed_steps: int = 0
    predictions: dict[int, PastPrediction] = field(default_factory=dict)  # by order number, for the chosen decisions
    state: StudyState = field(init=False)
    budget: Budget = field(init=False)
    trials: Sequence[Trial] = field(init=False)
    is_max: bool = field(init=False)
    metric: str = field(init=False)  # what the values are; "value" if the user gave no name

    def __post_init__(self) -> None:
        ledger = self.ledger
        self.state, self.budget, self.trials = ledger.state, ledger.budget, ledger.trials
        self.is_max = ledger.definition.direction == "max"
        self.metric = ledger.definition.metric or "value"

    def segments_of_trials(self) -> Mapping[int, list[Segment]]:
        """Return the segments of each trial, in the order in which they were trained."""
        by_trial: dict[int, list[Segment]] = {}
        for segment in self.segments:
            by_trial.setdefault(segment.order.trial, []).append(segment)
        return by_trial


def read_history(
    name: str, ledger: Ledger, predict: PredictFunction | None = None, decisions: Container[int] = ()
) -> StudyHistory:
    """Return the history of a study, from one pass over the entries of its ledger.

    A second study state is updated entry by entry, because the amount spent at each moment is needed. `predict` is called for
    the orders whose numbers are in `decisions`, with the ledger as it was before each of them.
    """
    history = StudyHistory(name, ledger)
    view = StudyStateView()
    state = view.start(ledger.definition)
    entries = ledger.entries()
    first_external_at: float | None = None
    for place, entry in enumerate(entries[1:], 1):
        before = state.spent
        if predict is not None and isinstance(entry, Order) and entry.number in decisions:
            then = Ledger.restore(ledger.definition, state, place, lambda place=place: entries[:place])  # type: ignore[misc]
            if (prediction := predict(then, entry)) is not None:
                history.predictions[entry.number] = _copy_state(then, entry, prediction)
        is_repeated = isinstance(entry, Receipt) and entry.step <= state.trials[entry.trial].steps
        best_before = state.best_loss
        state = view.absorb(state, entry)
        if isinstance(entry, Order):
            trial = state.trials[entry.trial]
            if entry.is_external and first_external_at is None:
                first_external_at = entry.at
            began_s = entry.at - (first_external_at or 0.0) if entry.is_external else entry.at
            history.segments.append(Segment(entry, began_s, began_s, before, trial.steps, trial.steps))
        elif isinstance(entry, Receipt):
            _add_receipt(history, entry, state.spent - before, first_external_at or 0.0, is_repeated=is_repeated)
            if state.best_loss < best_before and entry.value is not None:
                history.bests.append(NewBest(state.spent, entry.value, entry.trial, entry.step))
        elif isinstance(entry, StateLoss) and (number := state.trials[entry.trial].open_order) is not None:
            history.segments[number].cost += state.spent - before
    for kind in ("thinking", "check", "lost"):
        history.seconds[kind] = state.by_kind[kind]
    return history


def _copy_state(then: Ledger, order: Order, prediction: Prediction) -> PastPrediction:
    """Return the prediction and the state of the study as numbers, because the state itself changes with the next entry."""
    numbers = {curve.trial for curve in prediction.curves} | {order.trial}
    steps = {trial.number: trial.steps for trial in then.trials if trial.number in numbers}
    return PastPrediction(prediction, steps, None if then.best is None else then.best.best_value)


def _add_receipt(
    history: StudyHistory, receipt: Receipt, charge: float, first_external_at: float, *, is_repeated: bool
) -> None:
    segment, cost = history.segments[receipt.order], receipt.cost
    at = receipt.at - first_external_at if segment.order.is_external else receipt.at
    segment.ended_s = max(segment.ended_s, at)
    segment.seconds += cost.total
    segment.cost += charge
    segment.worker = receipt.worker or segment.worker
    segment.status, segment.text = receipt.status, describe_failure(receipt.text)
    if receipt.is_finished:
        segment.to_step = max(segment.to_step, receipt.step)
    else:
        history.failed_steps += 1
    if not receipt.is_finished:
        history.seconds["failed"] += cost.total
    elif is_repeated:
        history.seconds["repeated"] += cost.total
    else:
        history.seconds["train"] += cost.train
        history.seconds["validate"] += cost.validate
        history.seconds["setup"] += cost.setup
