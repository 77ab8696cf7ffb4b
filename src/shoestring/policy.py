"""What an author of a policy imports: the protocol, its decisions, and helpers that choose, compare and check.

A policy is any object with a `name` and a method `decide(ledger, rng)` that returns `Train`, `Wait` or `Finish`. The guide
`docs/how-to/add-a-policy.md` writes one step by step, and `shoestring.testing` has the contract tests that it should pass.

    decisions       Train, Wait, Finish; start_trial, continue_trial, nothing_to_train, train_queued_or_interrupted
    the past        Ledger, Trial, Order, Receipt, View
    configurations  find_untried_config, Config, Space
    choosing        find_best, find_best_of_rows, sort_best_first, reaches, round_result
    explaining      compare, compare_scores, compare_losses; WhyText; Prediction, CurvePrediction
    fitted numbers  Memo, Refits
    settings        require_whole, require_between, require_within, require_at_least, require_share, require_one_of
"""

from shoestring.core.deciding.comparison import compare, compare_losses, compare_scores
from shoestring.core.deciding.decision import Decision, Finish, Memo, Train, Wait, Why
from shoestring.core.deciding.memo import Refits
from shoestring.core.deciding.policy import (
    Policy,
    continue_trial,
    find_untried_config,
    nothing_to_train,
    start_trial,
    train_queued_or_interrupted,
)
from shoestring.core.deciding.prediction import CurvePrediction, Prediction
from shoestring.core.deciding.reproducible import find_best, find_best_of_rows, reaches, round_result, sort_best_first
from shoestring.core.deciding.why_text import WhyText
from shoestring.core.ledger.entries import Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.ledger.views import View
from shoestring.core.space.space import Config, Space
from shoestring.core.values.checks import (
    require_at_least,
    require_between,
    require_one_of,
    require_share,
    require_whole,
    require_within,
)

__all__ = [
    "Config",
    "CurvePrediction",
    "Decision",
    "Finish",
    "Ledger",
    "Memo",
    "Order",
    "Policy",
    "Prediction",
    "Receipt",
    "Refits",
    "Space",
    "Train",
    "Trial",
    "View",
    "Wait",
    "Why",
    "WhyText",
    "compare",
    "compare_losses",
    "compare_scores",
    "continue_trial",
    "find_best",
    "find_best_of_rows",
    "find_untried_config",
    "nothing_to_train",
    "reaches",
    "require_at_least",
    "require_between",
    "require_one_of",
    "require_share",
    "require_whole",
    "require_within",
    "round_result",
    "sort_best_first",
    "start_trial",
    "train_queued_or_interrupted",
]
