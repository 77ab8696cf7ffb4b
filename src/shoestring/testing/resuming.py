"""Does training code go on after a freeze as if nothing had happened? Three ways to find out, for your own tests.

whole = train_in_one_piece(target, config, steps=8)
cut = train_in_pieces(target, config, steps=8, every=2, folder=tmp_path)    # each piece in a fresh process
assert whole == cut
assert check_resuming(target, config, tmp_path).facts["same"]               # what a study does with an early trial
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoestring.core.ledger.entries import Note, Order, Receipt
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import Local
from shoestring.runners.process.process_group import Watch
from shoestring.runners.process.worker import Worker, stop
from shoestring.runners.training.code import Live
from shoestring.runners.training.targets import Target, pack_code

Values = list[float | None]
_GRACE_S = 5.0


def train_in_one_piece(target: str, config: Config, steps: int) -> Values:
    """The values of `file.py:train` without a freeze, in this process."""
    live = Live(Target.find(target).load(), config, max_steps=steps)
    try:
        return [live.advance(config, steps, True).value for _ in range(steps)]
    finally:
        live.close()


def train_in_pieces(target: str, config: Config, steps: int, every: int, folder: Path) -> Values:
    """The same with a freeze after `every` steps; each piece is thawed in a process that knows nothing of the others."""
    values: Values = []
    checkpoint: Path | None = None
    logs = [str(folder / "stdout.txt"), str(folder / "stderr.txt")]
    watch = Watch()
    for step in range(0, steps, every):
        worker = Worker(pack_code(Target.find(target)), watch)
        try:
            _ask(worker)
            from_here = str(checkpoint) if checkpoint else None
            worker.send("begin", config=config, step=step, max_steps=steps, checkpoint=from_here, logs=logs)
            for _ in range(min(every, steps - step)):
                worker.send("step", config=config, until=steps, validate=True)
                values.append(_ask(worker)["value"])
            checkpoint = folder / f"step-{step + every}"
            worker.send("save", path=str(checkpoint))
            _ask(worker)
        finally:
            stop([worker], _GRACE_S)
    watch.close()
    return values


def check_resuming(target: str, config: Config, folder: Path, max_steps: int = 2) -> Note:
    """The resume check that a study makes: the second step from a checkpoint, against going on."""
    runner = Local(Target.find(target).load(), Checkpoints(folder / "checkpoints"))
    runner.max_steps = max_steps
    runner.submit(Order(number=0, trial=0, config=config, until=2, check=True), held=0)
    news = [*runner.wait(float("inf")), *runner.wait(float("inf"))]
    runner.close(freeze=False)
    for receipt in news:
        if isinstance(receipt, Receipt) and receipt.status == "failed":
            raise AssertionError(receipt.text)
    (note,) = [one for one in news if isinstance(one, Note)]
    return note


def _ask(worker: Worker) -> dict[str, Any]:
    answer = worker.receive()
    assert answer is not None, worker.how_it_ended()
    assert answer["is"] not in ("failed", "unusable"), answer["text"]
    return dict(answer)
