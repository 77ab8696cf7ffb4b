"""Where training code is: `file.py:train` or `package.module:train`, and how it travels to another process.

A file is imported under its own name with its folder first on the path, as Python does with a script, so its imports of
neighbours work and other processes, which inherit the path, find it again. What travels to them is a reference, and they
import the code themselves; see `pack_code` for code that is in no file.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoestring.errors import RunnerError, did_you_mean

_SHAPES = "write file.py:train or package.module:train"


@dataclass(frozen=True, slots=True)
class Target:
    """A reference to training code that any process can follow. `Target.find` checks it, `load` follows it."""

    text: str
    module: str
    name: str  # dotted when it sits inside a class
    folder: str  # goes first on the path
    is_file: bool

    @classmethod
    def find(cls, text: str) -> Target:
        where, colon, name = text.rpartition(":")
        if not colon or not where or not name:
            raise RunnerError(f"the target {text!r} does not name its training code: {_SHAPES}")
        if not where.endswith(".py") and "/" not in where:
            return cls(text, where, name, str(Path.cwd()), is_file=False)
        path = Path(where).absolute()
        if not path.is_file():
            neighbours = [str(Path(where).with_name(p.name)) for p in path.parent.glob("*.py")]
            raise RunnerError(f"the target {text!r}: there is no file {where!r}. {did_you_mean(where, neighbours)}")
        if path.suffix != ".py":
            raise RunnerError(f"the target {text!r}: {where!r} is not a Python file: {_SHAPES}, or a command after --")
        return cls(text, path.stem, name, str(path.parent), is_file=True)

    def load(self) -> Any:
        """The function or class itself; one line that says why if it cannot be had."""
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            found: Any = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name and (self.module == error.name or self.module.startswith(error.name + ".")):
                raise RunnerError(
                    f"the target {self.text!r}: there is no module {error.name!r} here or on the Python path: {_SHAPES}"
                ) from None
            raise RunnerError(f"the target {self.text!r} cannot be imported: {_one_line(error)}: install it") from None
        except Exception as error:
            raise RunnerError(f"the target {self.text!r} cannot be imported: {_one_line(error)}") from None
        if self.is_file and not _is_at(found, Path(self.folder) / f"{self.module}.py"):
            raise RunnerError(
                f"the target {self.text!r}: the file has the name of another module, {self.module!r}: rename the file"
            )
        for part in self.name.split("."):
            if not hasattr(found, part):
                public = [name for name, value in vars(found).items() if callable(value) and not name.startswith("_")]
                raise RunnerError(f"the target {self.text!r}: there is no {part!r} in it. {did_you_mean(part, public)}")
            found = getattr(found, part)
        return found


def resolve(text: str) -> Any:
    """The training code that `file.py:train` or `package.module:train` names."""
    return Target.find(text).load()


def pack_code(train: Any, *, has_our_main: bool = True) -> bytes:
    """Training code as a worker process takes it; an error with a remedy when another process could not find it.

    `has_our_main`: the process imports the script that was started here, too; on a cluster it does not.

    A reference, if other processes can follow it. Code that was typed into a notebook, lambdas and functions inside others
    travel whole, if cloudpickle is there. Either goes through a pipe of ours to a child of ours, and nowhere else.
    """
    name = getattr(train, "__qualname__", repr(train))
    try:
        pickled = pickle.dumps(train)
        why = "it was typed in, not read from a file" if _is_typed_in(pickled) else ""
        if b"__main__" in pickled and not has_our_main:
            why = "it is defined in the script that was started"
    except Exception as error:
        why = "it is defined inside another function" if "<locals>" in name else _one_line(error)
        if "<lambda>" in name:
            why = "a lambda has no name to find it by"
    if not why:
        return pickled
    try:
        import cloudpickle
    except ImportError:
        raise RunnerError(
            f"the training code {name} cannot go to another process: {why}; pip install cloudpickle, or define it at the "
            "top level of a file, or use the local runner with one worker"
        ) from None
    try:
        whole: bytes = cloudpickle.dumps(train)
    except Exception as error:
        raise RunnerError(
            f"the training code {name} cannot go to another process: {why}, and it holds something that cannot travel: "
            f"{_one_line(error)}; define it at the top level of a file, or use the local runner with one worker"
        ) from None
    return whole


def _is_typed_in(pickled: bytes) -> bool:
    return b"__main__" in pickled and not hasattr(sys.modules["__main__"], "__file__")


def unpack_code(pickled: bytes) -> Any:
    """The training code in a worker process."""
    train = pickle.loads(pickled)  # sent by the parent of this very process
    return train.load() if isinstance(train, Target) else train


def _is_at(module: Any, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).exists() and Path(file).samefile(path)


def _one_line(error: BaseException) -> str:
    line = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{line} ({Path(error.filename).name}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith("<frozen") and frame.filename != __file__]
    return f"{line} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else line
