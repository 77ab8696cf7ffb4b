"""Metadata routing: decide which arguments of `fit` and `score` go to the estimator, the scorer and the splitter.

With `sklearn.set_config(enable_metadata_routing=True)` each of these objects declares what it wants. Otherwise scikit-learn's
older rule holds: `groups` go to the splitter and everything else to the estimator; weights also go to a scorer that accepts them.
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
class RoutedParams:
    """The arguments of `fit` by the object that receives them."""

    fit: Mapping[str, Any]  # for the estimator's `fit` and `partial_fit`
    split: Mapping[str, Any]  # for the splitter
    score: Mapping[str, Any]  # for the scorer


def make_router(owner: Any, estimator: Any, scorer: Any, splitter: Any) -> Any:
    """Return the description of a search's estimator, scorer and splitter that scikit-learn's routing needs."""
    router = MetadataRouter(owner=owner)
    router.add(estimator=estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
    scorer_mapping = MethodMapping().add(caller="score", callee="score").add(caller="fit", callee="score")
    router.add(scorer=scorer, method_mapping=scorer_mapping)
    router.add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
    return router


def route_fit(search: Any, scorer: Any, fit_params: Mapping[str, Any]) -> RoutedParams:
    """Route the arguments of `fit`; an argument that is None counts as not given."""
    params = {name: value for name, value in fit_params.items() if value is not None}
    if is_routing_enabled():
        routed = process_routing(search, "fit", **params)
        return RoutedParams(routed.estimator.fit, routed.splitter.split, routed.scorer.score)
    groups = params.pop("groups", None)
    weights = {name: params[name] for name in ("sample_weight",) if name in params and _accepts_weights(scorer)}
    return RoutedParams(params, {"groups": groups}, weights)


def route_score(search: Any, score_params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Route the arguments of `score` to the scorer."""
    if is_routing_enabled():
        return process_routing(search, "score", **score_params).scorer.score  # type: ignore[no-any-return]
    if score_params:
        raise ValueError(
            f"score() accepts {sorted(score_params)} only with metadata routing: "
            "sklearn.set_config(enable_metadata_routing=True)"
        )
    return {}


def is_routing_enabled() -> bool:
    return bool(get_config()["enable_metadata_routing"])


def _accepts_weights(scorer: Any) -> bool:
    accepts = getattr(scorer, "_accept_sample_weight", None)  # scikit-learn's own scorers have it from 1.7 on
    parameters = {} if accepts is not None else inspect.signature(scorer).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return False  # it cannot be known; before scikit-learn 1.7 weights were not passed
    has_weights = accepts() if accepts is not None else "sample_weight" in parameters
    if not has_weights:
        warnings.warn(
            f"the scoring {scorer} takes no sample_weight: all rows have equal weight in the scores", stacklevel=4
        )
    return bool(has_weights)
