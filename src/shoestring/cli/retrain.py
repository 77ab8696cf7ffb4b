"""The command that trains the winner again, for code that cannot save."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

from shoestring.cli.job import Job
from shoestring.cli.printing import print_line
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import printable
from shoestring.errors import StudyError
from shoestring.study.study import Study

GOOD, FAILED, ANOTHER_VALUE = 0, 1, 4


def retrain_best(study: str | None, name: str | None, store: str, dry_run: bool, quiet: bool, as_json: bool) -> int:
    """Say what it costs, train, compare; the exit code tells whether the value is the recorded one."""
    if study is not None and name is not None and study != name:
        raise StudyError(f"which study, {study!r} or --study {name!r}? Name it once")
    opened = Study.open(study or name, store)
    best, cost = opened.best, opened.retrain_cost()
    assert best is not None  # or it would have no cost
    what = f"trial {best.trial} of {opened.name!r} to step {best.step}"
    facts = {"study": opened.name, "trial": best.trial, "step": best.step, "config": dict(best.config)}
    if dry_run:
        print_line(dumps(facts | {"cost": cost}) if as_json else f"training {what} again would cost about {cost}")
        return GOOD

    def say(line: str) -> None:
        if not quiet:
            sys.stderr.write(printable(line) + "\n")

    for line in _notes(opened):
        say(line)
    say(f"training {what} again, for about {cost}; the model is left where the training code puts it")
    with warnings.catch_warnings():  # another value is told below, in other words
        warnings.simplefilter("ignore")
        done = opened.retrain_best(on_step=lambda step, value: say(f"step {step}: {value}"))
    if as_json:
        compared = {"value": done.value, "recorded": done.recorded, "is_same": done.is_same}
        print_line(dumps(facts | compared | {"cost": _in_words(opened, done.cost)}))
    elif done.value is not None:
        print_line(f"{done.value:.6g}, " + ("as recorded" if done.is_same else f"not {done.recorded:.6g} as recorded"))
    if done.value is None:
        failure = done.study.trials[0].failure if done.study.trials else ""
        sys.stderr.write(
            f"it did not come to step {best.step}: {printable(failure, lines=True) or 'it ended before'}\n"
        )
        return FAILED
    if not done.is_same:
        say("training depends on more than its config: fix its seeds to have the same model again")
    return GOOD if done.is_same else ANOTHER_VALUE


def _notes(study: Study) -> Iterator[str]:
    """What to know before the training."""
    target, checkpoint = study.ledger.opened.target, study.best_checkpoint
    if "kind" in target and Job.from_target(target).has_changed_since(target):
        yield "warning: the training code has changed since this study began; its value may not compare"
    if checkpoint is not None:
        yield f"note: its checkpoint is still there: {checkpoint}"


def _in_words(study: Study, cost: str | float) -> str:
    return cost if isinstance(cost, str) else study.ledger.budget.show(cost)
