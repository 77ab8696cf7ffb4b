"""The history of a study for reports, with the predictions that its policy made for some of its decisions."""

from __future__ import annotations

from collections.abc import Sequence

from shoestring import policies
from shoestring.core.deciding.prediction import PredictingPolicy, Prediction
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import PolicyError, StudyError
from shoestring.reports.figures.decisions import MAX_CHOICES, pick_decisions
from shoestring.reports.figures.history import StudyHistory, read_history
from shoestring.study.blas import OneThread


def read_predicted_history(name: str, ledger: Ledger, decisions: Sequence[int] = ()) -> StudyHistory:
    """Return the history of a study with the predictions for these orders; if none are given, for a few that are picked here."""
    if len(set(decisions)) > MAX_CHOICES:
        raise StudyError(f"{len(set(decisions))} decisions are too many: choose {MAX_CHOICES} at most")
    history = read_history(name, ledger, predict_at, decisions or pick_decisions(ledger))
    for number in decisions:
        if not 0 <= number < len(ledger.orders):
            last = len(ledger.orders) - 1
            raise StudyError(f"there is no order {number} in {name!r}: its orders are 0 to {last}")
        if number not in history.predictions:
            others = ", ".join(map(str, pick_decisions(ledger)))
            advice = f"try {others}" if others else "no order of this study has one: leave the option out"
            raise StudyError(f"{ledger.state.policy} made no prediction for order {number}; {advice}")
    return history


def predict_at(ledger: Ledger, order: Order) -> Prediction | None:
    """Return the prediction of the policy for an order; None if it made none, or is not registered.

    `ledger` ends before the order.
    """
    try:
        policy = policies.restore(ledger.state.policy, ledger.state.settings)
    except PolicyError:  # the policy was passed as an object; the report leaves its predictions out
        return None
    with OneThread():  # as in `decide`: for such small matrices several threads are slower
        return policy.predict(ledger, order) if isinstance(policy, PredictingPolicy) else None
