"""Docstrings of public names are complete: each parameter, result and property is described, in NumPy style."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import shoestring
import shoestring.policy
import shoestring.testing

MODULES = (shoestring, shoestring.policy, shoestring.testing)
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
LISTS = (
    "Parameters",
    "Attributes",
    "Fields",
    "Returns",
    "Yields",
    "Raises",
    "Warns",
)  # sections that consist of entries
EXAMPLES = ("tune", "Study", "Space", "OnlineTuner")  # BudgetSearchCV has one too, but needs scikit-learn
OTHER_PACKAGES = {"GridSearchCV"}  # names that a docstring may refer to with "As for `name`"


# reading docstrings ---------------------------------------------------------------------------------------------------


def sections(docstring: str) -> dict[str, str]:
    """Return the text of each section of a NumPy docstring by its title."""
    parts = SECTION.split(docstring)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(docstring: str, *titles: str) -> dict[str, str]:
    """Return the text of each entry of these sections by its first line, such as `x, y : int`."""
    found: dict[str, str] = {}
    for title, text in sections(docstring).items():
        if title in titles:
            parts = re.split(r"^(\S.*)$", text, flags=re.MULTILINE)
            found |= {head: body.strip() for head, body in zip(parts[1::2], parts[2::2], strict=True)}
    return found


def names_of(head: str) -> list[str]:
    """Return the names that the first line of an entry describes."""
    return [name.strip().lstrip("*") for name in head.partition(" : ")[0].split(",")]


def described_names(docstring: str, *titles: str) -> set[str]:
    return {name for head in entries(docstring, *titles) for name in names_of(head)}


def doc_of(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def returns_something(function: Any) -> bool:
    return inspect.isfunction(function) and function.__annotations__.get("return", "None") not in ("None", "NoReturn")


def field_comments(kind: type) -> set[str]:
    """Return the fields that have a comment behind them, in the class or in those that it inherits from."""
    sources = [inspect.getsource(base) for base in kind.__mro__ if is_dataclass(base)]
    return {name for source in sources for name in re.findall(r"^    (\w+): .*  # \w", source, re.MULTILINE)}


def find_undescribed(thing: Any) -> list[str]:
    """Return the parameters that the docstring of a function or class does not describe."""
    if getattr(thing, "_is_protocol", False) or (inspect.isclass(thing) and issubclass(thing, BaseException)):
        return []
    described = described_names(doc_of(thing), "Parameters", "Attributes", "Fields")
    if is_dataclass(thing) and isinstance(thing, type):
        described |= field_comments(thing)
    return [parameter for parameter in parameters(thing) if parameter not in described]


# finding what is public -----------------------------------------------------------------------------------------------


def exports(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield each function and class that a module exports, and each public method and property, with its name."""
    for name in module.__all__:
        thing = getattr(module, name)
        if (inspect.isfunction(thing) or inspect.isclass(thing)) and thing.__module__.startswith("shoestring"):
            yield name, thing
            if inspect.isclass(thing):
                yield from ((f"{name}.{member}", found) for member, found in own_members(thing))


