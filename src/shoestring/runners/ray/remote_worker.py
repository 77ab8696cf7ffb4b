"""What runs on the nodes of a Ray cluster: seats, which train, and a sentry on each node, which answers for them.

A seat is an actor that carries out steps of any trial, one call after the other, in the main thread of its process. It never
decides, and keeps nothing but the trial it had last. A call takes a millisecond or two, so one call trains several steps of an
order where they are quick: until the order's end, or until a twentieth of a second has passed. A sentry is another process: it
answers while training code holds Python's lock for minutes, as reading a large file can, and sees processes that were stopped.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.archive import remove, remove_leftovers, temporary_folder
from shoestring.runners.checkpoints.checkpoint_store import Folder, Outbox, Parcels, Storage, name_trial
from shoestring.runners.checkpoints.trial_logs import STDERR, STDOUT
from shoestring.runners.process.worker_child import carry_out, print_to
from shoestring.runners.training.code import RAISED, Live, can_save, shape_of
from shoestring.runners.training.resume_check import preserve_random_state
from shoestring.runners.training.targets import unpack_code

Answer = dict[str, Any]  # as `worker` lists them; "seconds" of a step are all that it took, its checkpoint included
CALL_S = 0.05  # after which no further step is begun in the same call: what a seat that dies may have left unsaid


@dataclass(frozen=True, slots=True)
class Thaw:
    """Where a trial goes on from."""

    trial: int
    config: Config
    max_steps: int  # of a full training
    step: int = 0
    name: str = ""  # of the checkpoint in its storage
    parcel: bytes | None = None  # the checkpoint itself, for a seat that does not reach the storage


@dataclass(frozen=True, slots=True)
class StepCall:
    """What is to be trained in one call."""

    messages: Sequence[Mapping[str, Any]]  # one for each step: config, until, validate, sign of a loss
    attempt: str  # at checkpoints that are due on the way; empty: the driver asks for them one by one
    best_loss: float  # so far: a step that is better is to be saved


class Seat:
    """An actor that carries out steps."""

    def __init__(self, code: bytes, paths: Sequence[str], storage: Storage, mark: str) -> None:
        sys.path += [path for path in paths if path not in sys.path and os.path.isdir(path)]
        remove_leftovers()
        self._desk = temporary_folder(self)
        self._reaches = storage.sees(mark)
        self._storage: Outbox = storage if self._reaches else Parcels(self._desk)
        self._logs = storage.root if self._reaches and isinstance(storage, Folder) else None
        self._stderr = os.dup(2)
        self._live: Live | None = None
        self._trial = -1
        self._ready: Answer = {
            "is": "ready",
            "reaches": self._reaches,
            "pid": os.getpid(),
            "host": socket.gethostname(),
        }
        try:
            self._target = unpack_code(code)
            self._ready |= {"can_save": can_save(self._target), "is_plain": shape_of(self._target) == "function"}
        except Exception as error:
            self._ready |= {"is": "unusable", "text": f"{type(error).__name__}: {error}".splitlines()[0]}

    def hello(self) -> Answer:
        import ray

        return {**self._ready, "node": ray.get_runtime_context().get_node_id()}

    def train(self, thaw: Thaw | None, steps: StepCall, check: Thaw | None = None) -> list[Answer]:
        """The next steps, of the trial that is here or of one that is thawed first: as many as there is time for.

        With a resume check before the first, if asked.
        """
        began = since = time.perf_counter()
        try:
            if thaw is not None:
                self._begin(thaw)
            checked = {} if check is None else {"check": self._check(check, steps.messages[0])}
        except FileNotFoundError as error:
            return [{"is": "gone", "text": str(error)}]
        answers, best_loss = list[Answer](), steps.best_loss
        drafts: list[Answer] = []  # those whose checkpoints are written and still needed
        for message in steps.messages:
            answer, loss, goes_on = self._train_step(message, steps.attempt, best_loss)
            now = time.perf_counter()
            answers.append({**answer, **checked, "took_s": now - since})
            if loss < best_loss:  # what was written before is neither the best nor the newest any more
                best_loss = loss
                while drafts:
                    remove(drafts.pop().pop("checkpoint")["path"])
            if "checkpoint" in answer:
                drafts.append(answers[-1])
            if not goes_on or now - began > CALL_S:
                break
            since, checked = now, {}
        for answer in drafts:
            began = time.perf_counter()
            answer["checkpoint"] = self._put(answer["checkpoint"])
            answer["took_s"] += time.perf_counter() - began
        return answers

    def _train_step(self, message: Mapping[str, Any], attempt: str, best_loss: float) -> tuple[Answer, float, bool]:
        """One step, its checkpoint written where that is due; its loss; and whether the next may follow without a word."""
        assert self._live is not None
        answer = carry_out(self._live, {"do": "step", **message})
        if answer["is"] != "stepped":
            return answer, math.inf, False
        value, is_bought = answer["value"], message["validate"]
        is_good = not is_bought if value is None else math.isfinite(value)
        loss = message["sign"] * value if value is not None and is_good and is_bought else math.inf
        is_due = self._live.step == message["until"] or loss < best_loss
        if not is_due:
            return answer, loss, is_good
        if not (attempt and answer["can_save"]):
            return answer, loss, False  # the driver says whether to save
        answer["checkpoint"] = self._write(self._live.step, attempt)
        return answer, loss, is_good and answer["checkpoint"]["is"] == "saved"

    def save(self, step: int, attempt: str) -> Answer:
        """Write a checkpoint and put it to where it is kept, or send it along."""
        return self._put(self._write(step, attempt))

    def _write(self, step: int, attempt: str) -> Answer:
        assert self._live is not None
        try:
            path = self._storage.scratch(self._trial, step, attempt)
            return {**carry_out(self._live, {"do": "save", "path": path}), "path": path, "put": (step, attempt)}
        except Exception as error:  # the storage, not the training code; each kind has its own errors
            return _fail(step, error)

    def _put(self, written: Answer) -> Answer:
        if written["is"] != "saved":
            return written
        step, attempt = written["put"]
        began = time.perf_counter()
        try:
            parcel = self._storage.put(self._trial, step, attempt)
        except Exception as error:
            return _fail(step, error)
        return {"is": "saved", "parcel": parcel, "seconds": written["seconds"] + time.perf_counter() - began}

    def _begin(self, thaw: Thaw) -> None:
        if self._live is not None:
            self._live.close()
        self._trial = thaw.trial
        if self._logs is not None:
            folder = self._logs / name_trial(thaw.trial)
            print_to([str(folder / STDOUT), str(folder / STDERR)], self._stderr)
        self._live = self._thaw(thaw)

    def _thaw(self, thaw: Thaw) -> Live:
        checkpoint = self._fetch(thaw) if thaw.step else None
        return Live(self._target, thaw.config, thaw.step, checkpoint, thaw.max_steps)

    def _fetch(self, thaw: Thaw) -> Path:
        into = self._desk / "thawed"
        remove(into)
        return self._storage.get(thaw.trial, thaw.name, into, thaw.parcel)

    def _check(self, thaw: Thaw, message: Mapping[str, Any]) -> tuple[float | None, float]:
        """The value of the next step from a checkpoint, None if there is none, and the seconds it took."""
        began, value = time.perf_counter(), None
        with preserve_random_state():
            copy = self._thaw(thaw)
            with contextlib.suppress(*RAISED):  # a copy that cannot go on has no value: the check tells
                value = copy.advance(message["config"], message["until"], True).value
            copy.close()
        return value, time.perf_counter() - began


def _fail(step: int, error: Exception) -> Answer:
    return {"is": "failed", "text": f"the checkpoint of step {step} cannot be kept: {error}"}


class Sentry:
    """An actor that needs nothing of its node and says that it is there."""

    def look(self, pids: Sequence[int]) -> list[int]:
        """Those of these processes that were stopped, and so will neither go on nor end."""
        return [pid for pid in pids if _state(pid) in ("T", "t")]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # gone, which Ray tells itself, or no Linux
        return ""
