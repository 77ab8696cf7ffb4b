"""Why an order was placed, in a sentence that a person can check, and the numbers behind it with their units.

What every policy tells is listed in `core/deciding/comparison.py`; what each adds has a label here. The numbers of a policy from another
package keep the names that it gave them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shoestring.core.ledger.entries import Note, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Scalar
from shoestring.core.values.strict_json import loads
from shoestring.reports.facts import say_config

COMPARISON = {"compared", "score_name", "best_is", "score", "runner_up", "runner_up_score", "rank", "last_kept_score"}
_QUERIES = {
    "first": "since nothing was observed yet",
    "always": "as every round is",
    "bernoulli": "as chance decided",
    "queued": "since you asked for this config",
    "cap": "since the wall on validation is reached",
    "budget": "since the rounds to come need what is left",
}

# sentences ------------------------------------------------------------------------------------------------------------


def say_reason(order: Order, ledger: Ledger) -> str:
    """One sentence: what was compared, by what, how close it was; or that nothing was compared, and what was bought instead."""
    why = order.why
    if "compared" not in why:
        return "the policy did not say what it compared"
    told = _say_comparison(order) if why["compared"] else f"nothing was compared: {_say_origin(order, ledger)}"
    return "; ".join([*_say_before(order), told, *_say_after(order)])


def _say_comparison(order: Order) -> str:
    why = order.why
    compared, name, score, runner_up = why["compared"], why["score_name"], _say(why["score"]), _say_rival(order)
    if "last_kept_score" in why:
        place = f"kept: {_ordinal(int(str(why['rank'])) + 1)} of {compared} by {name}, with {score}"
        last, is_last = why["last_kept_score"], why["score"] == why["last_kept_score"]
        which = "only" if why["rank"] == 0 else "last"
        kept = f"it was the {which} one kept" if is_last else f"the last one kept had {_say(last)}"
        had = ", and the first one left ({}) had {}" if is_last else ", the first one left ({}) {}"
        left = had.format(runner_up, _say(why["runner_up_score"])) if runner_up else ", and none was left"
        return f"{place}; {kept}{left}"
    if compared == 1 or not runner_up:
        return f"there was no other candidate: {name} {score}"
    rival_score = _say(why["runner_up_score"])
    if why["best_is"] == "drawn":
        return f"drawn from {compared} with probability {score}; the likeliest other ({runner_up}) had {rival_score}"
    if runner_up == why["runner_up"]:  # not a candidate but something else to do
        return f"{name} {score}, against {rival_score} for {runner_up}"
    had = "had the same" if why["score"] == why["runner_up_score"] else f"had {rival_score}"
    return f"chosen from {compared} for the {why['best_is']} {name}, {score}; the runner-up ({runner_up}) {had}"


def _say_rival(order: Order) -> str:
    name = order.why.get("runner_up")
    if isinstance(name, int):
        return f"trial {name}"
    return say_config(loads(name)) if isinstance(name, str) and name.startswith("{") else str(name or "")


def _say_origin(order: Order, ledger: Ledger) -> str:
    """Where an order came from that no comparison led to."""
    why = order.why
    queued = (entry for entry in ledger.entries() if isinstance(entry, Note) and entry.topic == "enqueue")
    if any(dict(note.facts["config"]) == dict(order.config) for note in queued):
        return "you asked for this config"
    if "cut short" in (why.get("phase"), why.get("was")):
        return "the trial goes on where it was cut short"
    if "point" in why:
        return f"point {why['point']} of the grid"
    if "line" in why:
        return f"line {why['line']} of the list"
    if any(earlier.trial == order.trial for earlier in ledger.orders[: order.number]):
        return "the trial goes on as planned"
    place = f", newcomer {int(str(why['arm'])) + 1} of {why['of']}" if {"arm", "of"} <= set(why) else ""
    return f"the next new config in the order fixed by seed {ledger.opened.seed}{place}"


def _say_before(order: Order) -> Iterator[str]:
    why = order.why
    if "gave_up" in why:
        reason = f" ({why['gave_up_reason']})" if "gave_up_reason" in why else ""
        yield f"trial {why['gave_up']} was given up at step {why['gave_up_at']}{reason}"
    if "stage" in why:
        yield str(why["stage"])
    if why.get("phase") in ("initial design", "thawed", "recommended", "warm-up", "between forecasts"):
        yield str(why["phase"])
    if why.get("committed"):
        yield "all that is left goes to the run expected to end best"


def _say_after(order: Order) -> Iterator[str]:
    why = order.why
    if "reason" in why:
        yield str(why["reason"])
    if "query" in why:
        validated = "validated" if order.validate != "none" else "not validated"
        yield f"{validated}, {_say_query(order)}"


def _say_query(order: Order) -> str:
    why, is_validated = order.why, order.validate != "none"
    if why["query"] == "lcb_ucb":
        return f"since {'a' if is_validated else 'no'} competitor could be better"
    if why["query"] != "kappa":
        return _QUERIES.get(str(why["query"]), f"by the rule {why['query']}")
    if "pr_better" not in why:
        return "since there is no competitor"
    enough = f"below {_say(why['kappa'])}" if is_validated else f"{_say(why['kappa'])} is enough"
    return f"since it beats its closest competitor with probability {_say(why['pr_better'])} ({enough})"


# numbers --------------------------------------------------------------------------------------------------------------

LABELS = {  # {unit} is the budget's
    "added": "points added from inside curves (points)",
    "alpha_misses_by": "log score by which that exponent misses it",
    "arm": "arm (number)",
    "arms": "trials still in (trials)",
    "asymptote": "value the run tends to (value)",
    "at": "where it stood (step)",
    "beyond_the_arms": "all arms are at their end, and this config is one more",
    "bound": "value that the run could reach, its confidence bound (value)",
    "bracket": "bracket (number, from 0)",
    "c_hat": "c_hat, arm expected to end best (number)",
    "cell": "cell of the decision map (number)",
    "chance_to_beat_best": "chance to beat the best value so far (probability)",
    "coefficient": "factor of the threshold on lengths",
    "committed": "whether all that is left goes to the best run",
    "cost_exponent": "power of the cost that improvement is divided by",
    "decision": "what the map says (0 go on, 1 give up, 2 trust)",
    "ei": "expected improvement (value)",
    "ei_max": "largest expected improvement of all candidates (value)",
    "expected_end": "value it is expected to end at (value)",
    "expected_gain": "improvement to expect (value)",
    "first": "one of the first arms, before there is a model",
    "forecast": "value forecast for the end of the run (value)",
    "forecast_std": "standard deviation of that (value)",
    "from": "where the config is from",
    "front_position": "place on the front of improvement and cost, from the cheapest (number; 0: not on it)",
    "front_size": "candidates on that front (candidates)",
    "frozen_at": "where it was frozen (step)",
    "gave_up": "given up before this (trial)",
    "gave_up_at": "where (step)",
    "growth": "growth of the logistic weight",
    "implied_alpha": "exponent of the cost that would have chosen it too",
    "incumbent": "best value of the other runs (value)",
    "information": "information about which run is best (nats)",
    "information_per_step": "the same for each step it costs (nats/step)",
    "k1": "loss of giving up a run that would have won (steps)",
    "leader": "run expected to end best (trial)",
    "length_gap": "what this length cannot tell (share)",
    "length_least": "least deviation for which this length would do",
    "length_std": "deviation at this length (in amplitudes of the surrogate)",
    "line": "line of the list (number, from 0)",
    "log_condition": "condition of the covariance (ln)",
    "loss_give_up": "expected loss of giving up (steps)",
    "loss_go_on": "expected loss of another step (steps)",
    "loss_trust": "expected loss of training to the end (steps)",
    "mean": "expected (value)",
    "midpoint": "midpoint of the logistic weight",
    "mu": "mu, best value to expect of the run (value)",
    "multiplier": "standard deviations taken off for the bound",
    "new": "whether it begins a run",
    "of": "newcomers of the bracket (trials)",
    "phase": "phase",
    "planned_at": "step at which its futures were simulated (step)",
    "point": "point of the grid (number, from 0)",
    "points": "points in the model (points)",
    "predicted_cost": "predicted cost ({unit})",
    "predicted_score": "predicted score of the curve (score)",
    "prob_better": "probability of ending better than the best other run",
    "Q": "Q, best value to expect once the run's future is known (value)",
    "queued": "whether you asked for it",
    "r": "r, steps that all the money left buys (steps)",
    "reach": "steps that the money left buys of it (steps)",
    "reason": "reason",
    "round": "round (number)",
    "rounds": "rounds of the race (rounds)",
    "rung": "rung (number, from 0)",
    "share": "money for this round ({unit})",
    "sigma": "sigma, standard deviation of mu (value)",
    "stage": "stage",
    "stages": "steps looked ahead (steps)",
    "statistic": "mean error so far (0 to 1)",
    "std": "standard deviation of what is expected (value)",
    "std_full": "standard deviation at the end of the run (value)",
    "std_now": "standard deviation now (value)",
    "tau": "tau, steps to the run's best (steps)",
    "tau_star": "tau_star, steps to the best run's best (steps)",
    "threshold": "least expected improvement that was enough (value)",
    "until": "train newcomers to (step)",
    "value": "improvement to expect of the steps ahead (value)",
    "VoI": "VoI, improvement to expect from knowing it (value)",
    "was": "what it was",
}
ONLINE_LABELS = {  # of orders that say whether they are validated
    "beta": "beta, its root counts standard deviations",
    "competitors": "configs that must be ruled out (configs)",
    "forgetting_rate": "share of what is known that is forgotten (per round)",
    "kappa": "kappa, how sure a round without validation must be (probability)",
    "mean": "expected reward (reward)",
    "observed": "rewards seen of this arm (rewards)",
    "pr_better": "how surely it beats the closest competitor (probability)",
    "probability": "probability of this arm",
    "query": "rule of validation",
    "query_probability": "chance of a validation (probability)",
    "std": "standard deviation of the reward (reward)",
    "sum": "sum of these rewards (reward)",
}


def label_numbers(order: Order, ledger: Ledger) -> list[tuple[str, Scalar]]:
    """What the policy told beside the comparison, each with a label and its unit."""
    told = COMPARISON | {"stage", "reason"}  # the sentence has these words as they are
    return [(_label(name, order, ledger), value) for name, value in order.why.items() if name not in told]


def _label(name: str, order: Order, ledger: Ledger) -> str:
    labels = LABELS | ONLINE_LABELS if "query" in order.why else LABELS
    if name not in labels and name.startswith("gave_up_"):
        return f"there: {labels.get(name.removeprefix('gave_up_'), name)}"
    return labels.get(name, name).format(unit=ledger.budget.unit)


def _say(value: Scalar) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "unlimited (never tried)"  # an arm that was never observed
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
