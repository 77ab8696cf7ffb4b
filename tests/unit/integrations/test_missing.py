"""A missing optional package gives one line with the command that installs it, and importing shoestring imports none of them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXTRAS = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
USES = {
    "lightning": "import shoestring.integrations.lightning",
    "transformers": "import shoestring.integrations.transformers",
    "keras": "import shoestring.integrations.keras",
    "lightgbm": "from shoestring.integrations.boosting import lightgbm_steps as f; f({}, None, None, None)",
    "xgboost": "from shoestring.integrations.boosting import xgboost_steps as f; f({}, None, None, None)",
    "catboost": "from shoestring.integrations.boosting import catboost_steps as f; f({}, None, None, None)",
    "sklearn": "from shoestring.integrations.sklearn import BudgetSearchCV",
    "optuna": "from shoestring.integrations.optuna import to_optuna",
    "tensorboard": "from shoestring.integrations.loggers import TensorBoard; TensorBoard('runs')",
    "mlflow": "from shoestring.integrations.loggers import Mlflow; Mlflow('digits')",
    "ray": "from shoestring import tune; tune(len, {'x': {'float': [0, 1]}}, '9 epochs', runner='ray')",
    "wandb": "from shoestring.integrations.loggers import Wandb; Wandb('digits')",
}


@pytest.mark.parametrize("package", USES)
def test_a_missing_package_is_an_error_of_one_line(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None\n{USES[package]}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    last = result.stderr.strip().splitlines()[-1]
    assert "MissingExtra: " in last
    assert f"needs {package}, which is not installed: pip install 'shoestring[{package}]'" in last
    assert package in EXTRAS


def test_checkpoints_on_the_network_need_fsspec() -> None:
    program = "import sys; sys.modules['fsspec'] = None\nfrom shoestring import tune\n"
    program += "tune(lambda c: (yield 1), {'x': {'float': [0, 1]}}, '9 epochs', max_steps=1, checkpoints='s3://b/r')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "a place for checkpoints like s3://b/r/study needs fsspec" in result.stderr
    assert "MissingExtra: " in result.stderr
    assert "'shoestring[remote]'" in result.stderr
    assert "remote" in EXTRAS


def test_stepping_imports_no_optional_package() -> None:
    program = (
        "import sys, shoestring.integrations.stepping\nfrom shoestring.integrations.sklearn import partial_fit_steps\n"
        "print(*{'torch', 'sklearn', 'lightning', 'scipy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == []


def test_integration_packages_import_nothing_before_a_name_is_used() -> None:
    program = (
        "import sys, shoestring.integrations.optuna, shoestring.integrations.sklearn\n"
        "print(*{'optuna', 'sklearn', 'joblib', 'scipy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == []


@pytest.mark.parametrize("name", ["optuna", "sklearn"])
def test_an_unknown_name_of_an_integration_package_is_an_attribute_error(name: str) -> None:
    package = importlib.import_module(f"shoestring.integrations.{name}")
    with pytest.raises(AttributeError, match="has no attribute 'Unknown'"):
        package.Unknown  # noqa: B018
