"""Names of methods and tools from elsewhere, with the policy to use here instead.

Without them, the suggestion for an unknown name would be the most similar name, and `boil` is no replacement for `bohb`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_TYPO_SIMILARITY = 0.75  # least similarity of a mistyped name to the intended one
_MODEL = "cost_aware_ei models the loss with a Gaussian process and counts what each trial costs"
_RACE = "the default, guided_halving, gives many trials a few steps and the best of them more"
_HALVING = (
    "successive_halving is the textbook rule; sequential_halving knows the total budget and plans with it, "
    "and the default, guided_halving, is this rule with a model that chooses new configurations."
)
_STOPPING = (
    "there is no separate stopping rule: asha and sequential_halving compare trials at the same step, "
    "and bo_bos stops them one by one"
)
_EVOLUTION = f"populations need more full trainings than a small budget pays for; {_RACE}"
_QUASI_RANDOM = "random_search already uses quasi-random points, which cover the space evenly"
_ONE_RUN = "to change the hyperparameters of one training while it runs, use ce_gp_ucb (shoestring.OnlineTuner)"
_TOOL = "this is another tool, not a policy"

_ADVICE = {  # names in the form that `_normalise` returns
    # Bayesian optimisation
    "bayes": f"{_MODEL}.",
    "bayesian": f"{_MODEL}.",
    "bayesianoptimization": f"{_MODEL}.",
    "bayesianoptimisation": f"{_MODEL}.",
    "bayesopt": f"{_MODEL}.",
    "bo": f"{_MODEL}; bo_bos also stops trials early, by their curves.",
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
    "ucb": "gp_ucb chooses configurations by an upper confidence bound, ucb1 the arms of one training.",
    # races, with and without a model
    "bohb": 'write hyperband, with the setting newcomers = "guided": a Gaussian process then chooses new configurations.',
    "dehb": f"not here; hyperband has its brackets, and {_EVOLUTION}.",
    "halving": _HALVING,
    "hb": "write hyperband.",
    "mobster": 'write asha, with the setting newcomers = "guided": a Gaussian process then chooses new configurations.',
    "sh": _HALVING,
    "sha": _HALVING,
    # learning curves
    "dpl": "its power laws are not here; bhpt trains step by step the trial whose curve is likely to become best.",
    "dyhpo": "not here; bhpt trains step by step the trial whose curve is likely to become best, and knows the budget.",
    "freezethaw": "bhpt pauses and resumes trials and knows the budget; freeze_thaw_bo is the method that it improves.",
    "ftbo": "freeze_thaw_bo is this method; bhpt improves it and knows the budget.",
    "ifbo": "its pretrained network is not here; bhpt pauses and resumes trials by a surrogate of their curves.",
    "lce": "lc_prediction stops a trial whose extrapolated curve is not good enough.",
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
    "nsgaii": f"there is only one objective here; {_EVOLUTION}.",
    "nsga2": f"there is only one objective here; {_EVOLUTION}.",
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
    # the default policy
    "auto": f"leave the policy out: {_RACE}.",
    "default": f"leave the policy out: {_RACE}.",
}


def find_same_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that differs only in spelling, or None."""
    return {_normalise(ours): ours for ours in known}.get(_normalise(name))


def advise(name: str) -> str | None:
    """Return what to use instead of a name from another tool; None for a name that is not one of these."""
    return _ADVICE.get(_normalise(name))


def find_likely_name(name: str, known: Iterable[str]) -> str | None:
    """Return the name from another tool that is more similar than any known name, or None."""
    bare = _normalise(name)
    ours = [_normalise(policy) for policy in known]
    closest = get_close_matches(bare, [*ours, *_ADVICE], n=1, cutoff=_TYPO_SIMILARITY)
    return closest[0] if closest and closest[0] not in ours else None


def _normalise(name: str) -> str:
    """Return the name without case, punctuation, and the suffixes that other tools add to the names of methods."""
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    for suffix in ("sampler", "pruner", "scheduler", "search", "searcher", "searchcv"):
        if bare != suffix:
            bare = bare.removesuffix(suffix)
    return bare
