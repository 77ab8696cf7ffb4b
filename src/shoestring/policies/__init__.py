"""The registry of policies, the default policy, and how a policy is made from its name and settings.

    plain         methods that do not use values                          `random_search`, `grid`
    halving       many short trainings, the best of them continued        `sequential_halving`
    cost_aware    the next configuration, where costs differ              `cost_aware_ei`
    freeze_thaw   the next step of a paused trial                         `bhpt`
    stopping      when to stop a trial early                              `bo_bos`
    boil          configuration and length together, from noisy curves    `boil`
    online        one training whose hyperparameters change               `ce_gp_ucb`

The default is `guided_halving`: halving whose new configurations are chosen by a model; for trials of one step, `cost_aware_ei`.
All of them may use `config_table` (configurations as numbers, and candidates to choose from). `other_names` recognises names from
other tools. A plugin adds its own policies through the entry-point group `shoestring.policies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, get_args, get_origin, get_type_hints

from shoestring.errors import PolicyError, did_you_mean
from shoestring.policies.other_names import advise, find_likely_name, find_same_name
from shoestring.policy import Policy

DEFAULT = "guided_halving"
RECOMMENDED = {
    "guided_halving": "shoestring.policies.halving.guided_halving:GuidedHalving",
    "sequential_halving": "shoestring.policies.halving.sequential_halving:SequentialHalving",
    "asha": "shoestring.policies.halving.asha:ASHA",
    "cost_aware_ei": "shoestring.policies.cost_aware.cost_aware_ei:CostAwareEI",
    "ce_gp_ucb": "shoestring.policies.online.ce_gp_ucb:CEGPUCB",
}
FROM_THE_PAPERS = {  # methods of the papers that are not recommended; their results are in benchmarks/
    "bhpt": "shoestring.policies.freeze_thaw.bhpt:BHPT",
    "bo_bos": "shoestring.policies.stopping.bo_bos:BOBOS",
    "boil": "shoestring.policies.boil.boil:BOIL",
}
BASELINES = {  # common baselines, and the methods that the papers compare with
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
    "guided_halving": "there is a budget, whether training reports a value step by step or one value at the end",
    "sequential_halving": "training reports a loss step by step, and new configurations are to be drawn evenly, without a model",
    "asha": "many workers train at the same time, and none should wait for another",
    "cost_aware_ei": "a trial is one number, and some cost far more than others",
    "ce_gp_ucb": "one run is tuned while it trains",
}


def groups() -> dict[str, list[str]]:
    """Return the names of all policies by group, the recommended ones first, those of other packages last."""
    known = {"recommended": RECOMMENDED, "from the papers": FROM_THE_PAPERS, "baselines": BASELINES}
    grouped = {title: list(group) for title, group in known.items()}
    others = [name for name in names() if not any(name in group for group in known.values())]
    return {**grouped, "from other packages": others} if others else grouped


def names() -> list[str]:
    """Return the names of all policies in alphabetical order, those of other packages included."""
    return sorted({**_plugins(), **REGISTRY})


def find_class(name: str) -> type[Policy]:
    """Return the class of the policy of this name; raise PolicyError, with a suggestion, if there is none."""
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
    """Return the policy of this name with these settings; raise PolicyError for a name or a setting that does not exist.

    A policy is any object with a `name` and a `decide`. If `policy` is such an object, it is returned unchanged.
    """
    if not isinstance(policy, str):
        return _check_object(policy, settings)
    if not isinstance(settings, Mapping | None):
        raise PolicyError(f"the settings {settings!r} of {policy} must be a dict, as {{'reduction_factor': 3}}")
    kind = find_class(policy)
    known = [f.name for f in _fields(kind)]
    for setting in settings or {}:
        if setting not in known:
            owners = [name for name in RECOMMENDED if setting in defaults_of(name)]
            hint = f" It is a setting of {' and '.join(owners)}." if owners else ""
            raise PolicyError(f"{policy} has no setting {setting!r}.{hint} {did_you_mean(str(setting), known)}")
    try:
        return kind(**(settings or {}))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:  # a value of an unexpected type
        raise PolicyError(
            f"{policy} cannot take the settings {dict(settings or {})!r}: {error}. Its defaults are {defaults_of(policy)!r}"
        ) from None


def restore(name: str, settings: Mapping[str, Any]) -> Policy:
    """Return the policy of a stored study; raise PolicyError if it was passed as an object and is not registered."""
    if not isinstance(name, str):
        raise PolicyError(f"policy={name!r} must be the name of a policy. Known: {', '.join(names())}.")
    if name in REGISTRY or name in _plugins():
        return make(name, settings)
    likely = "".join(part.capitalize() for part in name.split("_"))
    raise PolicyError(
        f"the study's policy {name!r} is not registered: pass it again, as policy={likely}(…), "
        "register it through the entry-point group shoestring.policies, or choose another policy"
    )


def settings_of(policy: Policy) -> dict[str, Any]:
    """Return all settings of a policy, as the ledger stores them; none if the policy is not a dataclass."""
    return {f.name: getattr(policy, f.name) for f in _fields(policy)}


def defaults_of(name: str) -> dict[str, Any]:
    """Return the settings of a registered policy with their defaults."""
    return {f.name: f.default if f.default is not MISSING else None for f in _fields(find_class(name))}


def printed_settings(name: str) -> dict[str, Any]:
    """Return the settings that `printed=True` changes, with the values of the paper; none for a policy without that setting."""
    if "printed" not in defaults_of(name):
        return {}
    default, printed = (settings_of(make(name, {"printed": form})) for form in (False, True))
    return {setting: value for setting, value in printed.items() if value != default[setting] and setting != "printed"}


def change_settings(name: str, own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a policy after a change.

    If the change is to `printed`, the settings in which the form of the paper differs change with it, except those that the
    user had set to another value.
    """
    if given.get("printed", own.get("printed")) != own.get("printed") and isinstance(own.get("printed"), bool):
        form = settings_of(make(name, {"printed": own["printed"]}))
        own = {setting: value for setting, value in own.items() if setting != "printed" and value != form.get(setting)}
    return settings_of(make(name, {**own, **given}))


def is_word(name: str, setting: str, text: str) -> bool:
    """Return whether this text is one of the words that a setting of this policy may be, as "none" is for some."""
    kind = find_class(name)
    try:
        return text in _list_words(get_type_hints(kind).get(setting))
    except NameError:  # a policy of another package, with names that only a type checker knows
        return False


def _list_words(annotation: object) -> tuple[object, ...]:
    """Return the options of all `Literal`s in an annotation."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(word for part in get_args(annotation) for word in _list_words(part))


def _check_object(policy: object, settings: object) -> Policy:
    """Return the object if it is a policy; raise PolicyError if it is not."""
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
            f"policy={policy!r} has the name {policy.name!r}, which belongs to another policy: give it a name of its own"
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
    from importlib.metadata import entry_points  # a third of the import time, and few installations have plugins

    return {point.name: point.value for point in entry_points(group="shoestring.policies")}
