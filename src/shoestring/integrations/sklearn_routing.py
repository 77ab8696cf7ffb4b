"""Who gets what of the metadata that is passed to `fit` and `score`: the estimator, the scorer, the splitter.

With `sklearn.set_config(enable_metadata_routing=True)` each of them says what it wants. Without it scikit-learn's older rule
holds: `groups` are the splitter's, everything else is the estimator's, and weights are also those of a scorer that takes them.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sklearn import get_config
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing


@dataclass(frozen=True)
class Routed:
    """By name, for each who gets some."""

    fit: Mapping[str, Any]  # of the estimator; its `partial_fit` gets the same
    split: Mapping[str, Any]
    score: Mapping[str, Any]


def make_router(owner: Any, estimator: Any, scorer: Any, splitter: Any) -> Any:
    """What a search tells scikit-learn about those behind it."""
    router = MetadataRouter(owner=owner)
    router.add(estimator=estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
    scored = MethodMapping().add(caller="score", callee="score").add(caller="fit", callee="score")
    router.add(scorer=scorer, method_mapping=scored)
    router.add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
    return router


def route_fit(search: Any, scorer: Any, given: Mapping[str, Any]) -> Routed:
    """What was passed to `fit`; None is nothing."""
    params = {name: value for name, value in given.items() if value is not None}
    if _is_routed():
        routed = process_routing(search, "fit", **params)
        return Routed(routed.estimator.fit, routed.splitter.split, routed.scorer.score)
    groups = params.pop("groups", None)
    weights = {name: params[name] for name in ("sample_weight",) if name in params and _takes_weights(scorer)}
    return Routed(params, {"groups": groups}, weights)


def route_score(search: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was passed to `score`."""
    if _is_routed():
        return process_routing(search, "score", **given).scorer.score  # type: ignore[no-any-return]
    if given:
        raise ValueError(
            f"score() is not passed {sorted(given)} without metadata routing: sklearn.set_config(enable_metadata_routing=True)"
        )
    return {}


def _is_routed() -> bool:
    return bool(get_config()["enable_metadata_routing"])


def _takes_weights(scorer: Any) -> bool:
    asked = getattr(scorer, "_accept_sample_weight", None)  # scikit-learn's own scorers know it, from 1.7 on
    told = {} if asked is not None else inspect.signature(scorer).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in told.values()):
        return False  # nobody knows: before 1.7 weights were not passed
    takes = asked() if asked is not None else "sample_weight" in told
    if not takes:
        warnings.warn(f"the scoring {scorer} takes no sample_weight: all rows count alike in the scores", stacklevel=4)
    return bool(takes)
