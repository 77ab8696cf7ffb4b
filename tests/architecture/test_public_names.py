"""The public names: all there, loaded when first used, each with a word about what it is."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import pytest

import shoestring
from shoestring import errors

PUBLIC = {
    *("Budget", "Choice", "Constant", "Float", "Int", "Prices", "Space"),  # to say what is wanted
    *("Context", "Report"),  # for training code
    *("Best", "Study", "tune"),  # to run and to look back
    *("OnlineTuner", "Schedule"),  # to tune one run while it trains
    *("ShoestringError", "TrainingFailed"),  # to catch
}


def test_all_is_what_we_promise() -> None:
    assert set(shoestring.__all__) == PUBLIC
    assert shoestring.__all__ == sorted(shoestring.__all__)
    assert dir(shoestring) == shoestring.__all__
    assert set(shoestring._MODULE_OF) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_name_is_there_and_explained(name: str) -> None:
    found = getattr(shoestring, name)
    assert found is getattr(shoestring, name)
    assert inspect.getmodule(found).__name__ == f"shoestring.{shoestring._MODULE_OF[name]}"  # type: ignore[union-attr]
    words = inspect.getdoc(found)
    assert words
    assert not words.startswith(f"{name}("), "that is the signature which a dataclass makes up"


def test_unknown_names_are_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Stduy'"):
        shoestring.Stduy  # noqa: B018


def test_the_version_is_that_of_the_package() -> None:
    assert shoestring.__version__ == version("shoestring")


def test_every_error_is_ours_and_in_the_tree_of_the_docstring() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert len(kinds) > 10
    for kind in kinds:
        assert issubclass(kind, errors.ShoestringError)
        assert f" {kind.__name__} " in f"{errors.__doc__}".replace("\n", " "), f"{kind.__name__} is missing in the tree"


def test_did_you_mean() -> None:
    assert errors.did_you_mean("flaot", ["float", "int"]) == "Did you mean 'float'?"
    assert errors.did_you_mean("zzz", ["float", "int"]) == "Known: float, int."
    assert errors.did_you_mean("zzz", []) == "Known: none."
