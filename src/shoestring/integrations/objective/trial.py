"""The argument of an objective: it answers `suggest_*`, and takes what the objective reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from shoestring.core.space.parameters import Choice, Constant, Float, Int, Parameter, has_room
from shoestring.core.values.checks import is_whole, to_plain
from shoestring.core.values.strict_json import dumps
from shoestring.errors import RunnerError, SpaceError
from shoestring.runners.training.code import number_of

_FOLDER = str(Path(__file__).parent)
Answer = Callable[
    [str, Parameter, str], Any
]  # returns the value of a parameter; the last argument says where it was asked for


class ObjectiveTrial:
    """The argument of an objective, with the methods of Optuna's `Trial` that an objective with one value needs.

    Parameters
    ----------
    number : int
        The number of the trial.
    answer : callable
        Returns the value of a parameter.
    report : callable
        Called with each new reported value.

    Attributes
    ----------
    number : int
        The number of the trial, from 0.
    params : dict
        The values that were suggested so far, by name.
    user_attrs : dict
        What `set_user_attr` has set. Numbers are stored with the next step as its metrics.
    """

    def __init__(self, number: int, answer: Answer, report: Callable[[float], None]) -> None:
        self.number = number
        self.params: dict[str, Any] = {}
        self.user_attrs: dict[str, Any] = {}
        self._answer, self._report = answer, report
        self._asked: dict[str, str] = {}  # what was asked for under each name, as text
        self._reported_steps: set[int] = set()

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the trial of tune_objective has no {name!r}: it has suggest_float, suggest_int, suggest_categorical, report, "
            "should_prune, set_user_attr, number, params and user_attrs"
        )

    # parameters ------------------------------------------------------------------------------------------------------

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return a number from `low` to `high`.

        Parameters
        ----------
        name : str
            The name of the parameter.
        low, high : float
            The bounds, both included.
        step : float, optional
            Allow only multiples of a step, counted from `low`.
        log : bool
            Use a log scale.

        Returns
        -------
        float
            The value.
        """
        return self._suggest(name, _float(low, high, step=step, log=log))  # type: ignore[no-any-return]

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Return a whole number from `low` to `high`.

        Parameters
        ----------
        name : str
            The name of the parameter.
        low, high : int
            The bounds, both included.
        step : int
            Allow only multiples of a step, counted from `low`.
        log : bool
            Use a log scale.

        Returns
        -------
        int
            The value.
        """
        parameter = Constant(low) if low == high or (step > high - low > 0 and not log) else None
        return self._suggest(name, parameter or Int(low, high, log, step=step))  # type: ignore[no-any-return]

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of several options.

        Parameters
        ----------
        name : str
            The name of the parameter.
        choices : sequence
            The options. They may be any objects; the very object is returned.

        Returns
        -------
        object
            The option.
        """
        return self._suggest(name, Choice(list(choices)))

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        """Return `suggest_float(name, low, high)`; an old name of Optuna.

        Parameters
        ----------
        name : str
            The name of the parameter.
        low, high : float
            The bounds.

        Returns
        -------
        float
            The value.
        """
        return self._suggest(name, _float(low, high))  # type: ignore[no-any-return]

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        """Return `suggest_float(name, low, high, log=True)`; an old name of Optuna.

        Parameters
        ----------
        name : str
            The name of the parameter.
        low, high : float
            The bounds.

        Returns
        -------
        float
            The value.
        """
        return self._suggest(name, _float(low, high, log=True))  # type: ignore[no-any-return]

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        """Return `suggest_float(name, low, high, step=q)`; an old name of Optuna.

        Parameters
        ----------
        name : str
            The name of the parameter.
        low, high : float
            The bounds.
        q : float
            The step.

        Returns
        -------
        float
            The value.
        """
        return self._suggest(name, _float(low, high, step=q))  # type: ignore[no-any-return]

    def _suggest(self, name: str, parameter: Parameter) -> Any:
        where = find_caller()
        if not isinstance(name, str) or not name:
            raise SpaceError(f"the name {name!r} of a parameter must be text ({where})")
        if (problem := parameter.find_problem()) is not None:
            raise SpaceError(f"{name}: {problem} ({where})")
        described = dumps(parameter.describe())
        if name in self._asked:
            if self._asked[name] != described:
                raise_changed(name, self._asked[name], described, where)
            return self.params[name]
        self.params[name] = value = self._answer(name, parameter, where)
        self._asked[name] = described
        return value

    # values ----------------------------------------------------------------------------------------------------------

    def report(self, value: float, step: int) -> None:
        """Report the value after a step, and wait here while other trials are trained.

        Parameters
        ----------
        value : float
            The value.
        step : int
            The number of the step. Of several reports with the same number, the first counts.
        """
        number, reported_step = number_of(value), to_plain(step)
        if number is None:
            raise TypeError("trial.report(None, …): report a number")
        if isinstance(reported_step, float) and reported_step.is_integer():
            reported_step = int(reported_step)
        if not is_whole(reported_step) or reported_step < 0:
            raise RunnerError(f"trial.report(…, step={step!r}): the step must be a whole number, 0 or more")
        if reported_step not in self._reported_steps:
            self._reported_steps.add(reported_step)
            self._report(number)

    def should_prune(self) -> bool:
        """Return False: a trial that is not worth continuing now waits in `report`, and may be continued later.

        Returns
        -------
        bool
            False.
        """
        return False

    def set_user_attr(self, key: str, value: Any) -> None:
        """Set a value of `user_attrs`; a number is stored with the next step as a metric.

        Parameters
        ----------
        key : str
            Its name.
        value : object
            The value.
        """
        self.user_attrs[key] = value


def _float(low: float, high: float, *, step: float | None = None, log: bool = False) -> Parameter:
    parameter = Float(low, high, log, step=step)
    can_step = isinstance(parameter.step, int | float) and parameter.step > 0 and not log and low < high
    is_single = low == high or (can_step and not has_room(parameter.low, parameter.high, parameter.step or 0))
    return Constant(float(low)) if is_single else parameter


def raise_changed(name: str, before: str, now: str, where: str) -> NoReturn:
    """Raise the error for a parameter whose range is not the one that it had before."""
    raise SpaceError(
        f"{name} was {before}, and is now {now} ({where}): the range of a parameter must be the same in all calls; use another "
        "name for each range, or the widest range"
    )


def find_caller() -> str:
    """Return the file and the line of the objective from which this package was called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
