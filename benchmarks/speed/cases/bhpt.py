"""Cases of `bhpt`: 100 arms of 50 steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.speed.measure import Case, Peer, begin_study, write_curve
from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.testing.curves import ListedCurves


def cases() -> list[Case]:
    """Return the cases: 100 arms of 50 steps with 2500 observations, unequally spread; peer: scikit-learn's dense GP."""
    rng = np.random.default_rng(0)
    arms, steps, seen = 100, 50, 2500
    ends = rng.uniform(0.1, 0.6, arms)
    curves = ends[:, None] + rng.uniform(0.3, 0.9, (arms, 1)) / np.arange(1.0, steps + 1) ** 0.7
    curves += 0.002 * rng.standard_normal(curves.shape)
    trained = np.full(arms, seen // arms)
    for _ in range(2000):  # some arms are far, some have hardly begun, all can continue
        i, j = rng.choice(arms, 2, replace=False)
        if trained[i] > 1 and trained[j] < steps - 5:
            trained[i], trained[j] = trained[i] - 1, trained[j] + 1
    assert trained.sum() == seen
    rows: list[Config] = [{"name": f"arm {i}"} for i in range(arms)]
    space = Space.from_configs(rows)
    source = ListedCurves({f"arm {i}": list(curve) for i, curve in enumerate(curves)})

    def begin(policy: Policy) -> Callable[[], Ledger]:
        def open_ledger() -> Ledger:
            ledger = begin_study(policy, space, f"{seen + 500} epochs", max_steps=steps)
            for arm, n in enumerate(trained):
                order = Order(number=arm, trial=arm, config=rows[arm], until=int(n), reserve=float(n))
                ledger = write_curve(ledger, order, [float(value) for value in curves[arm, :n]])
            return ledger

        return open_ledger

    def dense() -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, WhiteKernel

        # Arms are one-hot columns: independent curves, as in the model. Fixed parameters: one fit, one prediction.
        where = np.array([(arm, step) for arm, n in enumerate(trained) for step in range(n)])
        ahead = np.array([(arm, step) for arm, n in enumerate(trained) for step in range(n, steps)])

        def inputs(pairs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return np.column_stack([100.0 * np.eye(arms)[pairs[:, 0]], pairs[:, 1] / 10.0])

        model = GaussianProcessRegressor(RBF(1.0) + WhiteKernel(1e-3), optimizer=None)
        model.fit(inputs(where), curves[where[:, 0], where[:, 1]])
        model.predict(inputs(ahead), return_std=True)

    fixed = policies.make("bhpt", {"parameters": [1.0, 5.0, 1.0, 0.01, 1.0, 0.0]})
    sampled = policies.make("bhpt")
    peers = {"scikit-learn, dense, fixed parameters": Peer(lambda: dense)}
    return [
        Case("bhpt_fixed", fixed, begin(fixed), source, 2.0, peers),
        Case("bhpt_sampled", sampled, begin(sampled), source, 40.0, peers),
    ]
