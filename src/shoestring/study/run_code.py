"""A study run from Python: from training code to a runner, with progress on the way and a plain word at the end.

The command line does the same with words of its own (cli/run.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shoestring.core.ledger.entries import Amended, Entry, Note
from shoestring.core.ledger.failures import say_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values import checks as arguments
from shoestring.errors import StudyError, TrainingFailed, one_line, warn
from shoestring.reports.notebook import make_view
from shoestring.reports.progress import Quiet
from shoestring.reports.text import say_thinking, warning_of
from shoestring.runners.make import make_runner, steps_of
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner
from shoestring.study.loop import Ending, Observe

if TYPE_CHECKING:
    from shoestring.study.study import Study


def run_code(
    study: Study,
    train: Any,
    *,
    workers: int | None,
    runner: str | Runner | RayCluster | None,
    devices: str | Sequence[int] | None,
    live: int | None,
    checkpoints_at_most: str | None,
    deadline: str | float | None,
    should_stop: Callable[[], bool] | None,
    observe: Observe | None,
    progress: bool | None,
) -> Ending:
    """See `Study.run`."""
    steps_of(train, study.ledger.max_steps)
    require_watch(observe, progress)
    if workers is not None and arguments.whole("workers", workers, 1) != study.ledger.workers:
        study.amend(Amended(workers=workers))
    ledger = study.ledger
    only_if_given: dict[str, Any] = {} if devices is None else {"devices": devices}
    limits = (live, checkpoints_at_most)
    chosen = make_runner(runner, train, study.checkpoints, ledger.workers, *limits, **only_if_given)
    with make_view(f"{study.name}: {ledger.books.policy}, seed {ledger.opened.seed}", progress) as view:
        is_silent = type(view) is Quiet

        def watch(ledger: Ledger, entry: Entry | None) -> None:
            if is_silent and isinstance(entry, Note) and (text := warning_of(entry)):
                warn(text)
            view(ledger, entry)
            if observe is not None:
                observe(ledger, entry)

        ending = study.run(chosen, deadline=deadline, should_stop=should_stop, observe=watch)
    conclude(study, ending)
    return ending


def require_watch(observe: Observe | None, progress: bool | None) -> None:
    arguments.function("observe", observe, "observe(ledger, entry)")
    if not isinstance(progress, bool | None):
        raise StudyError(f"progress={progress!r} must be True, False, or None: where somebody can see it")


def conclude(study: Study, ending: Ending) -> None:
    """What the user must know when a run is over; nothing to show for the money is an error."""
    ledger, reason = study.ledger, ending.reason
    broken = [trial for trial in ledger.trials if trial.failure or trial.diverged]
    if ledger.best is None and broken and reason in ("failing", "budget", "policy"):
        raise TrainingFailed(_say_broken(study, ending), study)
    if ledger.best is None and reason in ("budget", "policy"):
        spent, total = ledger.budget.show(ledger.spent), ledger.budget.show(ledger.budget.total)
        warn(f"the study {study.name!r} has no result: {spent} of {total} bought no validated step; raise the budget")
    if reason == "failing":
        again = "repair the code and give the same call again: the study goes on"
        warn(f"the study {study.name!r} ended early: {_one_line(ending.text)}, again and again; {again}")
    for text in (_say_unspent(ledger, ending), say_thinking(ledger)):
        if text is not None:
            warn(text)


def _say_unspent(ledger: Ledger, ending: Ending) -> str | None:
    """The policy has ended the run, and another step could have been paid."""
    left, step = ledger.left, ledger.step_price()
    if ending.reason != "policy" or left <= 0 or left < step:  # nan, before the first step, is no price
        return None
    remedy = "widen the space or choose another policy to spend it, or leave it"
    return f"{ledger.books.policy} has ended the run: {ending.text}; {remedy}"


def _say_broken(study: Study, ending: Ending) -> str:
    trials = study.ledger.trials
    failed = [trial for trial in trials if trial.failure]
    if not failed:
        what = ending.text if ending.reason == "failing" else "no value was a finite number"
        config = one_line(repr(dict(trials[-1].config)))
        return f"the study {study.name!r} has no result: {what}; look at what the training code reports for {config}"
    last = failed[-1]
    count = "its only trial" if len(trials) == 1 else f"{len(failed)} of {len(trials)} trials"
    return (
        f"the study {study.name!r} has no result: {count} failed and no step has ever worked; "
        f"the last failure was {_one_line(last.failure)}; all of its text: error.study.trials[{last.number}].failure"
    )


def _one_line(text: str) -> str:
    return one_line(say_failure(text)) or "no reason given"
