"""The command `retrain`: train the best trial again, for code that cannot save."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

from shoestring.cli.job import Job
from shoestring.cli.options import DIFFERENT_VALUE, SUCCESS
from shoestring.cli.printing import print_line
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import printable
from shoestring.study.retrain import require_known_code
from shoestring.study.study import Study


def retrain_best(name: str | None, store: str, dry_run: bool, quiet: bool, as_json: bool) -> int:
    """Print the cost, train, compare the value with the recorded one; return the exit code."""
    stored = Study.open(name, store)
    cost, best = stored.retrain_cost(), stored.best
    require_known_code(stored.ledger.definition.target)
    assert best is not None  # otherwise `retrain_cost` has raised an error
    what = f"trial {best.trial} of {stored.name!r} to step {best.step}"
    facts = {"study": stored.name, "trial": best.trial, "step": best.step, "config": dict(best.config)}
    if dry_run:
        print_line(dumps(facts | {"cost": cost}) if as_json else f"training {what} again would cost about {cost}")
        return SUCCESS

    def print_message(line: str) -> None:
        if not quiet:
            sys.stderr.write(printable(line) + "\n")

    for line in _list_notes(stored):
        print_message(line)
    print_message(f"training {what} again, for about {cost}; the training code decides where the model is stored")
    with warnings.catch_warnings():  # the last message below says the same
        warnings.simplefilter("ignore")
        done = stored.retrain_best(
            on_step=lambda step, value: print_message(
                f"step {step}: {'no value' if value is None else format(value, '.6g')}"
            )
        )
    if as_json:
        result = {"value": done.value, "recorded": done.recorded, "is_same": done.is_same}
        print_line(dumps(facts | result | {"cost": stored.ledger.budget.show(done.cost)}))
    else:
        print_line(f"{done.value:.6g}, " + ("as recorded" if done.is_same else f"not {done.recorded:.6g} as recorded"))
    if not done.is_same:
        print_message("the training depends on more than its config: set its random seeds to get the same model")
    return SUCCESS if done.is_same else DIFFERENT_VALUE


def _list_notes(study: Study) -> Iterator[str]:
    """Yield what the user should know before the training."""
    target, checkpoint = study.ledger.definition.target, study.best_checkpoint
    if "kind" in target and Job.from_target(target).has_changed_since(target):
        yield "warning: the training code has changed since this study began; the new value may not be comparable"
    if checkpoint is not None:
        yield f"note: the checkpoint of this step still exists: {checkpoint}"
