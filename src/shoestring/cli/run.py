"""The commands that spend: `run` and `resume`, with their signals, narration and exit codes."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from shoestring import policies
from shoestring.cli.job import Job, parameter_words, read_configs, read_settings, with_validation_cap
from shoestring.core.continuing import changes
from shoestring.core.entries import Opened
from shoestring.core.money import Budget, Prices, duration_s
from shoestring.core.space import Space
from shoestring.core.strict_json import dumps
from shoestring.reports import facts
from shoestring.reports.progress import Progress, progress_for
from shoestring.runners.local import Local
from shoestring.runners.making import code_changed
from shoestring.study.loop import Outcome
from shoestring.study.study import Study

GOOD, FAILED, NO_RESULT = 0, 1, 3


def run_words(
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
    how = {"runner": runner, "live": live, "hung_after": hung_after, "checkpoints_at_most": checkpoints_at_most}
    job = Job.of(target, command, table, **how)
    space = job.space(space_file, params)
    _check_words(job, space, workers, deadline)
    policy = policy or policies.DEFAULT
    study = Study.begin(
        space,
        budget,
        name=name or job.name,
        store=store,
        max_steps=job.max_steps(max_steps),
        direction="max" if maximize else "min",
        policy=policy,
        settings=with_validation_cap(policy, read_settings(settings), validate_at_most),
        seed=seed,
        workers=workers,
        prices=Prices(validate_price),
        initial=read_configs(initial),
        target=job.to_target(),
    )
    return _spend(study, job, store, deadline=deadline, quiet=quiet, as_json=as_json)


def _check_words(job: Job, space: Space | None, workers: int, deadline: str | None) -> None:
    """Slips that would show only when the runner is made: told before a study is begun, so that nothing is written."""
    if deadline is not None:
        duration_s(deadline, "deadline")
    job.check(space, workers)


def resume_words(
    *, budget: str | None, deadline: str | None, quiet: bool, store: str, name: str | None, as_json: bool
) -> int:
    study = Study.open(name, store)
    opened = study.ledger.opened
    if budget is not None:
        wanted = _as_now(study, Budget(budget))
        if change := changes(study.ledger, wanted):
            study.amend(change)
    job = Job.from_target(opened.target)
    _check_words(job, None, study.ledger.workers, deadline)
    return _spend(study, job, store, deadline=deadline, quiet=quiet, as_json=as_json)


def _as_now(study: Study, budget: Budget) -> Opened:
    from dataclasses import replace

    books = study.ledger.books
    return replace(
        study.ledger.opened, budget=budget, policy=books.policy, settings=books.settings, workers=books.workers
    )


def _spend(study: Study, job: Job, store: str, *, deadline: str | None, quiet: bool, as_json: bool) -> int:
    ledger = study.ledger
    runner = job.runner_for(study, ledger.workers)
    title = f"{study.name}: {ledger.books.policy}, seed {ledger.opened.seed}"
    finishes = isinstance(runner, Local)
    with progress_for(title, quiet=quiet) as progress, _stop_on_signals(progress, finishes) as should_stop:
        progress.say(_greeting(study, job))
        for notice in getattr(study.store, "notices", ()):
            progress.say(f"note: {notice}")
        if code_changed(ledger.opened.target, job.fresh().to_target()):
            progress.say(
                "warning: the training code has changed since this study began; its earlier values may not compare"
            )
        if runner.can_save is False and not runner.simulated and ledger.max_steps > 1:
            progress.say("note: this training code cannot save, so a frozen trial lives in memory and a stop loses it")
        try:
            outcome = study.run(runner, deadline=deadline, should_stop=should_stop, observe=progress)
        except KeyboardInterrupt:  # the second time: the step under way is dropped, and run again later
            outcome = Outcome(study.ledger, "stopped")
    return _report(study, job, store, outcome, as_json=as_json, quiet=quiet)


def _greeting(study: Study, job: Job) -> str:
    ledger = study.ledger
    total = ledger.budget.show(ledger.budget.total)
    if not ledger.orders:
        return f"study {study.name!r}: {total} for {job.words}, policy {ledger.books.policy}, seed {ledger.opened.seed}"
    return f"study {study.name!r} goes on: {ledger.budget.show(ledger.spent)} of {total} spent, {len(ledger.trials)} trials"


@contextlib.contextmanager
def _stop_on_signals(progress: Progress, finishes: bool) -> Iterator[Any]:
    """The first Ctrl-C or SIGTERM freezes everything, after the present step if it runs in this process; the second is rude."""
    asked: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        progress.say("stopping after this step; once more to stop at once" if finishes else "stopping")

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _report(study: Study, job: Job, store: str, outcome: Outcome, *, as_json: bool, quiet: bool) -> int:
    from shoestring.reports import text

    if as_json:
        sys.stdout.write(dumps(facts.summary(study) | {"reason": outcome.reason}) + "\n")
    else:
        from rich.console import Console

        Console(highlight=False, soft_wrap=True).print(text.best_line(study))
    if not quiet:
        for line in _last_words(study, job, store, outcome):
            sys.stderr.write(line + "\n")
    if outcome.reason == "failing":
        sys.stderr.write(f"{outcome.text}\n")
        return FAILED
    return NO_RESULT if study.best is None and outcome.reason in ("budget", "policy") else GOOD


def _last_words(study: Study, job: Job, store: str, outcome: Outcome) -> Iterator[str]:
    from shoestring.reports import text

    yield text.ending(study, outcome)
    shown = study.store.where if "://" in store and not store.startswith("sqlite") else store  # without a password
    again = ["resume", "--study", study.name, *(["--store", shown] if store != "sqlite:///shoestring.db" else [])]
    if outcome.reason in ("stopped", "deadline"):
        yield f"go on with: {shlex.join(['shoestring', *again])}"
        return
    if outcome.reason == "budget":
        yield f"spend more with: {shlex.join(['shoestring', *again, '--budget'])} '<a larger total>'"
    best = study.best
    retrained = study.name.endswith("-winner")
    if (
        best is not None
        and best.checkpoint is None
        and job.kind == "python"
        and study.ledger.max_steps > 1
        and not retrained
    ):
        if len({dumps(order.config) for order in study.ledger.orders if order.trial == best.trial}) > 1:
            yield "its config changed on the way; shoestring.Schedule.of(study.ledger).save(path) keeps all of them"
            return
        orders = dumps([[0, dict(best.config), best.step]])
        words = ["run", str(job.where), "--study", f"{study.name}-winner", "--budget", f"{best.step} epochs"]
        words += ["--max-steps", str(study.ledger.max_steps), "--policy", "replay_fixed", "--set", f"orders={orders}"]
        words += [word for parameter in parameter_words(study.ledger.space) for word in ("-p", parameter)]
        words += ["--maximize"] if study.ledger.opened.direction == "max" else []
        yield "the code cannot save, so no checkpoint was kept; this trains the winner again:"
        yield f"  {shlex.join(['shoestring', *words, *again[3:]])}"
