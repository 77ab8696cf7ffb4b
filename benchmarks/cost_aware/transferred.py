"""(f) Cost models fitted only to other problems, compared with models fitted during the search: the regressors of Fig. 8.

    naive linear        LV in the three named features and the meta-features, over all other problems
    task-aware linear   the same over problems on the same data with another pipeline, if there are any
    boosted trees, MLP, nearest neighbours, decision tree      on all features and the meta-features

Related problems are on other data sets, so the models know nothing about the present data. The meta-features of a task are the
log of its rows, the log of its columns, and the number of classes. Only recordings of `xgboost_problems` have them.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cost_aware.problems import TRANSFER_ROWS, Problem, related_problems
from benchmarks.cost_aware.traces import Traces, with_interval
from shoestring.core.space.encoding import Encoding
from shoestring.models.cost_aware.cost_features import CostFeatures
from shoestring.models.cost_aware.cost_models import fit_cost_model, log_costs
from shoestring.models.cost_aware.linear import fit_transfer

Array = NDArray[np.float64]
Line = dict[str, Any]
ONLINE = (5, 10, 20)
EQUAL_AFTER = 10  # "with only about ten hyperparameter evaluations" the models are equal


def transfer_models(problems: list[Problem], options: Namespace, traces: Traces) -> tuple[list[Line], Line]:
    errors: dict[tuple[str, str], list[float]] = {}
    for problem in (p for p in problems if p.task and p.named):
        kind = "classification" if problem.task[2] else "regression"
        features, log_cost = problem.cost_features, log_costs(problem.seconds)
        columns = CostFeatures(Encoding(problem.space)).columns_of(problem.named)
        others = related_problems(problem, problems)
        related = [p for p in problems if p is not problem and p.folder == problem.folder and p.data == problem.data]
        for seed in options.seeds:
            order = np.random.default_rng(seed).permutation(log_cost.size)
            test = order[-min(500, log_cost.size // 2) :]

            def add_error(name: str, predicted: Array, kind: str = kind, truth: Array = log_cost[test]) -> None:
                rmse = float(np.sqrt(np.mean((predicted - truth) ** 2)))
                errors.setdefault((kind, name), []).append(rmse)

            for n in (n for n in ONLINE if n + test.size <= log_cost.size):
                seen, cost = features[order[:n]], log_cost[order[:n]]
                add_error(f"GP ({n})", fit_cost_model("gp", seen, cost).predict(features[test])[0])
                add_error(f"LV-3 ({n})", fit_cost_model("lv3", seen, cost, columns=columns).predict(features[test])[0])
            for name, among in (("naive linear", others), ("task-aware linear", related)):
                if among:
                    add_error(name, _fit_line(problem, among, columns).predict(features[test])[0])
            if others and seed == 0:  # the seed changes only the test rows, so fit these models once
                x, y = np.vstack([_task_features(p) for p in others]), np.concatenate([_costs(p) for p in others])
                fitted = {name: make().fit(x, y) for name, make in regressors().items()}
            if others:
                at = np.hstack([features[test], np.tile(problem.task, (test.size, 1))])
                for name, model in fitted.items():
                    add_error(name, model.predict(at))
    lines = [
        {"task": kind, "model": name, "runs": len(v), **with_interval("rmse_log_cost", v)}
        for (kind, name), v in sorted(errors.items())
    ]
    mean = {(line["task"], line["model"]): line["rmse_log_cost"] for line in lines}
    measured = {
        kind: round(mean[kind, f"LV-3 ({EQUAL_AFTER})"] - mean[kind, "naive linear"], 3)
        for kind in dict.fromkeys(kind for kind, _ in mean)
        if {(kind, "naive linear"), (kind, f"LV-3 ({EQUAL_AFTER})")} <= mean.keys()
    }
    verdict = {
        "name": f"RMSE of LV-3 after {EQUAL_AFTER} trials minus that of the transferred line",
        "measured": measured,
    }
    return lines, verdict | {"target": "<= 0" if measured else None, "ok": all(v <= 0 for v in measured.values())}


def regressors() -> dict[str, Callable[[], Any]]:
    import xgboost
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeRegressor

    return {
        "boosted trees": lambda: xgboost.XGBRegressor(n_estimators=200, max_depth=6, learning_rate=0.1, n_jobs=1),
        "MLP": lambda: make_pipeline(
            StandardScaler(),
            MLPRegressor(hidden_layer_sizes=(64, 64), early_stopping=True, max_iter=2000, random_state=0),
        ),
        "nearest neighbours": lambda: make_pipeline(StandardScaler(), KNeighborsRegressor(10)),
        "decision tree": lambda: DecisionTreeRegressor(min_samples_leaf=5, random_state=0),
    }


def _fit_line(problem: Problem, among: list[Problem], columns: tuple[int, ...]) -> Any:
    tasks = [(p.cost_features[:TRANSFER_ROWS], _costs(p)) for p in among]
    return fit_transfer(tasks, columns, task_meta=[p.task for p in among], meta=problem.task)


def _costs(problem: Problem) -> Array:
    return log_costs(problem.seconds)[:TRANSFER_ROWS]


def _task_features(problem: Problem) -> Array:
    """Return the features and meta-features of a problem, (rows, columns)."""
    features = problem.cost_features[:TRANSFER_ROWS]
    return np.hstack([features, np.tile(problem.task, (len(features), 1))])
