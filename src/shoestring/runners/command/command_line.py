"""The arguments and the environment of a command, and the reports that it writes.

Input: `{lr}` in an argument is replaced by the value of the parameter lr, and `{config}`, `{checkpoint}`, `{step}`, `{until}`,
`{max_steps}` by the values of the variables below. An argument with the placeholder of an inactive parameter is left out, so
write `--momentum={momentum}` as one word. Any other `{word}` is an error, raised before anything is trained; write `{{word}}` to
have `{word}` in the command. Braces around more than one word, as in awk's `{print $1}`, are left alone.

    SHOESTRING_CONFIG       file with all parameters as one JSON object
    SHOESTRING_CHECKPOINT   directory that lasts as long as the trial; empty when the trial begins
    SHOESTRING_STEP         the step to continue from, 0 at the start
    SHOESTRING_UNTIL        the last step that is ordered: stop after it
    SHOESTRING_MAX_STEPS    steps of a full training, for learning-rate schedules
    SHOESTRING_VALIDATE     each, last or none: which steps are to be validated
    SHOESTRING_REPORT       file to which reports may be appended, instead of printing them
    SHOESTRING_DEVICE       the device of this worker, where devices were named; the same as CUDA_VISIBLE_DEVICES

Output: one line for each report, on standard output or in the file that SHOESTRING_REPORT names. `{"value": 0.3}` says that one
more step is done; a bare number says the same, until the first JSON report. With `"step"`, steps may be skipped. With `"cost"`
(seconds, or seconds by setup, train, validate) the measured time is replaced. `"metrics": {"accuracy": 0.9}` is stored with the
value. `"saved": true`, or the number of a step, says that the checkpoint directory now holds that step. NaN and Infinity are
values: the step diverged. Any other line is ignored.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from shoestring.core.ledger.entries import Cost
from shoestring.core.space.parameters import Choice, Constant, Parameter
from shoestring.core.space.space import Config, Space
from shoestring.core.values.checks import to_number
from shoestring.errors import RunnerError
from shoestring.runners.devices import device_variables
from shoestring.runners.training.code import read_cost, read_metrics

_WORD = r"([A-Za-z_][\w.-]*)"
_PLACEHOLDER = re.compile(rf"\{{\{{\{{{_WORD}\}}\}}\}}|\{{\{{{_WORD}\}}\}}|\{{{_WORD}\}}")  # {{{a}}}, {{a}} or {a}
_PLACEHOLDERS = ("config", "checkpoint", "step", "until", "max_steps")
_CONFIG_VARIABLE = "SHOESTRING_CONFIG"
_LOOK_BYTES = 1 << 16  # of each file and pipe, read at a time
_MAX_LINE_BYTES = 1 << 20  # a longer line is no report
_MAY_REPORT = re.compile(rb"\s*[{+\-.\dniNI]")  # the beginning of a report; lines of chatter need not be decoded
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|nan|inf(inity)?)", re.IGNORECASE)


def check_arguments(argv: Sequence[str], space: Space) -> None:
    """Raise a RunnerError, one line with a remedy, for a command that could never work."""
    if not argv or not argv[0]:
        raise RunnerError("the command is empty: write it after --, as in -- python train.py --lr={lr}")
    if not _placeholder_names(argv[0]) and shutil.which(argv[0]) is None:
        if Path(argv[0]).is_file():
            raise RunnerError(
                f"the command {argv[0]!r} is not executable: chmod +x it, or name its interpreter: python {argv[0]}"
            )
        raise RunnerError(f"the command {argv[0]!r} was not found: check its name, or give its path")
    names = [*space.parameters, *_PLACEHOLDERS]
    for word in _placeholder_names(*argv):
        if word in _PLACEHOLDERS and word in space.parameters:
            raise RunnerError(
                f"{{{word}}} is ambiguous: it names a parameter and the trial's {word}; rename the parameter"
            )
        if word not in names:
            lowered = {name.lower(): name for name in names}
            close = difflib.get_close_matches(word.lower(), lowered, n=1)
            hint = f"Did you mean {{{lowered[close[0]]}}}?" if close else f"Known: {', '.join(names)}."
            raise RunnerError(
                f"{{{word}}} is not a parameter of the space. {hint} To have these braces in the command, write {{{{{word}}}}}"
            )
        if word in space.parameters and any("\0" in text for text in _option_arguments(space.parameters[word])):
            raise RunnerError(
                f"{{{word}}} has an option with the character NUL, which no argument can hold: leave it out, "
                f"or read the parameter from the file in {_CONFIG_VARIABLE}"
            )


def find_unused(argv: Sequence[str], space: Space) -> list[str]:
    """Return the parameters that the command seems to ignore: others have a placeholder, but these and `{config}` do not."""
    placed = set(_placeholder_names(*argv))
    whole_config = "config" in placed or any(_CONFIG_VARIABLE in argument for argument in argv)
    varied = [name for name, parameter in space.parameters.items() if not isinstance(parameter, Constant)]
    if whole_config or not placed.intersection(varied):
        return []
    return [name for name in varied if name not in placed]


def fill_in(argv: Sequence[str], space: Space, config: Config, places: Mapping[str, str]) -> list[str]:
    """Return the arguments for one config."""
    known = {name: _to_argument(value) for name, value in config.items()} | dict(places)
    inactive = {name for name in space.parameters if name not in config}
    wanted = [argument for argument in argv if not inactive.intersection(_placeholder_names(argument))]

    def fill(found: re.Match[str]) -> str:
        in_braces, escaped, alone = found.groups()
        if escaped:
            return f"{{{escaped}}}"
        value = known.get(in_braces or alone, found[0])
        return f"{{{value}}}" if in_braces else value

    return [_PLACEHOLDER.sub(fill, argument) for argument in wanted]


def make_environment(places: Mapping[str, str], reports: Path, validate: str, device: str = "") -> dict[str, str]:
    """Return the environment of the command; `places` are the values that it may have in its arguments too."""
    variables = {f"SHOESTRING_{name.upper()}": places[name] for name in _PLACEHOLDERS}
    variables |= {"SHOESTRING_VALIDATE": validate, "SHOESTRING_REPORT": str(reports)}
    # Python buffers its output when it writes into a pipe; a report must come when its step is done.
    return {**os.environ, "PYTHONUNBUFFERED": "1", **device_variables(device), **variables}


@dataclass(frozen=True, slots=True)
class CommandReport:
    """One report. `has_value` is False when it only says what was saved."""

    value: float | None = None
    has_value: bool = True
    step: int | None = None  # None: one more than before
    cost: Cost | None = None  # None: measured
    saved: int | bool = False
    is_bare: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)


def read_line(line: str) -> CommandReport | None:
    """Return a report, or None for any other line. Raise a ValueError for a report that cannot be understood."""
    text = line.strip()
    if _NUMBER.fullmatch(text):
        return CommandReport(float(text), is_bare=True)
    if not text.startswith("{"):
        return None
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not ("value" in body or "saved" in body):
        return None
    value, step, saved, cost = body.get("value"), body.get("step"), body.get("saved", False), body.get("cost")
    try:
        number = None if value is None else to_number(value)
    except TypeError:
        raise ValueError(f"the command reported the value {value!r}: report a number or null") from None
    if not (step is None or (_is_number(step) and step == step // 1 and step >= 1)):
        raise ValueError(f"the command reported the step {step!r}: steps are whole numbers from 1")
    if not (isinstance(saved, bool) or (isinstance(saved, int) and saved >= 0)):
        raise ValueError(f'the command reported "saved": {saved!r}: say true, or the number of the step')
    try:
        reported_cost = None if cost is None else read_cost(cost)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"the command reported the cost {cost!r}: report seconds >= 0, alone or by setup, train and validate"
        ) from None
    metrics = _read_metrics(body.get("metrics"))
    return CommandReport(
        number, "value" in body, None if step is None else int(step), reported_cost, saved, metrics=metrics
    )


def _read_metrics(metrics: Any) -> dict[str, float]:
    try:
        return read_metrics(metrics)
    except TypeError as error:
        raise ValueError(str(error)) from None


class Output:
    """The output of one run of a command, line by line. Standard output is kept in a log.

    One call of `lines` reads a bounded amount, so a command that prints without end cannot occupy this process: it waits in its
    pipe instead. `is_drained` says whether the last call has read all that there was.
    """

    def __init__(self, pipe: IO[bytes], log: Path, reports: Path) -> None:
        os.set_blocking(pipe.fileno(), False)
        self.pipe, self._log, self.reports = pipe, log, reports
        self.is_drained = True
        self._printed, self._written = _Lines(), _Lines()
        self._reports_read = 0
        self._read_after_end = 0  # bytes: a process that escaped may hold the pipe, and print for ever

    def lines(self, ended: bool) -> list[str]:
        """Return lines not read before that may be reports; when the command has `ended`, the last one may lack its line end."""
        new, self.is_drained = self._read_pipe()
        if new:
            with self._log.open("ab") as log:
                log.write(new)
        if ended:
            self._read_after_end += len(new)
            self.is_drained |= self._read_after_end >= _MAX_LINE_BYTES
        printed = self._printed.split(new, ended and self.is_drained)
        if not self.reports.exists():  # a command may delete it
            return printed
        with self.reports.open("rb") as reports:
            reports.seek(self._reports_read)
            new = reports.read(_LOOK_BYTES)
        self._reports_read += len(new)
        self.is_drained &= len(new) < _LOOK_BYTES
        return printed + self._written.split(new, ended and self.is_drained)

    def _read_pipe(self) -> tuple[bytes, bool]:
        """Return what can be read now, up to a limit, and whether this was all."""
        if self.pipe.closed:
            return b"", True
        chunks: list[bytes] = []
        while sum(map(len, chunks)) < _LOOK_BYTES:
            try:
                chunks.append(os.read(self.pipe.fileno(), _LOOK_BYTES))
            except BlockingIOError:
                return b"".join(chunks), True
            if not chunks[-1]:
                self.pipe.close()
                return b"".join(chunks), True
        return b"".join(chunks), False


class _Lines:
    """Splits text that comes in pieces into lines without those that cannot be reports. Progress bars end theirs with `\\r`."""

    def __init__(self) -> None:
        self._rest, self._is_too_long = b"", False

    def split(self, text: bytes, ended: bool) -> list[str]:
        *whole, self._rest = re.split(rb"[\r\n]", self._rest + text)
        if whole and self._is_too_long:  # the first is the end of a line whose beginning was dropped
            whole[0], self._is_too_long = b"", False
        if len(self._rest) > _MAX_LINE_BYTES or self._is_too_long:
            self._rest, self._is_too_long = b"", True
        if ended:
            whole, self._rest = [*whole, self._rest], b""
        return [line.decode(errors="replace") for line in whole if _MAY_REPORT.match(line)]


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 1 << 63)


def _placeholder_names(*arguments: str) -> list[str]:
    """Return the names of the placeholders in these arguments."""
    return [
        in_braces or alone
        for argument in arguments
        for in_braces, escaped, alone in _PLACEHOLDER.findall(argument)
        if not escaped
    ]


def _option_arguments(parameter: Parameter) -> list[str]:
    """Return all arguments that a parameter may become, if it has a list of options."""
    return [_to_argument(value) for value in parameter.levels(1)] if isinstance(parameter, Choice | Constant) else []


def _to_argument(value: Any) -> str:
    """Return a parameter's value as an argument: text as it is, everything else as in JSON."""
    return value if isinstance(value, str) else json.dumps(value)
