"""How a run ends on the command line: the result, the way on, and the exit code."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

from shoestring.cli.job import Job
from shoestring.cli.printing import print_line, print_rich, store_words
from shoestring.core.failures import say_failure
from shoestring.core.strict_json import dumps
from shoestring.core.texts import printable
from shoestring.stores.opening import PASSWORD_VARIABLE
from shoestring.study.loop import Ending
from shoestring.study.study import Study

GOOD, FAILED, NO_RESULT = 0, 1, 3
STOPPED = 128  # and the number of the signal
_OUR_FRAME = "/shoestring/runners/training.py"  # where what training code gave back is found wanting


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
