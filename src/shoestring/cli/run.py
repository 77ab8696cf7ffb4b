"""The commands that spend, `run` and `resume`: from their options to a study, its runner and its stop.

How a run ends on the command line: the result, the way on, and the exit code.
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from shoestring import policies
from shoestring.cli.job import Job, add_validation_cap, read_configs, read_settings
from shoestring.cli.printing import print_line, print_rich, store_words
from shoestring.core.deciding.policy import warn_of_small_budget
from shoestring.core.ledger.amendments import find_changes
from shoestring.core.ledger.budget import Budget, Prices, parse_duration_s
from shoestring.core.ledger.entries import Entry
from shoestring.core.ledger.failures import say_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import count, printable
from shoestring.reports import text
from shoestring.reports.progress import Progress, make_progress
from shoestring.runners.checkpoints.checkpoint_store import name_place
from shoestring.runners.local.local_runner import Local
from shoestring.runners.runner import Runner
from shoestring.stores.addresses import PASSWORD_VARIABLE, open_store
from shoestring.study.loop import Ending, Observe
from shoestring.study.study import Study

_STOPS = (signal.SIGINT, signal.SIGTERM)
_CANNOT_SAVE = {
    "python": "note: this training code cannot save, so a frozen trial lives in memory and a stop loses it",
    "ray": "note: this training code cannot save, so a frozen trial holds its seat, and is lost when another trial needs it",
    "command": "note: this program leaves nothing in SHOESTRING_CHECKPOINT, so more of a trial is bought from its start again",
}


def run_study(
    target: str | None,
    command: list[str],
    *,
    budget: str,
    space_file: str | None,
    params: Iterable[str],
    table: str | None,
    max_steps: int | None,
    maximize: bool,
    policy: str | None,
    settings: Iterable[str],
    workers: int | None,
    runner: str | None,
    devices: str | None,
    address: str | None,
    cpus: float | None,
    gpus: float | None,
    resources: Iterable[str],
    prices: Iterable[str],
    log: Iterable[str],
    seed: int | None,
    initial: str | None,
    deadline: str | None,
    live: int | None,
    hung_after: str | None,
    checkpoints: str | None,
    checkpoints_at_most: str | None,
    validate_price: float,
    validate_at_most: str | None,
    quiet: bool,
    store: str,
    name: str | None,
    as_json: bool,
) -> int:
    """Begin a study, or go on with it: the same command again continues."""
    how = {"runner": runner, "live": live, "hung_after": hung_after, "checkpoints_at_most": checkpoints_at_most}
    of_cluster = {"address": address, "cpus": cpus, "gpus": gpus, "resources": list(resources), "prices": list(prices)}
    cluster = {name: value for name, value in of_cluster.items() if value not in (None, [])} or None
    place = name_place(checkpoints).get("checkpoints")
    job = Job.from_words(
        target, command, table, devices=devices, log=list(log) or None, cluster=cluster, checkpoints=place, **how
    )
    space = job.space(space_file, params)
    workers = job.workers if workers is None else workers
    job.check(space, 1 if workers is None else workers)
    deadline_s = None if deadline is None else parse_duration_s(deadline, "deadline")
    name = name or job.name
    cap_is_for = "" if validate_at_most is None else policy or _policy_now(store, name)
    study = Study.begin(
        space,
        budget,
        name=name,
        store=store,
        max_steps=job.max_steps(max_steps),
        direction="max" if maximize else "min",
        policy=policy,
        settings=add_validation_cap(cap_is_for, read_settings(settings), validate_at_most),
        seed=seed,
        workers=workers,
        prices=Prices(validate_price),
        initial=read_configs(initial),
        target=job.to_target(),
    )
    return _spend(study, job.going_on(study.ledger.opened.target), store, deadline_s, quiet=quiet, as_json=as_json)


def _policy_now(store: str, name: str) -> str:
    """The policy of a study that is there already, else the default."""
    ledger = open_store(store).load(name)
    return policies.DEFAULT if ledger is None else ledger.books.policy


def resume_study(
    *, budget: str | None, deadline: str | None, quiet: bool, store: str, name: str | None, as_json: bool
) -> int:
    """Go on with a study that was stopped, with more budget if that is wanted."""
    study = Study.open(name, store)
    ledger, books = study.ledger, study.ledger.books
    job = Job.from_target(ledger.opened.target)
    job.check(None, ledger.workers)
    _ = study.policy  # one that is not registered cannot be had here: said before anything is changed
    deadline_s = None if deadline is None else parse_duration_s(deadline, "deadline")
    if budget is not None:
        now = {"policy": books.policy, "settings": books.settings, "workers": books.workers}
        if change := find_changes(ledger, replace(ledger.opened, budget=Budget(budget), **now)):
            study.amend(change)
            study.journal.change = change
    return _spend(study, job, store, deadline_s, quiet=quiet, as_json=as_json)


def _spend(study: Study, job: Job, store: str, deadline_s: float | None, *, quiet: bool, as_json: bool) -> int:
    ledger = study.ledger
    runner = job.make_runner(ledger, study.checkpoints)
    in_this_process = isinstance(runner, Local)
    title = f"{study.name}: {ledger.books.policy}, seed {ledger.opened.seed}"
    progress = make_progress(title, quiet=quiet)
    with _stop_on_signals(progress, finishes_step=in_this_process) as came:
        with progress:
            if hasattr(study.store, "on_trouble"):  # a database that must be waited for says so
                study.store.on_trouble = progress.say
            for line in _greeting(study, job, runner):
                progress.say(line)
            try:
                observe = _tell_if_unsaved(job, runner, progress)
                with contextlib.redirect_stdout(sys.stderr):  # it is for results, and what runs beneath may print
                    ending = study.run(runner, deadline=deadline_s, should_stop=lambda: bool(came), observe=observe)
            except KeyboardInterrupt:  # the second time: the step under way is dropped, and run again later
                ending = Ending("stopped", "", study.ledger)
            _ignore_signals()  # one more must not cut off what is said now
            last_line = text.ending(study.ledger, ending.reason, ending.text, in_this_process=in_this_process)
            progress.end(last_line)
        code = report_ending(study, job, store, ending, as_json=as_json, last_line=None if quiet else last_line)
    return STOPPED + came[-1] if came and ending.reason == "stopped" else code


def _greeting(study: Study, job: Job, runner: Runner) -> Iterator[str]:
    ledger = study.ledger
    total = ledger.budget.show(ledger.budget.total)
    if not ledger.orders:
        policy = f"policy {ledger.books.policy}, seed {ledger.opened.seed}"
        yield f"study {study.name!r}: {total} for {job.words}, {policy}"
    else:
        spent = f"{ledger.budget.show(ledger.spent)} of {total} spent"
        trials = count(len(ledger.trials), "trial")
        yield f"study {study.name!r} goes on: {spent}, {trials}, policy {ledger.books.policy}"
    if change := study.journal.change:
        yield f"changed: {text.change_line(change)}"
    for notice in getattr(study.store, "notices", ()):
        yield f"note: {notice}"
    for warning in (*job.warnings(ledger.space), *_small_budget(study)):
        yield f"warning: {warning}"
    if job.has_changed_since(ledger.opened.target):
        yield "warning: the training code has changed since this study began; its earlier values may not compare"
    if runner.can_save is False and not runner.simulated and ledger.max_steps > 1:
        yield _say_unsaved(job)


def _say_unsaved(job: Job) -> str:
    return _CANNOT_SAVE["ray" if job.runner == "ray" else job.kind]


def _small_budget(study: Study) -> Iterator[str]:
    """In time and money nobody knows yet what a full training costs; `plan` can be told."""
    ledger = study.ledger
    if ledger.budget.unit == "epochs" and not ledger.orders:
        full_trainings = ledger.budget.total / (ledger.step_price() * ledger.max_steps)
        if warning := warn_of_small_budget(study.policy, full_trainings, ledger.max_steps):
            yield warning


def _tell_if_unsaved(job: Job, runner: Runner, progress: Progress) -> Observe:
    """The progress, which also says that the code cannot save as soon as its first report tells."""
    is_open = runner.can_save is None

    def observe(ledger: Ledger, entry: Entry | None) -> None:
        nonlocal is_open
        progress(ledger, entry)
        if is_open and runner.can_save is not None:
            is_open = False
            if not runner.can_save and ledger.max_steps > 1:
                progress.say(_say_unsaved(job))

    return observe


@contextlib.contextmanager
def _stop_on_signals(progress: Progress, *, finishes_step: bool) -> Iterator[list[int]]:
    """The first Ctrl-C or SIGTERM freezes everything, after the present step if it runs in this process.

    The second one does not wait for that step. What came is in the list.
    """
    came: list[int] = []

    def handle(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt
        progress.say("stopping after this step; once more to stop at once" if finishes_step else "stopping")

    former = {number: signal.signal(number, handle) for number in _STOPS}
    try:
        yield came
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)


GOOD, FAILED, NO_RESULT = 0, 1, 3
STOPPED = 128  # and the number of the signal
_OUR_FRAME = "/shoestring/runners/training/code.py"  # where what training code gave back is found wanting


def report_ending(study: Study, job: Job, store: str, ending: Ending, *, as_json: bool, last_line: str | None) -> int:
    """Print result and way on; the exit code of a run that nobody stopped. `last_line`: why it ended; None: quiet."""
    from shoestring.reports import facts, text

    if as_json:
        summary = facts.summary(study.name, study.ledger, study.best_checkpoint)
        print_line(dumps(summary | {"reason": ending.reason}))
    else:
        print_rich(text.best_line(study.ledger, study.best_checkpoint), wraps=False)
    sys.stdout.flush()  # before what goes to stderr, which may be the same terminal
    if last_line is not None:
        for line in (last_line, *_what_next(study, job, store, ending)):
            sys.stderr.write(printable(line) + "\n")
    if ending.reason == "failing":
        sys.stderr.write(printable(_explain_failure(ending.text), lines=True) + "\n")
        return FAILED
    return NO_RESULT if study.best is None and ending.reason in ("budget", "policy") else GOOD


def _explain_failure(text: str) -> str:
    """The traceback of training code that raised; one line where we found fault with what it gave back."""
    frames = [line for line in text.splitlines() if line.lstrip().startswith('File "')]
    return say_failure(text) if frames and _OUR_FRAME in frames[-1].replace("\\", "/") else text


def _what_next(study: Study, job: Job, store: str, ending: Ending) -> Iterator[str]:
    """The commands that a user may want now, ready to be copied."""
    where = store_words(store, study.store.where)
    again = ["shoestring", "resume", "--study", study.name, *where]
    secret = f" (the password goes into {PASSWORD_VARIABLE})" if getattr(study.store, "has_password", False) else ""
    if ending.reason in ("stopped", "deadline"):
        yield f"go on with{secret}: {shlex.join(again)}"
        return
    if ending.reason == "failing":
        yield f"repair the code, then go on with{secret}: {shlex.join(again)}"
    if ending.reason == "budget":
        yield f"spend more with{secret}: {shlex.join([*again, '--budget'])} '<a larger total>'"
    best, ledger = study.best, study.ledger
    if best is None or study.best_checkpoint is not None or job.kind == "table" or ledger.max_steps == 1:
        return
    if ledger.trials[best.trial].is_retuned:
        yield "its config changed on the way; shoestring.Schedule.of(study.ledger).save(path) keeps all of them"
    yield f"the code cannot save, so no checkpoint exists; this trains the winner again, for about {study.retrain_cost()}:"
    yield f"  {shlex.join(['shoestring', 'retrain', study.name, *where])}"
