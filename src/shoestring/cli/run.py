"""The commands that spend, `run` and `resume`: from their options to a study, and what is said when it ends."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from shoestring import policies
from shoestring.cli.job import Job, add_validation_cap, parameter_words, read_configs, read_settings
from shoestring.core.continuing import find_changes
from shoestring.core.money import Budget, Prices, parse_duration_s
from shoestring.core.strict_json import dumps
from shoestring.reports.progress import Progress, make_progress
from shoestring.runners.local import Local
from shoestring.runners.make import has_code_changed
from shoestring.runners.runner import Runner
from shoestring.stores.opening import DEFAULT_STORE, PASSWORD_VARIABLE
from shoestring.study.loop import Ending
from shoestring.study.study import Study

GOOD, FAILED, NO_RESULT = 0, 1, 3


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
    workers: int,
    runner: str | None,
    seed: int | None,
    initial: str | None,
    deadline: str | None,
    live: int | None,
    hung_after: str | None,
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
    job = Job.from_words(target, command, table, **how)
    space = job.space(space_file, params)
    job.check(space, workers)
    deadline_s = None if deadline is None else parse_duration_s(deadline, "deadline")
    policy = policy or policies.DEFAULT
    study = Study.begin(
        space,
        budget,
        name=name or job.name,
        store=store,
        max_steps=job.max_steps(max_steps),
        direction="max" if maximize else "min",
        policy=policy,
        settings=add_validation_cap(policy, read_settings(settings), validate_at_most),
        seed=seed,
        workers=workers,
        prices=Prices(validate_price),
        initial=read_configs(initial),
        target=job.to_target(),
    )
    return _spend(study, job, store, deadline_s, quiet=quiet, as_json=as_json)


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
    return _spend(study, job, store, deadline_s, quiet=quiet, as_json=as_json)


def _spend(study: Study, job: Job, store: str, deadline_s: float | None, *, quiet: bool, as_json: bool) -> int:
    ledger = study.ledger
    runner = job.make_runner(ledger, study.checkpoints)
    title = f"{study.name}: {ledger.books.policy}, seed {ledger.opened.seed}"
    with (
        make_progress(title, quiet=quiet) as progress,
        _stop_on_signals(progress, finishes_step=isinstance(runner, Local)) as should_stop,
    ):
        if hasattr(study.store, "on_trouble"):
            study.store.on_trouble = progress.say
        for line in _greeting(study, job, runner):
            progress.say(line)
        try:
            ending = study.run(runner, deadline=deadline_s, should_stop=should_stop, observe=progress)
        except KeyboardInterrupt:  # the second time: the step under way is dropped, and run again later
            ending = Ending("stopped", "", study.ledger)
    return _report(study, job, store, ending, as_json=as_json, quiet=quiet)


def _greeting(study: Study, job: Job, runner: Runner) -> Iterator[str]:
    ledger = study.ledger
    total = ledger.budget.show(ledger.budget.total)
    if not ledger.orders:
        policy = f"policy {ledger.books.policy}, seed {ledger.opened.seed}"
        yield f"study {study.name!r}: {total} for {job.words}, {policy}"
    else:
        spent = f"{ledger.budget.show(ledger.spent)} of {total} spent"
        yield f"study {study.name!r} goes on: {spent}, {len(ledger.trials)} trials"
    for notice in getattr(study.store, "notices", ()):
        yield f"note: {notice}"
    if has_code_changed(ledger.opened.target, job.with_fingerprint().to_target()):
        yield "warning: the training code has changed since this study began; its earlier values may not compare"
    if runner.can_save is False and not runner.simulated and ledger.max_steps > 1:
        yield "note: this training code cannot save, so a frozen trial lives in memory and a stop loses it"


@contextlib.contextmanager
def _stop_on_signals(progress: Progress, *, finishes_step: bool) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM freezes everything, after the present step if it runs in this process.

    The second one does not wait for that step.
    """
    asked: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        progress.say("stopping after this step; once more to stop at once" if finishes_step else "stopping")

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


# what is said at the end ---------------------------------------------------------------------------------------------


def _report(study: Study, job: Job, store: str, ending: Ending, *, as_json: bool, quiet: bool) -> int:
    from shoestring.reports import facts, text

    if as_json:
        summary = facts.summary(study.name, study.ledger, study.best_checkpoint)
        sys.stdout.write(dumps(summary | {"reason": ending.reason}) + "\n")
    else:
        from rich.console import Console

        Console(highlight=False, soft_wrap=True).print(text.best_line(study.ledger, study.best_checkpoint))
    if not quiet:
        sys.stderr.write(text.ending(study.ledger, ending.reason, ending.text) + "\n")
        for line in _what_next(study, job, store, ending):
            sys.stderr.write(line + "\n")
    if ending.reason == "failing":
        sys.stderr.write(f"{ending.text}\n")
        return FAILED
    return NO_RESULT if study.best is None and ending.reason in ("budget", "policy") else GOOD


def _what_next(study: Study, job: Job, store: str, ending: Ending) -> Iterator[str]:
    """The commands that a user may want now, ready to be copied."""
    shown = study.store.where if "://" in store and not store.startswith("sqlite") else store  # without a password
    where = ["--store", shown] if store != DEFAULT_STORE else []
    again = ["shoestring", "resume", "--study", study.name, *where]
    secret = f" (the password goes into {PASSWORD_VARIABLE})" if getattr(study.store, "has_password", False) else ""
    if ending.reason in ("stopped", "deadline"):
        yield f"go on with{secret}: {shlex.join(again)}"
        return
    if ending.reason == "budget":
        yield f"spend more with{secret}: {shlex.join([*again, '--budget'])} '<a larger total>'"
    best, was_retrained = study.best, study.name.endswith("-winner")
    if best is None or best.checkpoint is not None or job.kind != "python" or study.ledger.max_steps == 1:
        return
    if len({dumps(order.config) for order in study.ledger.orders if order.trial == best.trial}) > 1:
        yield "its config changed on the way; shoestring.Schedule.of(study.ledger).save(path) keeps all of them"
    elif not was_retrained:
        yield "the code cannot save, so no checkpoint exists; this command trains the winner again:"
        yield f"  {shlex.join([*_retrain_command(study, job), *where])}"


def _retrain_command(study: Study, job: Job) -> list[str]:
    """The command that trains the winner again, up to its best step."""
    best, ledger = study.best, study.ledger
    assert best is not None
    orders = dumps([[0, dict(best.config), best.step]])
    words = ["shoestring", "run", str(job.where), "--study", f"{study.name}-winner", "--budget", f"{best.step} epochs"]
    words += ["--max-steps", str(ledger.max_steps), "--policy", "replay_fixed", "--set", f"orders={orders}"]
    words += [word for parameter in parameter_words(ledger.space) for word in ("-p", parameter)]
    return words + (["--maximize"] if ledger.opened.direction == "max" else [])
