"""Policies by name: the registry, the default, and how one is made from its settings.

    plain         random search, grid, a given list: never look at a value
    halving       races                                          `sequential_halving`
    cost_aware    which config next, when prices differ          `cost_aware_ei`
    freeze_thaw   which paused run gets the next step            `bhpt`
    stopping      is this run worth finishing?                   `bo_bos`
    boil          which config and how long, from noisy curves   `boil`
    online        one run tuned while it trains                  `ce_gp_ucb`
    thrift        what next, by a belief learned beforehand      `thrift`, the default

`config_table` (configs as numbers, candidates to choose from) is shared; `other_names` answers names known from other tools.
A plugin adds its own through the entry-point group `shoestring.policies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from shoestring.core.deciding.policy import Policy
from shoestring.errors import PolicyError, did_you_mean
from shoestring.policies.other_names import advise, find_likely_name, find_same_name

DEFAULT = "thrift"  # halving, and a learned belief where that was shown to win: docs/explanation/learned-belief.md
RECOMMENDED = {  # what to begin with
    "thrift": "shoestring.policies.thrift.thrift:Thrift",
    "sequential_halving": "shoestring.policies.halving.sequential_halving:SequentialHalving",
    "asha": "shoestring.policies.halving.asha:ASHA",
    "cost_aware_ei": "shoestring.policies.cost_aware.cost_aware_ei:CostAwareEI",
    "ce_gp_ucb": "shoestring.policies.online.ce_gp_ucb:CEGPUCB",
}
FROM_THE_PAPERS = {  # methods of the papers that are not recommended: what held when they were raced is in benchmarks/
    "bhpt": "shoestring.policies.freeze_thaw.bhpt:BHPT",
    "bo_bos": "shoestring.policies.stopping.bo_bos:BOBOS",
    "boil": "shoestring.policies.boil.boil:BOIL",
}
BASELINES = {  # what everybody compares with, and the rivals that the papers name
    "boca": "shoestring.policies.stopping.boca:BOCA",
    "epsilon_greedy": "shoestring.policies.online.bandit_policies:EpsilonGreedy",
    "exp3s": "shoestring.policies.online.bandit_policies:EXP3S",
    "fabolas_epochs": "shoestring.policies.freeze_thaw.fabolas_epochs:FabolasEpochs",
    "freeze_thaw_bo": "shoestring.policies.freeze_thaw.freeze_thaw_bo:FreezeThawBO",
    "gp_ucb": "shoestring.policies.stopping.ucb_policy:GPUCB",
    "gp_ucb_bandit": "shoestring.policies.online.gp_ucb_variants:GPUCBBandit",
    "grid": "shoestring.policies.plain.grid:Grid",
    "hyperband": "shoestring.policies.halving.hyperband:Hyperband",
    "lc_prediction": "shoestring.policies.stopping.lc_prediction:LCPrediction",
    "r_gp_ucb": "shoestring.policies.online.gp_ucb_variants:RGPUCB",
    "random_search": "shoestring.policies.plain.random_search:RandomSearch",
    "replay_fixed": "shoestring.policies.plain.replay_fixed:ReplayFixed",
    "rollout": "shoestring.policies.freeze_thaw.rollout:Rollout",
    "softmax": "shoestring.policies.online.bandit_policies:Softmax",
    "successive_halving": "shoestring.policies.halving.successive_halving:SuccessiveHalving",
    "top_k_after_one": "shoestring.policies.halving.top_k_after_one:TopKAfterOne",
    "tv_gp_ucb": "shoestring.policies.online.gp_ucb_variants:TVGPUCB",
    "ucb1": "shoestring.policies.online.bandit_policies:UCB1",
}
REGISTRY = {**RECOMMENDED, **FROM_THE_PAPERS, **BASELINES}
USE_WHEN = {
    "thrift": "training reports a loss step by step, and there is a budget",
    "sequential_halving": "training reports a loss step by step, and nothing that was learned elsewhere is to decide",
    "asha": "many workers train at the same time, and none should wait for another",
    "cost_aware_ei": "a trial is one number, and some cost far more than others",
    "ce_gp_ucb": "one run is tuned while it trains",
}


def groups() -> dict[str, list[str]]:
    """Every policy once, in the order in which to look at them; those of other packages last, if there are any."""
    known = {"recommended": RECOMMENDED, "from the papers": FROM_THE_PAPERS, "baselines": BASELINES}
    grouped = {title: list(group) for title, group in known.items()}
    others = [name for name in names() if not any(name in group for group in known.values())]
    return {**grouped, "from other packages": others} if others else grouped


def names() -> list[str]:
    return sorted({**_plugins(), **REGISTRY})


def find_class(name: str) -> type[Policy]:
    where = REGISTRY.get(name) or _plugins().get(name)
    if where is None:
        ours, advice = find_same_name(name, names()), advise(name)
        if ours is None and advice is not None:
            raise PolicyError(f"unknown policy {name!r}: {advice}")
        if ours is None and (likely := find_likely_name(name, names())) is not None:
            raise PolicyError(f"unknown policy {name!r}. Did you mean {likely!r}? {advise(likely)}")
        raise PolicyError(f"unknown policy {name!r}. {did_you_mean(ours or name, names())}")
    module, _, attribute = where.partition(":")
    found: type[Policy] = getattr(import_module(module), attribute)
    return found


def make(policy: str | Policy, settings: Mapping[str, Any] | None = None) -> Policy:
    """A policy from its name and settings, with an error for every setting that it does not have.

    A policy is anything with a `name` and a `decide`; one that is made already comes back as it is.
    """
    if not isinstance(policy, str):
        return _take(policy, settings)
    if not isinstance(settings, Mapping | None):
        raise PolicyError(f"the settings {settings!r} of {policy} must be a dict, as {{'reduction_factor': 3}}")
    kind = find_class(policy)
    known = [f.name for f in _fields(kind)]
    for setting in settings or {}:
        if setting not in known:
            having = [name for name in RECOMMENDED if setting in defaults_of(name)]
            hint = f" It is a setting of {' and '.join(having)}." if having else ""
            raise PolicyError(f"{policy} has no setting {setting!r}.{hint} {did_you_mean(str(setting), known)}")
    try:
        return kind(**(settings or {}))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:  # of a type it did not reckon with
        raise PolicyError(
            f"{policy} cannot take the settings {dict(settings or {})!r}: {error}. Its defaults are {defaults_of(policy)!r}"
        ) from None


def restore(name: str, settings: Mapping[str, Any]) -> Policy:
    """The policy of a stored study. One that was passed as an object, and is not registered, must be passed again."""
    if not isinstance(name, str):
        raise PolicyError(f"policy={name!r} must be the name of a policy. Known: {', '.join(names())}.")
    if name in REGISTRY or name in _plugins():
        return make(name, settings)
    likely = "".join(part.capitalize() for part in name.split("_"))
    raise PolicyError(
        f"the study's policy {name!r} is not registered: pass it again, as policy={likely}(…), "
        "register it through the entry-point group shoestring.policies, or choose another with --policy NAME"
    )


def settings_of(policy: Policy) -> dict[str, Any]:
    """All settings of a policy, as the ledger keeps them; none of a policy that is not a dataclass."""
    return {f.name: getattr(policy, f.name) for f in _fields(policy)}


def defaults_of(name: str) -> dict[str, Any]:
    """Settings and their defaults, for listings."""
    return {f.name: f.default if f.default is not MISSING else None for f in _fields(find_class(name))}


def _take(policy: object, settings: object) -> Policy:
    """A policy that somebody made, or an error that says what it lacks."""
    if isinstance(policy, type):
        raise PolicyError(f"policy={policy.__name__} is a class: pass an object, as policy={policy.__name__}()")
    lacking = [part for part in ("name", "decide") if not hasattr(policy, part)]
    if len(lacking) == 2:
        raise PolicyError(
            f"policy={policy!r} must be the name of a policy, or an object with a name and a decide(ledger, rng). "
            f"Known: {', '.join(names())}."
        )
    if lacking:
        remedy = "name = 'mine'" if lacking == ["name"] else "def decide(self, ledger, rng)"
        raise PolicyError(f"policy={policy!r} has no {lacking[0]}: give it one, as {remedy}")
    assert isinstance(policy, Policy)
    if not isinstance(policy.name, str) or not policy.name:
        raise PolicyError(f"policy={policy!r} has the name {policy.name!r}, which must be text: write name = 'mine'")
    if policy.name in REGISTRY and type(policy) is not find_class(policy.name):
        raise PolicyError(
            f"policy={policy!r} has the name {policy.name!r}, which is that of another policy: give it a name of its own"
        )
    if settings:
        raise PolicyError(
            f"settings={settings!r} are given beside the policy {policy!r}: give them to the policy itself"
        )
    return policy


def _fields(policy: object) -> tuple[Field[Any], ...]:
    return fields(policy) if is_dataclass(policy) else ()


@lru_cache(maxsize=1)
def _plugins() -> dict[str, str]:
    from importlib.metadata import entry_points  # a third of all import time, for something few installations have

    return {point.name: point.value for point in entry_points(group="shoestring.policies")}
