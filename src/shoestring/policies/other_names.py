"""Names that people know from other tools, and what to use here instead. A lookalike would be no help: `bohb` is not `boil`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_LIKELY = 0.75  # similarity of a slip of the finger
_MODEL = "cost_aware_ei models the loss with a Gaussian process and counts what each trial costs"
_RACE = "sequential_halving, which the default begins with, gives many trials a few steps and the best of them more"
_HALVING = (
    "successive_halving is the textbook's; sequential_halving knows the total and plans with it, "
    "and the default, thrift, begins with it."
)
_STOPPING = (
    "no rule beside the search stops runs here: asha and sequential_halving compare runs at the same step, "
    "bo_bos stops them one by one"
)
_EVOLUTION = f"populations need more full trainings than a small budget buys; {_RACE}"
_QUASI_RANDOM = "random_search already takes quasi-random points, which cover the space evenly"
_ONE_RUN = "to change the config of one run while it trains, use ce_gp_ucb (shoestring.OnlineTuner)"
_TOOL = "that is a tool of its own, not a policy of this one"

_INSTEAD = {  # spelled as `_normalise` spells
    # Bayesian optimisation
    "bayes": f"{_MODEL}.",
    "bayesian": f"{_MODEL}.",
    "bayesianoptimization": f"{_MODEL}.",
    "bayesianoptimisation": f"{_MODEL}.",
    "bayesopt": f"{_MODEL}.",
    "bo": f"{_MODEL}; bo_bos also stops runs early, from their curves.",
    "botorch": f"{_TOOL}; {_MODEL}.",
    "ei": f'{_MODEL}; with the setting acquisition = "ei" it is plain expected improvement.',
    "eips": f'{_MODEL}; with the setting acquisition = "eipu" it is improvement per unit of cost.',
    "eipu": f'{_MODEL}; with the setting acquisition = "eipu" it is improvement per unit of cost.',
    "fabolas": "fabolas_epochs is its rule, with epochs in place of data set sizes.",
    "gp": f"{_MODEL}; gp_ucb is the plain upper confidence bound.",
    "gpei": f'{_MODEL}; with the setting acquisition = "ei" it is plain expected improvement.',
    "skopt": f"{_TOOL}; {_MODEL}.",
    "smac": f"its random forest is not here; {_MODEL}.",
    "smac3": f"its random forest is not here; {_MODEL}.",
    "spearmint": f"{_TOOL}; {_MODEL}.",
    "thompson": f"Thompson sampling is not here; {_MODEL}.",
    "tpe": f"its density estimates are not here; {_MODEL}.",
    "turbo": f"its trust regions are not here; {_MODEL}.",
    "ucb": "gp_ucb chooses configs by an upper confidence bound, ucb1 the arms of one run.",
    # races, with and without a model
    "bohb": "not here; hyperband gives its brackets, cost_aware_ei its model.",
    "dehb": f"not here; hyperband gives its brackets, and {_EVOLUTION}.",
    "halving": _HALVING,
    "hb": "write hyperband.",
    "mobster": "not here; asha gives its promotions, cost_aware_ei its model.",
    "sh": _HALVING,
    "sha": _HALVING,
    # curves
    "dpl": "its power laws are not here; bhpt buys epoch by epoch where a curve is likely to lead furthest.",
    "dyhpo": "not here; bhpt buys epoch by epoch where a curve is likely to lead furthest, and knows the budget.",
    "freezethaw": "bhpt freezes and thaws runs and knows the budget; freeze_thaw_bo is the method it improves on.",
    "ftbo": "freeze_thaw_bo is the method; bhpt improves on it and knows the budget.",
    "ifbo": "its pretrained network is not here; bhpt freezes and thaws runs on a belief fitted to their curves.",
    "lce": "lc_prediction stops a run that its extrapolated curve speaks against.",
    # stopping rules
    "earlystopping": f"{_STOPPING}.",
    "median": f"{_STOPPING}.",
    "medianstopping": f"{_STOPPING}.",
    "medianstoppingrule": f"{_STOPPING}.",
    "patient": f"{_STOPPING}.",
    "percentile": f"{_STOPPING}.",
    "wilcoxon": f"{_STOPPING}.",
    # one run that changes
    "pb2": f"not here; {_ONE_RUN}.",
    "pbt": f"not here; {_ONE_RUN}.",
    "populationbasedtraining": f"not here; {_ONE_RUN}.",
    # populations
    "cma": f"{_EVOLUTION}.",
    "cmaes": f"{_EVOLUTION}.",
    "de": f"{_EVOLUTION}.",
    "ea": f"{_EVOLUTION}.",
    "evolution": f"{_EVOLUTION}.",
    "ga": f"{_EVOLUTION}.",
    "genetic": f"{_EVOLUTION}.",
    "nsgaii": f"one number is tuned for here; {_EVOLUTION}.",
    "nsga2": f"one number is tuned for here; {_EVOLUTION}.",
    "pso": f"{_EVOLUTION}.",
    # points
    "bruteforce": "grid trains every combination.",
    "halton": f"{_QUASI_RANDOM}.",
    "latinhypercube": f"{_QUASI_RANDOM}.",
    "lhs": f"{_QUASI_RANDOM}.",
    "qmc": f"{_QUASI_RANDOM}.",
    "randomized": "write random_search.",
    "sobol": f"{_QUASI_RANDOM}.",
    # tools
    "ax": f"{_TOOL}; {_MODEL}.",
    "flaml": f"{_TOOL}; {_MODEL}.",
    "hyperopt": f"{_TOOL}; {_MODEL}.",
    "neps": f"{_TOOL}; {_RACE}.",
    "nevergrad": f"{_TOOL}; {_EVOLUTION}.",
    "optuna": f"{_TOOL}; {_MODEL}.",
    "raytune": f"{_TOOL}; {_RACE}.",
    "synetune": f"{_TOOL}; {_RACE}.",
    "vizier": f"{_TOOL}; {_MODEL}.",
    "auto": f"leave the policy out: {_RACE}.",
    "default": f"leave the policy out: {_RACE}.",
}


def find_same_name(name: str, known: Iterable[str]) -> str | None:
    """Our name that is meant, written in another way."""
    return {_normalise(ours): ours for ours in known}.get(_normalise(name))


def advise(name: str) -> str | None:
    """What to use for something that other tools have."""
    return _INSTEAD.get(_normalise(name))


def find_likely_name(name: str, known: Iterable[str]) -> str | None:
    """A name of another tool that this looks like, more than like any of ours."""
    bare = _normalise(name)
    ours = [_normalise(one) for one in known]
    closest = get_close_matches(bare, [*ours, *_INSTEAD], n=1, cutoff=_LIKELY)
    return closest[0] if closest and closest[0] not in ours else None


def _normalise(name: str) -> str:
    """Without case, punctuation, and what other tools hang on to the names of their methods."""
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    for suffix in ("sampler", "pruner", "scheduler", "search", "searcher", "searchcv"):
        if bare != suffix:
            bare = bare.removesuffix(suffix)
    return bare
