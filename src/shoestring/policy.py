"""What an author of a policy imports: the protocol, its decisions, and helpers that choose, compare and check.

A policy is any object with a `name` and a method `decide(ledger, rng)` that returns `Train`, `Wait` or `Finish`. The guide
`docs/how-to/add-a-policy.md` writes one step by step, and `shoestring.testing` has the contract tests that it should pass.

    decisions       Decision: one of Train, Wait and Finish; start_trial, continue_trial, train_best_unfinished,
                    train_queued_or_interrupted, nothing_to_train
    the past        Ledger, Trial, OpenOrder, StudyState, View, Budget, Prices, Cost; Entry: one of StudyDefinition, Order,
                    Receipt, StateLoss, Amendment and Note
    configurations  Config: values by parameter name; find_untried_config, find_interrupted, is_in_design; Space, Encoding,
                    Points
    choosing        find_best, find_best_of_rows, are_best, sort_best_first, reaches, LOG_SPREAD, round_result
    explaining      Why: numbers by name, stored with the decision; NO_WHY; Labels: a text for each of these names; WhyText;
                    compare, compare_scores, compare_losses; Prediction, CurvePrediction, CandidateScores, Regions
    fitted numbers  Memo: what a later decision needs, stored with the decision; NO_MEMO; Refits, Fit
    settings        require_whole, require_between, require_within, require_at_least, require_share, require_one_of
"""

from shoestring.core.deciding.comparison import compare, compare_losses, compare_scores
from shoestring.core.deciding.decision import NO_MEMO, NO_WHY, Decision, Finish, Memo, Train, Wait, Why
from shoestring.core.deciding.memo import Fit, Refits
from shoestring.core.deciding.policy import (
    Policy,
    continue_trial,
    find_interrupted,
    find_untried_config,
    is_in_design,
    nothing_to_train,
    start_trial,
    train_best_unfinished,
    train_queued_or_interrupted,
)
from shoestring.core.deciding.prediction import CandidateScores, CurvePrediction, Prediction, Regions
from shoestring.core.deciding.reproducible import (
    LOG_SPREAD,
    are_best,
    find_best,
    find_best_of_rows,
    reaches,
    round_result,
    sort_best_first,
)
from shoestring.core.deciding.why_text import Labels, WhyText
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Amendment, Cost, Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import OpenOrder, StudyState, Trial
from shoestring.core.ledger.views import View
from shoestring.core.space.encoding import Encoding, Points
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
    "LOG_SPREAD",
    "NO_MEMO",
    "NO_WHY",
    "Amendment",
    "Budget",
    "CandidateScores",
    "Config",
    "Cost",
    "CurvePrediction",
    "Decision",
    "Encoding",
    "Entry",
    "Finish",
    "Fit",
    "Labels",
    "Ledger",
    "Memo",
    "Note",
    "OpenOrder",
    "Order",
    "Points",
    "Policy",
    "Prediction",
    "Prices",
    "Receipt",
    "Refits",
    "Regions",
    "Space",
    "StateLoss",
    "StudyDefinition",
    "StudyState",
    "Train",
    "Trial",
    "View",
    "Wait",
    "Why",
    "WhyText",
    "are_best",
    "compare",
    "compare_losses",
    "compare_scores",
    "continue_trial",
    "find_best",
    "find_best_of_rows",
    "find_interrupted",
    "find_untried_config",
    "is_in_design",
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
    "train_best_unfinished",
    "train_queued_or_interrupted",
]
