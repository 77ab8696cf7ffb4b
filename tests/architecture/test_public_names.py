"""The public interface: the exported names, the types that they mention, and the modules that belong to it."""

from __future__ import annotations

import ast
import inspect
import sys
import typing
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import shoestring
import shoestring.policy
import shoestring.testing
from shoestring import errors

PUBLIC = {
    *("Budget", "Choice", "Constant", "Float", "Group", "Int", "Prices", "Space"),  # describe what is tuned
    *("Context", "Report"),  # in training code
    *("Best", "Ending", "RetrainResult", "Study", "tune", "tune_objective"),  # run a study and use its result
    *("Importance", "Plot"),  # draw it
    *("OnlineTuner", "Schedule"),  # tune one run while it trains
    *(
        "Amendment",
        "Cost",
        "Ledger",
        "StateLoss",
        "Note",
        "StudyDefinition",
        "Order",
        "Receipt",
    ),  # read the past of a study
    *("OpenOrder", "StudyState", "Trial"),  # and what follows from it
    *(
        "CheckpointStore",
        "Heartbeat",
        "Lease",
        "LedgerStore",
        "Policy",
        "PutCheckpoint",
        "RayCluster",
        "Runner",
        "StoredCheckpoint",
    ),  # choose or write a part
    *("ShoestringError", "TrainingFailed"),  # catch
    "transfer_costs",  # use earlier studies
}
PUBLIC_MODULES = (shoestring, shoestring.policy, shoestring.testing)
PUBLIC_MODULE_NAMES = {"errors", "integrations", "policy", "testing"}
INTERNAL_CONSTRUCTORS = {
    "Plot.__init__",
    "Study.__init__",
    "StudyState.__init__",
}  # users call tune, Study.begin or Study.open


def test_the_exported_names_are_these() -> None:
    assert set(shoestring.__all__) == PUBLIC
    assert shoestring.__all__ == sorted(shoestring.__all__)
    assert dir(shoestring) == shoestring.__all__
    assert set(shoestring._MODULE_OF) == PUBLIC


def test_the_public_modules_are_named_and_exist() -> None:
    """All other modules are private, which the package's docstring says in one sentence."""
    docstring = shoestring.__doc__ or ""
    assert all(f"`shoestring.{name}`" in docstring for name in PUBLIC_MODULE_NAMES)
    assert "Every other module is private" in docstring
    for name in PUBLIC_MODULE_NAMES:
        import_module(f"shoestring.{name}")


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_name_exists_and_is_documented(name: str) -> None:
    found = getattr(shoestring, name)
    assert found is getattr(shoestring, name)
    assert inspect.getmodule(found).__name__ == f"shoestring.{shoestring._MODULE_OF[name]}"  # type: ignore[union-attr]
    docstring = inspect.getdoc(found)
    assert docstring
    assert not docstring.startswith(f"{name}("), "this is the signature that a dataclass generates"


@pytest.mark.parametrize("module", PUBLIC_MODULES[1:], ids=lambda module: module.__name__)
def test_other_public_modules_export_what_they_list(module: ModuleType) -> None:
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


def mentioned_types(module: ModuleType) -> Iterator[tuple[str, type]]:
    """Yield the types of the package in the signatures of what a module exports, with the function that mentions them."""
    for exported in module.__all__:
        for name, function in functions_of(getattr(module, exported)):
            if name not in INTERNAL_CONSTRUCTORS:
                for hint in hints_of(function).values():
                    yield from ((name, kind) for kind in types_in(hint) if kind.__module__.startswith("shoestring."))


def functions_of(thing: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isfunction(thing):
        yield thing.__name__, thing
    elif inspect.isclass(thing) and thing.__module__.startswith("shoestring."):
        for name, found in vars(thing).items():
            function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
            if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                yield f"{thing.__name__}.{name}", function


def hints_of(function: Any) -> dict[str, Any]:
    """Return the type hints of a function, with names that its module imports for type checkers only."""
    module = sys.modules[function.__module__]
    names = dict(vars(module))
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for block in (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        for line in block.body:
            if isinstance(line, ast.ImportFrom) and line.module is not None:
                names |= {alias.asname or alias.name: _load(line.module, alias.name) for alias in line.names}
            elif isinstance(line, ast.Import):
                names |= {alias.asname or alias.name: OtherPackage() for alias in line.names}
    return typing.get_type_hints(function, globalns=names)


class OtherPackage:
    """Stands for a package that is imported for type checkers only, such as pandas."""

    def __getattr__(self, name: str) -> Any:
        return Any


def _load(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ImportError:
        return Any


def types_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and not typing.get_origin(hint):
        yield hint
    for argument in typing.get_args(hint):
        for part in argument if isinstance(argument, list) else [argument]:
            yield from types_in(part)


@pytest.mark.parametrize("module", PUBLIC_MODULES, ids=lambda module: module.__name__)
def test_every_type_in_a_public_signature_is_public(module: ModuleType) -> None:
    exported = [getattr(each, name) for each in PUBLIC_MODULES for name in each.__all__]
    missing = {f"{kind.__name__} in {name}" for name, kind in mentioned_types(module) if kind not in exported}
    assert missing == set()


def test_a_policy_needs_no_other_module() -> None:
    """`shoestring.policy` alone has every type that its own signatures mention, those of `Ledger` included."""
    exported = [getattr(shoestring.policy, name) for name in shoestring.policy.__all__]
    missing = {
        f"{kind.__name__} in {name}" for name, kind in mentioned_types(shoestring.policy) if kind not in exported
    }
    assert missing == set()


def test_unknown_names_raise_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Stduy'"):
        shoestring.Stduy  # noqa: B018


def test_the_version_is_that_of_the_installed_package() -> None:
    assert shoestring.__version__ == version("shoestring")


def test_every_error_is_ours_and_in_the_tree_of_the_docstring() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert len(kinds) > 10
    for kind in kinds:
        assert issubclass(kind, errors.ShoestringError)
        assert f" {kind.__name__} " in f"{errors.__doc__}".replace("\n", " "), f"{kind.__name__} is missing in the tree"


def test_suggestions_for_misspelled_names() -> None:
    assert errors.did_you_mean("flaot", ["float", "int"]) == "Did you mean 'float'?"
    assert errors.did_you_mean("zzz", ["float", "int"]) == "Known: float, int."
    assert errors.did_you_mean("zzz", []) == "Known: none."
