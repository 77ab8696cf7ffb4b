"""Check in your own tests that training code continues after a save and a load as if it had not stopped.

There are two ways:

    whole = train_in_one_piece(target, config, steps=8)
    pieces = train_in_pieces(target, config, steps=8, every=2, folder=tmp_path)    # each piece in a new process
    assert whole == pieces
    assert check_resuming(target, config, tmp_path).facts["same"]                  # the check that a study makes once
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoestring.core.ledger.entries import Note, Order, Receipt
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.runners.process.process_group import GroupGuard
from shoestring.runners.process.worker import WorkerProcess, stop
from shoestring.runners.training.code import LiveTrial
from shoestring.runners.training.targets import Target, pack_code

Values = list[float | None]
_GRACE_S = 5.0


def train_in_one_piece(target: str, config: Config, steps: int) -> Values:
    """Train in this process without a pause, and return the value of each step.

    Parameters
    ----------
    target : str
        The training code, as `file.py:train` or `package.module:train`.
    config : mapping
        The configuration to train.
    steps : int
        The number of steps to train.

    Returns
    -------
    list of float or None
        The value of each step.
    """
    live = LiveTrial(Target.find(target).load(), config, max_steps=steps)
    try:
        return [live.advance(config, steps, True).value for _ in range(steps)]
    finally:
        live.close()


def train_in_pieces(target: str, config: Config, steps: int, every: int, folder: Path) -> Values:
    """Train in pieces, each in a new process from the checkpoint of the piece before, and return the value of each step.

    Parameters
    ----------
    target : str
        The training code, as `file.py:train` or `package.module:train`.
    config : mapping
        The configuration to train.
    steps : int
        The number of steps to train.
    every : int
        The number of steps in a piece.
    folder : Path
        An empty folder for checkpoints and logs.

    Returns
    -------
    list of float or None
        The value of each step.
    """
    values: Values = []
    checkpoint: Path | None = None
    logs = [str(folder / "stdout.txt"), str(folder / "stderr.txt")]
    guard = GroupGuard()
    for step in range(0, steps, every):
        worker = WorkerProcess(pack_code(Target.find(target)), guard)
        try:
            _ask(worker)
            from_here = str(checkpoint) if checkpoint else None
            worker.send("begin", config=config, step=step, max_steps=steps, trial=0, checkpoint=from_here, logs=logs)
            for _ in range(min(every, steps - step)):
                worker.send("step", config=config, until=steps, validate=True)
                values.append(_ask(worker)["value"])
            checkpoint = folder / f"step-{step + every}"
            worker.send("save", path=str(checkpoint))
            _ask(worker)
        finally:
            stop([worker], _GRACE_S)
    guard.close()
    return values


def check_resuming(target: str, config: Config, folder: Path, max_steps: int = 2) -> Note:
    """Make the resume check of a study: train the second step twice, without a pause and from a checkpoint.

    Parameters
    ----------
    target : str
        The training code, as `file.py:train` or `package.module:train`.
    config : mapping
        The configuration to train.
    folder : Path
        An empty folder for the checkpoint.
    max_steps : int
        The number of steps of a full training, which the training code finds in its context.

    Returns
    -------
    Note
        Its `facts` hold `same`, and the two values as `continued` and `resumed`.

    Raises
    ------
    AssertionError
        If a step fails. The message is the text of its exception.
    """
    runner = LocalRunner(Target.find(target).load(), Checkpoints(folder / "checkpoints"))
    runner.max_steps = max_steps
    runner.submit(Order(number=0, trial=0, config=config, until=2, check=True), resumable_step=0)
    events = [*runner.wait(float("inf")), *runner.wait(float("inf"))]
    runner.close(pause=False)
    for receipt in events:
        if isinstance(receipt, Receipt) and receipt.status == "failed":
            raise AssertionError(receipt.text)
    (note,) = [one for one in events if isinstance(one, Note)]
    return note


def _ask(worker: WorkerProcess) -> dict[str, Any]:
    answer = worker.receive()
    assert answer is not None, worker.describe_exit()
    assert answer["is"] not in ("failed", "unusable"), answer["text"]
    return dict(answer)
