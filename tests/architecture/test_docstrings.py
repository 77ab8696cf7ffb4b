"""Docstrings of public names are complete: each parameter has an entry, in NumPy style."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import shoestring
import shoestring.policy
import shoestring.testing

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
EXAMPLES = ("tune", "Study", "Space", "OnlineTuner")  # BudgetSearchCV has one too, but needs scikit-learn


def sections(docstring: str) -> dict[str, str]:
    """Return the text of each section of a NumPy docstring by its title."""
    parts = SECTION.split(docstring)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described_names(docstring: str, *titles: str) -> set[str]:
    """Return the names that have an entry in one of these sections: lines without indentation, before a colon."""
    found = "\n".join(text for title, text in sections(docstring).items() if title in titles)
    entries = re.findall(r"^(\*{0,2}\w[^:\n]*)", found, re.MULTILINE)
    return {name.strip().lstrip("*") for entry in entries for name in entry.split(",")}


def parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def field_comments(kind: type) -> set[str]:
    """Return the fields that have a comment behind them, in the class or in those that it inherits from."""
    sources = [inspect.getsource(base) for base in kind.__mro__ if is_dataclass(base)]
    return {name for source in sources for name in re.findall(r"^    (\w+): .*  # \w", source, re.MULTILINE)}


def public_callables() -> Iterator[tuple[str, Any]]:
    """Yield each function, class and public method of the public modules with its name."""
    for module in (shoestring, shoestring.policy, shoestring.testing):
        for name in module.__all__:
            thing = getattr(module, name)
            if not callable(thing) or not getattr(thing, "__module__", "").startswith("shoestring"):
                continue
            yield f"{module.__name__}.{name}", thing
            if inspect.isclass(thing):
                for method, function in public_methods(thing):
                    yield f"{module.__name__}.{name}.{method}", function


def public_methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name, found in vars(kind).items():
        function = getattr(found, "__func__", found)
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def own_methods(kind: type) -> list[Any]:
    """Return the public methods, except those that override a framework's method: the framework calls and describes them."""
    foreign = [base for base in kind.__mro__[1:] if not base.__module__.startswith("shoestring")]
    return [function for name, function in public_methods(kind) if not any(hasattr(base, name) for base in foreign)]


PUBLIC = dict(public_callables())


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_has_an_entry(name: str) -> None:
    thing = PUBLIC[name]
    docstring = inspect.getdoc(thing) or ""
    assert docstring, f"{name} has no docstring"
    if getattr(thing, "_is_protocol", False) or (inspect.isclass(thing) and issubclass(thing, BaseException)):
        return
    described = described_names(docstring, "Parameters", "Attributes", "Fields")
    if is_dataclass(thing) and isinstance(thing, type):
        described |= field_comments(thing)
    missing = [parameter for parameter in parameters(thing) if parameter not in described]
    assert missing == [], f"{name} does not describe {', '.join(missing)}"


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if inspect.isfunction(thing)])
def test_no_entry_describes_a_parameter_that_does_not_exist(name: str) -> None:
    described = described_names(inspect.getdoc(PUBLIC[name]) or "", "Parameters")
    assert described <= set(parameters(PUBLIC[name]))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_main_names_have_an_example(name: str) -> None:
    assert "Examples" in sections(inspect.getdoc(getattr(shoestring, name)) or "")


@pytest.mark.parametrize("name", shoestring.__all__)
def test_examples_give_what_they_show(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    thing = getattr(shoestring, name)
    names = {each: getattr(shoestring, each) for each in shoestring.__all__}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for found in doctest.DocTestFinder().find(thing, name, module=False, globs=names):
        runner.run(found)
    assert runner.failures == 0


def test_sections_are_read() -> None:
    docstring = "Do it.\n\nParameters\n----------\nx : int\n    A number.\ny, z\n    Others.\n\nReturns\n-------\nint\n"
    assert described_names(docstring, "Parameters") == {"x", "y", "z"}
    assert set(sections(docstring)) == {"Parameters", "Returns"}


def integration_modules() -> list[str]:
    folder = Path(shoestring.__file__).parent / "integrations"
    return sorted(path.stem for path in folder.iterdir() if path.stem not in ("__init__", "__pycache__", "optional"))


@pytest.mark.parametrize("name", integration_modules())
def test_callables_of_integrations_are_described(name: str) -> None:
    try:
        module = import_module(f"shoestring.integrations.{name}")
        public = [getattr(module, exported) for exported in module.__all__]
    except (ImportError, shoestring.ShoestringError):
        pytest.skip(f"the package of {name} is not installed")
    for thing in public:
        functions = [thing, *own_methods(thing)] if inspect.isclass(thing) else [thing]
        for function in functions:
            is_protocol = getattr(function, "_is_protocol", False)
            if not is_protocol and (inspect.isfunction(function) or inspect.isclass(function)):
                described = described_names(inspect.getdoc(function) or "", "Parameters", "Attributes")
                if is_dataclass(function) and isinstance(function, type):
                    described |= field_comments(function)
                missing = [each for each in parameters(function) if each not in described]
                assert missing == [], f"{name}.{function.__qualname__} does not describe {', '.join(missing)}"