def own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, with those that it inherits from other classes of the package.

    A method that overrides one of a framework is left out, because the framework calls and describes it.
    """
    foreign = [base for base in kind.__mro__ if not base.__module__.startswith("shoestring")]
    for name in dir(kind):
        if name.startswith("_") or any(hasattr(base, name) for base in foreign):
            continue
        found = inspect.getattr_static(kind, name)
        function = getattr(found, "__func__", found)
        if inspect.isfunction(function) or isinstance(found, property | cached_property):
            yield name, function


def integration_modules() -> list[str]:
    folder = Path(shoestring.__file__).parent / "integrations"
    return sorted(path.stem for path in folder.iterdir() if path.stem not in ("__init__", "__pycache__", "optional"))


PUBLIC = {f"{module.__name__}.{name}": thing for module in MODULES for name, thing in exports(module)}
CALLABLES = [name for name, thing in PUBLIC.items() if callable(thing)]


# the rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert doc_of(PUBLIC[name]), f"{name} has no docstring"


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_has_an_entry(name: str) -> None:
    assert find_undescribed(PUBLIC[name]) == []


@pytest.mark.parametrize("name", [name for name in CALLABLES if inspect.isfunction(PUBLIC[name])])
def test_no_entry_describes_a_parameter_that_does_not_exist(name: str) -> None:
    assert described_names(doc_of(PUBLIC[name]), "Parameters") <= set(parameters(PUBLIC[name]))


@pytest.mark.parametrize("name", [name for name in CALLABLES if returns_something(PUBLIC[name])])
def test_every_result_is_described(name: str) -> None:
    assert sections(doc_of(PUBLIC[name])).keys() & {"Returns", "Yields"}, f"{name} does not describe its result"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_entry_has_a_text(name: str) -> None:
    assert [head for head, text in entries(doc_of(PUBLIC[name]), *LISTS).items() if not text] == []


@pytest.mark.parametrize("name", CALLABLES)
def test_a_reference_to_another_docstring_leads_to_the_parameters(name: str) -> None:
    """An entry `x, y` with the text "As for `other`" is complete only if `other` describes x and y."""
    for head, text in entries(doc_of(PUBLIC[name]), "Parameters").items():
        reference = re.match(r"As for `([\w.]+)`", text)
        if reference and reference[1] not in OTHER_PACKAGES:
            described = described_names(doc_of(find_reference(name, reference[1])), "Parameters")
            assert set(names_of(head)) <= described, f"`{reference[1]}` does not describe {head}"


def find_reference(name: str, other: str) -> Any:
    """Return the function or class that the docstring of `name` calls `other`; a method may be of the same class."""
    owner = name.rpartition(".")[0]
    places = [f"{owner}.{other}", *(f"{module.__name__}.{other}" for module in MODULES)]
    found = [PUBLIC[place] for place in places if place in PUBLIC]
    assert found, f"{name} refers to `{other}`, which is not public"
    return found[0]


@pytest.mark.parametrize("name", integration_modules())
def test_names_of_integrations_are_described(name: str) -> None:
    try:
        module = import_module(f"shoestring.integrations.{name}")
        public = dict(exports(module))
    except (ImportError, shoestring.ShoestringError):
        pytest.skip(f"the package of {name} is not installed")
    assert [each for each, thing in public.items() if not doc_of(thing)] == []
    found = {each: find_undescribed(thing) for each, thing in public.items() if callable(thing)}
    assert {each: missing for each, missing in found.items() if missing} == {}
    results = {each: sections(doc_of(thing)).keys() for each, thing in public.items() if returns_something(thing)}
    assert [each for each, titles in results.items() if not titles & {"Returns", "Yields"}] == []
    texts = {f"{each}: {head}": text for each, thing in public.items() for head, text in list_entries(thing)}
    assert [each for each, text in texts.items() if not text] == []


def list_entries(thing: Any) -> list[tuple[str, str]]:
    return list(entries(doc_of(thing), *LISTS).items())


# examples -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_main_names_have_an_example(name: str) -> None:
    assert "Examples" in sections(doc_of(getattr(shoestring, name)))


@pytest.mark.parametrize("name", shoestring.__all__)
def test_examples_give_what_they_show(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    thing = getattr(shoestring, name)
    names = {each: getattr(shoestring, each) for each in shoestring.__all__}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for found in doctest.DocTestFinder().find(thing, name, module=False, globs=names):
        runner.run(found)
    assert runner.failures == 0


# the reading itself ---------------------------------------------------------------------------------------------------


def test_sections_and_entries_are_read() -> None:
    docstring = "Do it.\n\nParameters\n----------\nx : int\n    A number.\ny, z\n    Others.\n\nReturns\n-------\nint\n"
    assert described_names(docstring, "Parameters") == {"x", "y", "z"}
    assert entries(docstring, "Parameters") == {"x : int": "A number.", "y, z": "Others."}
    assert entries(docstring, "Returns") == {"int": ""}
    assert set(sections(docstring)) == {"Parameters", "Returns"}


def test_public_members_are_found() -> None:
    """Among them are classmethods, properties, and methods that a class inherits."""
    for name in ("Study.open", "Study.best", "Ledger.decision_rng", "CheckpointStore.put", "Space.size"):
        assert f"shoestring.{name}" in PUBLIC
    assert "shoestring.ShoestringError.with_traceback" not in PUBLIC
