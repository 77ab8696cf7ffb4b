"""Find training code by name (`file.py:train` or `package.module:train`), and send it to other processes.

A file is imported under its own name with its folder first on the path, as Python does with a script. So it can import its
neighbours, and other processes, which inherit the path, find it too. They get a reference and import the code themselves; see
`pack_code` for code that is in no file.
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
from shoestring.runners.training.code import CodeWithObjects, plain_code

_SHAPES = "write file.py:train or package.module:train"


@dataclass(frozen=True, slots=True)
class Target:
    """A reference to training code that any process can load. `Target.find` checks it, `load` imports the code."""

    text: str
    module: str
    name: str  # with dots if it is inside a class
    folder: str  # put first on the Python path
    is_file: bool

    @classmethod
    def find(cls, text: str) -> Target:
        where, colon, name = text.rpartition(":")
        if not colon or not where or not name:
            raise RunnerError(f"the target {text!r} names no training code: {_SHAPES}")
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
        """Return the function or class; raise an error of one line if it cannot be imported."""
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
    """Return the training code that `file.py:train` or `package.module:train` names."""
    return Target.find(text).load()


def pack_code(train: Any, *, has_our_main: bool = True) -> bytes:
    """Return training code as bytes for a worker process; raise an error with a remedy if that is not possible.

    The bytes are a reference if the other process can import the code. Code that was typed into a notebook, lambdas and nested
    functions are sent as a whole, if cloudpickle is installed. The bytes go only to workers that this process starts.

    `has_our_main`: whether the other process also imports the script that was started here; on a cluster it does not.
    """
    name = getattr(plain_code(train), "__qualname__", repr(plain_code(train)))
    try:
        pickled = pickle.dumps(train)
        why = "it was typed in and is in no file" if _is_typed_in(pickled) else ""
        if b"__main__" in pickled and not has_our_main:
            why = "it is defined in the script that was started"
    except Exception as error:
        why = "it is defined inside another function" if "<locals>" in name else _one_line(error)
        if "<lambda>" in name:
            why = "a lambda has no name"
    if not why:
        return pickled
    try:
        import cloudpickle
    except ImportError:
        raise RunnerError(
            f"the training code {name} cannot be sent to another process: {why}; pip install cloudpickle, or define it at the "
            "top level of a file, or use the local runner with one worker"
        ) from None
    try:
        whole: bytes = cloudpickle.dumps(train)
    except Exception as error:
        raise RunnerError(
            f"the training code {name} cannot be sent to another process: {why}, and it refers to something that cannot be "
            f"pickled: {_one_line(error)}; define it at the top level of a file, or use the local runner with one worker"
        ) from None
    return whole


def _is_typed_in(pickled: bytes) -> bool:
    return b"__main__" in pickled and not hasattr(sys.modules["__main__"], "__file__")


def unpack_code(pickled: bytes) -> Any:
    """Return the training code, in a worker process."""
    train = pickle.loads(pickled)  # sent by the process that started this worker
    code = plain_code(train)
    loaded = code.load() if isinstance(code, Target) else code
    return CodeWithObjects(loaded, train.space) if isinstance(train, CodeWithObjects) else loaded


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
