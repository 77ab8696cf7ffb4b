"""Policies by name. One method a file; a plugin adds its own through the entry-point group `shoestring.policies`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from shoestring.core.policy import Policy
from shoestring.errors import PolicyError, did_you_mean

DEFAULT = "sequential_halving"
REGISTRY = {
    "asha": "shoestring.policies.halving.asha:ASHA",
    "bhpt": "shoestring.policies.freeze_thaw.bhpt:BHPT",
    "bo_bos": "shoestring.policies.stopping.bo_bos:BOBOS",
    "boca": "shoestring.policies.stopping.boca:BOCA",
    "boil": "shoestring.policies.boil.boil:BOIL",
    "ce_gp_ucb": "shoestring.policies.online.ce_gp_ucb:CEGPUCB",
    "cost_aware_ei": "shoestring.policies.cost_aware.cost_aware_ei:CostAwareEI",
    "epsilon_greedy": "shoestring.policies.online.epsilon_greedy:EpsilonGreedy",
    "exp3s": "shoestring.policies.online.exp3s:EXP3S",
    "fabolas_epochs": "shoestring.policies.freeze_thaw.fabolas_epochs:FabolasEpochs",
    "freeze_thaw_bo": "shoestring.policies.freeze_thaw.freeze_thaw_bo:FreezeThawBO",
    "gp_ucb": "shoestring.policies.stopping.gp_ucb:GPUCB",
    "gp_ucb_bandit": "shoestring.policies.online.gp_ucb_bandit:GPUCBBandit",
    "grid": "shoestring.policies.plain.grid:Grid",
    "hyperband": "shoestring.policies.halving.hyperband:Hyperband",
    "lc_prediction": "shoestring.policies.stopping.lc_prediction:LCPrediction",
    "r_gp_ucb": "shoestring.policies.online.r_gp_ucb:RGPUCB",
    "random_search": "shoestring.policies.plain.random_search:RandomSearch",
    "replay_fixed": "shoestring.policies.plain.replay_fixed:ReplayFixed",
    "rollout": "shoestring.policies.freeze_thaw.rollout:Rollout",
    "sequential_halving": "shoestring.policies.halving.sequential_halving:SequentialHalving",
    "softmax": "shoestring.policies.online.softmax:Softmax",
    "successive_halving": "shoestring.policies.halving.successive_halving:SuccessiveHalving",
    "top_k_after_one": "shoestring.policies.halving.top_k_after_one:TopKAfterOne",
    "tv_gp_ucb": "shoestring.policies.online.tv_gp_ucb:TVGPUCB",
    "ucb1": "shoestring.policies.online.ucb1:UCB1",
}


def names() -> list[str]:
    return sorted({**_plugins(), **REGISTRY})


def policy_class(name: str) -> type[Policy]:
    where = REGISTRY.get(name) or _plugins().get(name)
    if where is None:
        raise PolicyError(f"unknown policy {name!r}. {did_you_mean(name, names())}")
    module, _, attribute = where.partition(":")
    found: type[Policy] = getattr(import_module(module), attribute)
    return found


def make(name: str, settings: Mapping[str, Any] | None = None) -> Policy:
    """A policy from its name and settings, with an error for every setting that it does not have."""
    if not isinstance(name, str):
        raise PolicyError(f"policy={name!r} must be the name of a policy. Known: {', '.join(names())}.")
    if not isinstance(settings, Mapping | None):
        raise PolicyError(f"the settings {settings!r} of {name} must be a dict, as {{'reduction_factor': 3}}")
    kind = policy_class(name)
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    for setting in settings or {}:
        if setting not in known:
            raise PolicyError(f"{name} has no setting {setting!r}. {did_you_mean(str(setting), known)}")
    try:
        return kind(**(settings or {}))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:  # of a type it did not reckon with
        raise PolicyError(
            f"{name} cannot take the settings {dict(settings or {})!r}: {error}. Its defaults are {defaults_of(name)!r}"
        ) from None


def settings_of(policy: Policy) -> dict[str, Any]:
    """All settings of a policy, as the ledger keeps them."""
    if not is_dataclass(policy):
        raise PolicyError(f"the policy {policy!r} must be a dataclass, so that the ledger can keep its settings")
    return {f.name: getattr(policy, f.name) for f in fields(policy)}


def defaults_of(name: str) -> dict[str, Any]:
    """Settings and their defaults, for listings."""
    return {
        f.name: f.default if f.default is not MISSING else None
        for f in fields(policy_class(name))  # type: ignore[arg-type]
    }


@lru_cache(maxsize=1)
def _plugins() -> dict[str, str]:
    from importlib.metadata import entry_points  # a third of all import time, for something few installations have

    return {point.name: point.value for point in entry_points(group="shoestring.policies")}


def groups() -> dict[str, list[str]]:
    return {"all": names()}
