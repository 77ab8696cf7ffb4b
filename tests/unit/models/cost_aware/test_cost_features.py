"""The inputs of cost models."""

from __future__ import annotations

import numpy as np

from shoestring.core.space.encoding import Encoding
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.models.cost_aware.cost_features import CostFeatures

SPACE = Space(
    {
        "rounds": Int(1, 256, log=True),
        "depth": Int(1, 16),
        "gamma": Float(0.0, 0.1),
        "batch": Choice([16, 64, 256]),
        "booster": Choice(["tree", "dart", "linear"]),
        "rate": Float(0.1, 0.5, when={"booster": "dart"}),
    }
)


def test_features_are_logs_shares_and_flags_of_the_parameters() -> None:
    encoding = Encoding(SPACE)
    features = CostFeatures(encoding)
    configs = [
        {"rounds": 17, "depth": 3, "gamma": 0.05, "batch": 64, "booster": "dart", "rate": 0.2},
        {"rounds": 256, "depth": 1, "gamma": 0.0, "batch": 16, "booster": "tree"},
    ]
    found = dict(zip(range(len(features.names)), features.of(encoding.points(configs)).T, strict=True))
    expected = {
        "rounds": [[np.log(17), np.log(256)]],
        "depth": [[np.log(3), 0.0]],
        "gamma": [[0.5, 0.0]],
        "batch": [[np.log(64), np.log(16)]],
        "booster": [[1.0, 0.0], [0.0, 0.0]],  # dart, linear
        "rate": [[np.log(0.2), np.log(0.3)], [1.0, 0.0]],  # the middle when inactive; then whether it is active
    }
    assert sorted(features.names) == sorted(name for name, columns in expected.items() for _ in columns)
    for name, columns in expected.items():
        np.testing.assert_allclose([found[j] for j in features.columns_of([name])], columns, atol=1e-9)
    assert features.columns_of(["depth", "booster"]) == features.columns_of(["depth"]) + features.columns_of(
        ["booster"]
    )
