"""Run a study with training code.

`RunOptions` describe a run. `StudyRun` makes the runner and the progress display, and runs the loop. The command line and
`BudgetSearchCV` use it directly, because they report the result in their own ways.

`run_study` is for Python users: `tune` and `Study.run` call it. It uses `StudyRun`, and adds warnings and the error
`TrainingFailed` if no step worked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shoestring.core.ledger.budget import read_duration_s
from shoestring.core.ledger.entries import Amendment, Entry, Note, Receipt
from shoestring.core.ledger.failures import describe_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.values import checks
from shoestring.errors import StudyError, StudyInUse, TrainingFailed, one_line, warn
from shoestring.reports.messages import describe_slow_policy, find_warning
from shoestring.reports.progress import SilentProgress, announce_anyway, make_view, print_line
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.runners.make import RunnerOptions, make_runner
from shoestring.runners.runner import Runner, is_runner
from shoestring.runners.training.code import CodeWithObjects
from shoestring.stores.in_memory import MemoryStore
from shoestring.stores.unnamed import MAX_AGE_DAYS, is_unnamed
from shoestring.study.interrupts import find_free_signals, stop_on_signals
from shoestring.study.loop import Ending, Loop, Observer

if TYPE_CHECKING:
    from shoestring.study.study import Study

Callback = Callable[["Study", Trial], Any]


@dataclass(frozen=True, kw_only=True)
class RunOptions(RunnerOptions):
    """How to run a study: its runner, its end, and what is shown. A wrong value raises an error here."""

    workers: int | None = None  # None: the number that the study has
    deadline: str | float | None = None  # longest clock time of this run
    should_stop: Callable[[], bool] | None = None
    stops_on_ctrl_c: bool = (
        True  # whether the first Ctrl-C ends the run in order; otherwise it raises KeyboardInterrupt
    )
    callbacks: Sequence[Callback] = ()  # called with the study and the trial after each step
    observe: Observer | None = None  # called with each new entry of the ledger, and with None while nothing happens
    progress: bool | None = None  # None: shown only in a terminal or a notebook

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers is not None:
            checks.check_whole("workers", self.workers, 1)
            self.require_workers(self.workers)
        read_duration_s(self.deadline, "deadline")
        checks.check_functions("callbacks", self.callbacks, "[f] with f(study, trial)")
        checks.check_function("observe", self.observe, "observe(ledger, entry)")
        if not isinstance(self.progress, bool | None):
            raise StudyError(
                f"progress={self.progress!r} must be True, False, or None (show it in a terminal or notebook)"
            )


class StudyRun:
    """One run of a study: its runner, its progress display (`view`), and the loop.

    `train` is training code or a runner. Call `spend` inside `with run.view:`, unless the display is off.

    Attributes
    ----------
    signals : list of int
        The signals that have asked this run to stop; `stop_on_signals` fills it.
    trains_here : bool
        Whether steps are trained in this process, where they cannot be interrupted.
    """

    def __init__(self, study: Study, train: Any, options: RunOptions) -> None:
        if options.workers is not None and options.workers != study.ledger.workers:
            study.amend(Amendment(workers=int(options.workers)))
        self.study, self.options = study, options
        self._began = time.monotonic()  # the deadline includes the start of the workers
        workers = study.ledger.workers
        self.runner = train if is_runner(train) else self._make_runner(self._bind(train), workers)
        title = f"{study.name}: {study.ledger.state.policy}, seed {study.ledger.definition.seed}"
        self.view = make_view(title, options.progress)
        self.signals: list[int] = []
        self.trains_here = isinstance(self.runner, LocalRunner)
        self._is_asked_to_stop = False

    def _bind(self, train: Any) -> Any:
        """Return training code that gets options as objects, where configs of the ledger have their texts."""
        if getattr(train, "reads_stored_options", False):
            return train
        space = self.study.given_space
        space.require_objects()
        return CodeWithObjects(train, space) if space.has_objects else train

    def _make_runner(self, train: Any, workers: int) -> Runner:
        deadline_s = read_duration_s(self.options.deadline, "deadline")
        return make_runner(self.options, train, self.study.checkpoints, workers, deadline_s)

    def _announce_long_step(self, text: str) -> None:
        remedy = (
            "press Ctrl-C twice, and continue with --runner process" if self.trains_here else "stop, and continue with"
        )
        announce_anyway(self.view, f"{text}: if it hangs, {remedy} --hung-after 10m, which ends such steps")

    def stop(self) -> None:
        """Ask the run to end. Any thread may call this."""
        self._is_asked_to_stop = True

    def stop_on_signals(self, numbers: Sequence[int]) -> AbstractContextManager[None]:
        """Return a context in which the first of these signals ends the run, and the second raises KeyboardInterrupt."""
        announce = partial(announce_anyway, self.view)
        return stop_on_signals(self.signals, numbers, announce, finishes_step=self.trains_here)

    def stop_on_ctrl_c(self) -> AbstractContextManager[None]:
        """Return the context for a run from Python: it handles Ctrl-C if the options allow it and nobody else handles it.

        A simulation is left alone: nothing is lost with it, and programs run hundreds of them one after the other.
        """
        is_wanted = self.options.stops_on_ctrl_c and not self.runner.simulated
        return self.stop_on_signals(find_free_signals() if is_wanted else ())

    def _call_back(self, ledger: Ledger, entry: Entry | None) -> None:
        if isinstance(entry, Receipt) and (entry.is_finished or entry.status == "failed"):
            for callback in self.options.callbacks:
                callback(self.study, self.study.trials[entry.trial])

    def _should_stop(self) -> bool:
        should_stop = self.options.should_stop
        return bool(self.signals) or self._is_asked_to_stop or (should_stop is not None and should_stop())

    def spend(self, observer: Observer | None = None) -> Ending:
        """Train until the budget, the deadline, the policy or the user ends the run.

        `observer` is called with each entry before `options.observe`, and the callbacks come last.
        """
        study, options = self.study, self.options
        call_back = self._call_back if options.callbacks else None
        observers = [one for one in (self.view, observer, options.observe, call_back) if one is not None]

        def observe(ledger: Ledger, entry: Entry | None) -> None:
            for one in observers:
                one(ledger, entry)

        with study.store.lease(study.name) as lease:
            study.journal.refresh()
            policy, deadline_s = study.policy, read_duration_s(options.deadline, "deadline")
            if deadline_s is not None and not self.runner.simulated:
                deadline_s -= time.monotonic() - self._began
            loop = Loop(
                study.journal,
                lease,
                policy,
                self.runner,
                deadline_s=deadline_s,
                should_stop=self._should_stop,
                signals=self.signals,
                observe=observe,
                announce_long_step=self._announce_long_step if options.hung_after is None else None,
            )
            study.present_run = self
            try:
                study.ending = loop.run()
            finally:
                study.present_run = None
        if lease.lost:
            study.journal.refresh()  # raises another error if the store itself is gone
            raise StudyInUse(f"the study {study.name!r} was taken over by another process: this one has stopped")
        return study.ending


def run_study(study: Study, train: Any, options: RunOptions) -> Ending:
    """Run a study from Python and return why the run ended.

    With training code, warnings tell the user what went wrong, and `TrainingFailed` is raised when no step worked. With a
    runner in its place, no progress is shown and nothing is raised: only the `Ending` shows how the run ended.
    """
    has_runner = is_runner(train)
    run = StudyRun(study, train, replace(options, progress=False, workers=None) if has_runner else options)
    observer = warn_of_notes if type(run.view) is SilentProgress and not has_runner else None
    place = find_temporary_file(study) if options.progress is not False else None
    try:
        with run.stop_on_ctrl_c(), run.view:
            if place is not None:
                announce_anyway(run.view, describe_temporary_file(place))
            ending = run.spend(observer=observer)
            if place is not None and not run.signals:
                announce_anyway(run.view, f"to open or continue this study later: store={place!r}")
    finally:
        if run.signals:
            describe_stop(study)
    if not has_runner:
        report_problems(study, ending)
    return ending


def find_temporary_file(study: Study) -> str | None:
    """Return the file of a study whose user named no store; None for other studies."""
    path = getattr(study.store, "path", None)
    return str(path) if is_unnamed(path) else None


def describe_temporary_file(place: str) -> str:
    """Return where the study is stored, and for how long."""
    return f"the study is stored in {place}, which is deleted when nobody has used it for {MAX_AGE_DAYS} days"


def describe_stop(study: Study) -> None:
    """Print on standard error, after Ctrl-C, what was spent and how the study continues."""
    budget, store = study.ledger.budget, study.store
    if isinstance(store, MemoryStore):
        how = "study.run(train) continues it while this process lives; it is only in memory: pass store='file.db' to keep it"
    else:
        how = f"the same call with store={store.where!r} and name={study.name!r} continues it, and so does study.run(train)"
    spent = f"{budget.show(study.spent)} of {budget.show(budget.total)}"
    print_line(f"the study {study.name!r} was stopped by Ctrl-C: spent {spent}; {how}")


def warn_of_notes(ledger: Ledger, entry: Entry | None) -> None:
    """Issue a Python warning for a note that the user should see; the observer of runs without a progress display."""
    if isinstance(entry, Note) and (text := find_warning(entry)):
        warn(text)


def report_problems(study: Study, ending: Ending) -> None:
    """Issue the warnings that a user needs after a run; raise `TrainingFailed` if no step of the training code worked."""
    ledger, reason = study.ledger, ending.reason
    broken = [trial for trial in ledger.trials if trial.failure or trial.diverged]
    if ledger.best is None and broken and reason in ("failing", "budget", "policy"):
        raise TrainingFailed(_describe_failures(study, ending), study)
    if ledger.best is None and reason in ("budget", "policy"):
        spent, total = ledger.budget.show(ledger.spent), ledger.budget.show(ledger.budget.total)
        warn(
            f"the study {study.name!r} has no result: it spent {spent} of {total} and no step was validated; raise the budget"
        )
    if reason == "failing":
        remedy = "repair the code and make the same call again: the study then continues"
        warn(f"the study {study.name!r} ended early after repeated failures: {_one_line(ending.text)}; {remedy}")
    for text in (_describe_unspent(ledger, ending), describe_slow_policy(ledger)):
        if text is not None:
            warn(text)


def _describe_unspent(ledger: Ledger, ending: Ending) -> str | None:
    """Return a warning if the policy ended the run although the rest of the budget pays for another step."""
    left, step = ledger.left, ledger.step_price()
    # Before the first step the price is NaN, and no number is less than NaN.
    if ending.reason != "policy" or left <= 0 or left < step:
        return None
    remedy = "to spend the rest, widen the space or choose another policy"
    return f"{ledger.state.policy} has ended the run: {ending.text}; {remedy}"


def _describe_failures(study: Study, ending: Ending) -> str:
    trials = study.ledger.trials
    failed = [trial for trial in trials if trial.failure]
    if not failed:
        reason = ending.text if ending.reason == "failing" else "no value was a finite number"
        config = one_line(repr(dict(trials[-1].config)))
        return f"the study {study.name!r} has no result: {reason}; check what the training code reports for {config}"
    last = failed[-1]
    count = "its only trial" if len(trials) == 1 else f"{len(failed)} of {len(trials)} trials"
    return (
        f"the study {study.name!r} has no result: {count} failed and no step has ever worked; the last failure was "
        f"{_one_line(last.failure)}; the whole text is in error.study.trials[{last.number}].failure"
    )


def _one_line(text: str) -> str:
    return one_line(describe_failure(text)) or "no reason given"
