"""Settings that no decision could use are errors when the policy is made, or when the space is first known."""

from __future__ import annotations

from typing import Any

import pytest

from shoestring import Study, policies
from shoestring.errors import PolicyError

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("sequential_halving", {"arms": 10**400}, r"sequential_halving\(arms=10{400}\)"),
    ("grid", {"levels": 2**31}, r"grid\(levels=2147483648\)"),
    ("ucb1", {"unit": 10**400}, r"ucb1\(unit=10{400}\)"),
    ("bhpt", {"falling": "yes"}, r"bhpt\(falling='yes'\).* True, False"),
    ("bhpt", {"start": "high"}, r"bhpt\(start='high'\)"),
    ("cost_aware_ei", {"cost_features": 5}, "cost_features=5.* must be a list of parameter names"),
    ("cost_aware_ei", {"cost_features": [5]}, r"cost_features=\[5\].* must be a list of parameter names"),
    ("cost_aware_ei", {"transferred": []}, r"transferred=\[\].* what `shoestring.transfer_costs` returned"),
    ("cost_aware_ei", {"cost_model": "transfer", "transferred": "nonsense"}, "transferred='nonsense'.* must be what"),
    (
        "cost_aware_ei",
        {"cost_model": "transfer", "transferred": {"weights": [1]}},
        "it needs the lists .*columns, weights",
    ),
    ("bhpt", {"commit": "nonsense"}, r"bhpt\(commit='nonsense'\).* True, False"),
    ("bhpt", {"lengthscale": ["nonsense"]}, r"bhpt\(lengthscale=\['nonsense'\]\) must be a number above 0"),
    ("bhpt", {"lengthscale": True}, r"bhpt\(lengthscale=True\) must be a number above 0"),
    ("bo_bos", {"noise_allowance": 1}, r"bo_bos\(noise_allowance=1\).* True, False"),
    ("bo_bos", {"intermediate": "nonsense"}, r"bo_bos\(intermediate='nonsense'\).* True, False"),
    ("bo_bos", {"k1_growth": True}, r"bo_bos\(k1_growth=True\) must be one of"),
]


@pytest.mark.parametrize(("name", "settings", "message"), WRONG, ids=[f"{n}-{next(iter(s))}" for n, s, _ in WRONG])
def test_wrong_settings_are_errors(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        policies.make(name, settings)


def test_too_many_length_scales_are_an_error_before_the_first_order() -> None:
    space = {"x": {"float": [0, 1]}}
    study = Study.begin(space, "9 epochs", max_steps=3, policy="bhpt", settings={"lengthscale": [0.5, 0.5], "arms": 3})
    with pytest.raises(PolicyError, match=r"lengthscale=\[0.5, 0.5\] must be one number, or 1"):
        study.ask()
