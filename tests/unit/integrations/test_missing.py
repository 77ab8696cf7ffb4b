"""A package that is not there: one line, with the command that gets it. Importing ours brings none of them along."""

from __future__ import annotations

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
    "sklearn": "import shoestring.integrations.sklearn.search",
    "optuna": "import shoestring.integrations.optuna.studies",
    "tensorboard": "from shoestring.integrations.loggers import TensorBoard; TensorBoard('runs')",
    "mlflow": "from shoestring.integrations.loggers import Mlflow; Mlflow('digits')",
    "ray": "from shoestring import tune; tune(len, {'x': {'float': [0, 1]}}, '9 epochs', runner='ray')",
    "wandb": "from shoestring.integrations.loggers import Wandb; Wandb('digits')",
}


@pytest.mark.parametrize("package", USES)
def test_a_missing_package_is_told_in_one_line(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None\n{USES[package]}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert "MissingExtra: " in last
    assert f"needs {package}, which is not installed: pip install 'shoestring[{package}]'" in last
    assert package in EXTRAS


def test_a_place_on_the_network_needs_fsspec() -> None:
    program = "import sys; sys.modules['fsspec'] = None\nfrom shoestring import tune\n"
    program += "tune(lambda c: (yield 1), {'x': {'float': [0, 1]}}, '9 epochs', max_steps=1, checkpoints='s3://b/r')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "a place for checkpoints like s3://b/r/study needs fsspec" in done.stderr
    assert "pip install 'shoestring[remote]'" in done.stderr
    assert "remote" in EXTRAS


def test_stepping_needs_nothing() -> None:
    program = (
        "import sys, shoestring.integrations.stepping, shoestring.integrations.sklearn.estimator_steps\n"
        "print(*{'torch', 'sklearn', 'lightning', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
