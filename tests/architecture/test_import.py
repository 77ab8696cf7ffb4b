"""`import shoestring` loads nothing heavy, and every exported name exists."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("scipy", "sqlalchemy", "torch", "ray", "optuna", "plotly", "pandas", "sklearn", "click", "rich", "psycopg")
IMPORT = "import shoestring"
USE_NAMES = "import shoestring; [getattr(shoestring, name) for name in shoestring.__all__]"
TUNE = "from shoestring import Float, tune; tune(lambda c: c['x'], {'x': Float(0, 1)}, '9 epochs', store=':memory:'"
NO_MODEL = TUNE + ", policy='sequential_halving')"
DEFAULT = TUNE + ")"


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        pytest.param(IMPORT, set(), id="import"),
        pytest.param(USE_NAMES, set(), id="all names"),
        pytest.param(NO_MODEL, set(), id="a study in memory"),
        pytest.param(DEFAULT, {"scipy"}, id="the default policy, which has a model"),
    ],
)
def test_nothing_heavy_is_loaded_that_is_not_needed(code: str, heavy: set[str]) -> None:
    program = f"import sys; {code}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    loaded = set(done.stdout.split())
    assert "shoestring" in loaded
    assert loaded & set(HEAVY) == heavy


def test_the_import_alone_does_not_load_the_core() -> None:
    program = "import sys, shoestring; print(*[name for name in sys.modules if name.startswith('shoestring.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == []


def test_a_star_import_gives_exactly_the_exported_names() -> None:
    program = "from shoestring import *; print(*sorted(n for n in dir() if not n.startswith('__')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    import shoestring

    assert done.stdout.split() == sorted(shoestring.__all__)
