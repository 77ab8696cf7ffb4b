"""The commands `run` and `resume`: begin or continue a study, run it, and report how the run ended."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from shoestring.cli.job import (
    Job,
    add_validation_limit,
    find_policy,
    read_configs,
    read_direction,
    read_renames,
    read_settings,
    require_file,
)
from shoestring.cli.options import FAILED, NO_RESULT, STOPPED, SUCCESS
from shoestring.cli.printing import print_line, print_rich, store_words
from shoestring.core.deciding.policy import warn_of_small_budget
from shoestring.core.ledger.amendments import find_changes
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Direction, Entry
from shoestring.core.ledger.failures import describe_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import count, printable
from shoestring.reports import facts, messages
from shoestring.reports.progress import Progress
from shoestring.runners.runner import Runner
from shoestring.stores.addresses import PASSWORD_VARIABLE
from shoestring.study.loop import Ending
from shoestring.study.run_study import RunOptions, StudyRun
from shoestring.study.study import Study

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_CANNOT_SAVE = {
    "python": "this training code cannot save checkpoints, so paused trials stay in memory and are lost when the run stops",
    "ray": "this training code cannot save checkpoints, so a paused trial occupies its worker, and is lost when another trial "
    "needs that worker",
    "command": "this program writes no checkpoint to SHOESTRING_CHECKPOINT, so a trial that continues is trained again from "
    "its first step",
}
_MAX_COMPARED = 20  # other studies of the store whose parameters are compared with those of a new one
_CHECKS_CODE = "/shoestring/runners/training/code.py"  # the file that checks what training code reports


def run_command(
    target: str | None,
    command: list[str],
    *,
    budget: str,
    space_file: str | None,
    params: Iterable[str],
    table: str | None,
    max_steps: int | None,
    direction: Direction | None,
    maximize: bool,
    metric: str | None,
    policy: str | None,
    settings: Iterable[str],
    workers: int | None,
    seed: int | None,
    initial: str | None,
    like: Sequence[str],
    like_rename: Iterable[str],
    deadline: str | None,
    validate_price: float,
    validate_at_most: str | None,
    quiet: bool,
    store: str,
    name: str | None,
    as_json: bool,
    **job_words: Any,
) -> int:
    """Begin or continue a study, and run it. `job_words` are the options that `Job.from_words` reads."""
    job = Job.from_words(target, command, table, **job_words)
    space = job.space(space_file, params)
    workers = job.options.device_count if workers is None else workers
    options = job.run_options(deadline=deadline, progress=not quiet)
    job.check(space, 1 if workers is None else workers)
    name = name or job.name
    settings = tuple(settings)
    own_policy = find_policy(policy, store, name) if settings or validate_at_most is not None else ""
    study = Study.begin(
        space,
        budget,
        name=name,
        store=require_file(store),
        max_steps=job.max_steps(max_steps),
        direction=read_direction(direction, maximize=maximize),
        policy=policy,
        settings=add_validation_limit(own_policy, read_settings(settings, own_policy), validate_at_most),
        seed=seed,
        workers=workers,
        prices=Prices(validate_price),
        initial=read_configs(initial),
        like=list(like),
        like_rename=read_renames(like_rename),
        target=job.to_target(),
        metric=metric,
    )
    job = job.with_stored_options(study.ledger.definition.target)
    options = job.run_options(deadline=options.deadline, progress=options.progress)
    return _run(study, job, options, store, as_json=as_json)


def resume_command(
    *, budget: str | None, deadline: str | None, quiet: bool, store: str, name: str | None, as_json: bool
) -> int:
    """Continue a study that was stopped, with a larger budget if one is given."""
    study = Study.open(name, store)
    ledger, state = study.ledger, study.ledger.state
    job = Job.from_target(ledger.definition.target)
    options = job.run_options(deadline=deadline, progress=not quiet)
    job.check(None, ledger.workers)
    _ = study.policy  # raises an error now, before anything is changed, if the policy is not registered
    if budget is not None:
        present = {"policy": state.policy, "settings": state.settings, "workers": state.workers}
        if change := find_changes(ledger, replace(ledger.definition, budget=Budget(budget), **present)):
            study.amend(change)
            study.journal.change = change
    return _run(study, job, options, store, as_json=as_json)


def _run(study: Study, job: Job, options: RunOptions, store: str, *, as_json: bool) -> int:
    """Run the study, print the result, and return the exit code."""
    run = StudyRun(study, job.code_or_runner(study.ledger, study.checkpoints), options)
    with run.stop_on_signals(_SIGNALS):
        with run.view:
            if hasattr(study.store, "on_outage"):  # a database may make the run wait
                study.store.on_outage = run.view.announce
            for line in _introduce(study, job, run.runner):
                run.view.announce(line)
            try:
                with contextlib.redirect_stdout(sys.stderr):  # stdout is for results, and training code may print
                    ending = run.spend(observer=_SavingNotice(job, run.runner, run.view))
            except KeyboardInterrupt:  # the second signal: the present step is discarded and trained again later
                ending = Ending("stopped", "", study.ledger)
            _ignore_signals()  # a third signal must not interrupt the output
            last_line = messages.describe_ending(
                study.ledger, ending.reason, ending.text, in_this_process=run.trains_here
            )
            run.view.end(last_line)
        is_quiet = options.progress is False
        code = _report_ending(study, job, store, ending, as_json=as_json, last_line=None if is_quiet else last_line)
    return STOPPED + run.signals[-1] if run.signals and ending.reason == "stopped" else code


# before and during a run ---------------------------------------------------------------------------------------------


def _introduce(study: Study, job: Job, runner: Runner) -> Iterator[str]:
    ledger = study.ledger
    total = ledger.budget.show(ledger.budget.total)
    if not ledger.orders:
        policy = f"policy {ledger.state.policy}, seed {ledger.definition.seed}"
        yield f"study {study.name!r}: {total} for {job.words}, {policy}"
        yield from _describe_earlier_studies(study)
    else:
        spent = f"{ledger.budget.show(ledger.spent)} of {total} spent"
        trials = count(len(ledger.trials), "trial")
        yield f"study {study.name!r} continues: {spent}, {trials}, policy {ledger.state.policy}"
    if change := study.journal.change:
        yield f"changed: {messages.format_change(change)}"
    for notice in getattr(study.store, "notices", ()):
        yield f"note: {notice}"
    for warning in (*job.list_warnings(ledger.space), *_warn_of_small_budget(study)):
        yield f"warning: {warning}"
    if job.has_changed_since(ledger.definition.target):
        yield "warning: the training code has changed since this study began; its earlier values may not be comparable"
        if failed := sum(bool(trial.failure) for trial in ledger.trials):
            yield f"note: {count(failed, 'failed trial')} of the earlier code will not be trained again by the policy"
    if runner.can_save is False and not runner.simulated and ledger.max_steps > 1:
        yield _describe_no_saving(job)


def _describe_earlier_studies(study: Study) -> Iterator[str]:
    """Yield what the study has learned from earlier ones, or that there are some from which it could learn."""
    if len(study.ledger) > 1 and (lines := messages.describe_earlier_studies(study.ledger)):
        yield from lines
    elif alike := _list_alike(study):
        are = "earlier study of this space is" if len(alike) == 1 else "earlier studies of this space are"
        yield f"note: {len(alike)} {are} in this store; in a new study, --like {shlex.quote(alike[-1])} uses it"


def _list_alike(study: Study) -> list[str]:
    """Return the names of the other studies of the store that have the same parameters and a result; only the newest are read."""
    others = [name for name in study.store.studies() if name != study.name][-_MAX_COMPARED:]
    names = study.ledger.space.parameters.keys()
    ledgers = ((name, study.store.load(name)) for name in others)
    return [name for name, one in ledgers if one is not None and one.best and one.space.parameters.keys() == names]


def _describe_no_saving(job: Job) -> str:
    return f"note: {_CANNOT_SAVE['ray' if job.options.is_ray else job.kind]}"


def _warn_of_small_budget(study: Study) -> Iterator[str]:
    """Yield a warning if a budget of epochs is small; with time or money, the cost of a full training is not known yet."""
    ledger = study.ledger
    if ledger.budget.unit == "epochs" and not ledger.orders:
        full_trainings = ledger.budget.total / (ledger.step_price() * ledger.max_steps)
        if warning := warn_of_small_budget(study.policy, full_trainings, ledger.max_steps):
            yield warning


class _SavingNotice:
    """An observer that says once that the code cannot save checkpoints; a generator shows this with its first report."""

    def __init__(self, job: Job, runner: Runner, view: Progress) -> None:
        self._job, self._runner, self._view = job, runner, view
        self._is_known = runner.can_save is not None

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        if self._is_known or self._runner.can_save is None:
            return
        self._is_known = True
        if not self._runner.can_save and ledger.max_steps > 1:
            self._view.announce(_describe_no_saving(self._job))


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


# after a run ---------------------------------------------------------------------------------------------------------


def _report_ending(study: Study, job: Job, store: str, ending: Ending, *, as_json: bool, last_line: str | None) -> int:
    """Print the result and the next commands; return the exit code. Without `last_line` only the result is printed."""
    if as_json:
        summary = facts.summary(study.name, study.ledger, study.best_checkpoint)
        print_line(dumps(summary | {"reason": ending.reason}))
    else:
        print_rich(messages.format_best(study.ledger, study.best_checkpoint), wraps=False)
    sys.stdout.flush()  # before the lines on stderr, which may be the same terminal
    if last_line is not None:
        lines = (last_line, *messages.explain_overhead(study.ledger), *_list_next_commands(study, job, store, ending))
        for line in lines:
            sys.stderr.write(printable(line) + "\n")
    if ending.reason == "failing":
        sys.stderr.write(printable(_explain_failure(ending.text), lines=True) + "\n")
        return FAILED
    return NO_RESULT if study.best is None and ending.reason in ("budget", "policy") else SUCCESS


def _explain_failure(text: str) -> str:
    """Return the traceback of training code that raised; one line if the error is about what the code reported."""
    frames = [line for line in text.splitlines() if line.lstrip().startswith('File "')]
    is_about_report = frames and _CHECKS_CODE in frames[-1].replace("\\", "/")
    return describe_failure(text) if is_about_report else text


def _list_next_commands(study: Study, job: Job, store: str, ending: Ending) -> Iterator[str]:
    """Yield the commands that the user may want next, ready to be copied."""
    where = store_words(store, study.store.where)
    resume = ["shoestring", "resume", "--study", study.name, *where]
    password = f" (put the password into {PASSWORD_VARIABLE})" if getattr(study.store, "has_password", False) else ""
    if ending.reason in ("stopped", "deadline"):
        yield f"continue with{password}: {shlex.join(resume)}"
        return
    if ending.reason == "failing":
        yield f"repair the code, then continue with{password}: {shlex.join(resume)}"
    if ending.reason == "budget":
        yield f"spend more with{password}: {shlex.join([*resume, '--budget'])} '<a larger total>'"
    best, ledger = study.best, study.ledger
    if best is None or study.best_checkpoint is not None or job.kind == "table" or ledger.max_steps == 1:
        return
    if ledger.trials[best.trial].is_retuned:
        yield "its configuration changed during training: shoestring.Schedule.of(study.ledger).save(path) saves all of them"
    cost = study.retrain_cost()
    yield f"there is no checkpoint, because the code cannot save; this trains the best trial again, for about {cost}:"
    yield f"  {shlex.join(['shoestring', 'retrain', '--study', study.name, *where])}"
