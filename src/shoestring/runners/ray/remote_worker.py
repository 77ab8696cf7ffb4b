"""The actors on the nodes of a Ray cluster: workers, which train, and a monitor on each node.

A worker is an actor that carries out steps of any trial, one call after the other, in the main thread of its process. It decides
nothing, and keeps only the trial that it trained last. A call takes a millisecond or two, so where steps are quick one call
trains several steps of an order: until the order's end, or until a twentieth of a second has passed.

A monitor is another process. It answers while training code holds Python's lock for minutes, as reading a large file can, and
sees processes that were stopped.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.archive import remove
from shoestring.runners.checkpoints.checkpoint_store import (
    BytesTransfer,
    CheckpointAccess,
    CheckpointStore,
    FolderStore,
    name_trial,
)
from shoestring.runners.checkpoints.digest import compute_digest
from shoestring.runners.checkpoints.temporary_folders import get_temporary_folder, remove_leftover_folders
from shoestring.runners.checkpoints.trial_logs import STDERR, STDOUT
from shoestring.runners.process.worker_child import carry_out, print_to
from shoestring.runners.training.code import RAISED, LiveTrial, can_save, shape_of
from shoestring.runners.training.resume_check import preserve_random_state
from shoestring.runners.training.targets import unpack_code

Answer = dict[str, Any]  # one that `remote_runner` lists; "took_s": seconds of a step, with its checkpoint
CALL_S = 0.05  # after this time no further step begins in the same call, so that a worker that dies loses little


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where a trial begins or continues."""

    trial: int
    config: Config
    max_steps: int  # steps of a full training
    step: int = 0
    name: str = ""  # the name of the checkpoint in its store
    digest: str = ""  # the digest that the checkpoint must have; empty: it is not checked
    archive: bytes | None = None  # the checkpoint itself, for a worker that cannot reach the store


@dataclass(frozen=True, slots=True)
class StepCall:
    """A request to train several steps in one call."""

    messages: Sequence[Mapping[str, Any]]  # one for each step: config, until, validate, sign of a loss
    attempt: str  # the attempt at checkpoints that are due in this call; empty: the driver requests them one by one
    best_loss: float  # the best loss so far: a better step is saved


class RemoteWorker:
    """An actor that carries out steps."""

    def __init__(self, code: bytes, paths: Sequence[str], store: CheckpointStore, marker: str) -> None:
        sys.path += [path for path in paths if path not in sys.path and os.path.isdir(path)]
        remove_leftover_folders()
        self._folder = get_temporary_folder(self)
        can_reach_store = store.has_marker(marker)
        self._checkpoints: CheckpointAccess = store if can_reach_store else BytesTransfer(self._folder)
        self._logs = store.root if can_reach_store and isinstance(store, FolderStore) else None
        self._stderr = os.dup(2)
        self._live: LiveTrial | None = None
        self._trial = -1
        self._ready: Answer = {
            "is": "ready",
            "can_reach_store": can_reach_store,
            "pid": os.getpid(),
            "host": socket.gethostname(),
        }
        try:
            self._target = unpack_code(code)
            self._ready |= {"can_save": can_save(self._target), "is_plain": shape_of(self._target) == "function"}
        except Exception as error:
            self._ready |= {"is": "unusable", "text": f"{type(error).__name__}: {error}".splitlines()[0]}

    def hello(self) -> Answer:
        """Return whether the training code could be imported, and where this worker is."""
        import ray

        return {**self._ready, "node": ray.get_runtime_context().get_node_id()}

    def train(self, start: StartPoint | None, steps: StepCall, check: StartPoint | None = None) -> list[Answer]:
        """Train the next steps, as many as there is time for; return an answer for each of them.

        `start` is None when the trial is alive here. With `check`, a resume check is made before the first step.
        """
        began = since = time.perf_counter()
        try:
            if start is not None:
                self._begin(start)
            checked = {} if check is None else {"check": self._check(check, steps.messages[0])}
        except FileNotFoundError as error:
            return [{"is": "gone", "text": str(error)}]
        except _ChangedCheckpoint as error:
            return [{"is": "changed", "text": str(error)}]
        answers, best_loss = list[Answer](), steps.best_loss
        with_checkpoint: list[Answer] = []  # the answers whose checkpoints are written and still needed
        for message in steps.messages:
            answer, loss, may_continue = self._train_step(message, steps.attempt, best_loss)
            now = time.perf_counter()
            answers.append({**answer, **checked, "took_s": now - since})
            if loss < best_loss:  # checkpoints that were written before are neither the best nor the newest any more
                best_loss = loss
                while with_checkpoint:
                    remove(with_checkpoint.pop().pop("checkpoint")["path"])
            if "checkpoint" in answer:
                with_checkpoint.append(answers[-1])
            if not may_continue or now - began > CALL_S:
                break
            since, checked = now, {}
        for answer in with_checkpoint:
            began = time.perf_counter()
            answer["checkpoint"] = self._put(answer["checkpoint"])
            answer["took_s"] += time.perf_counter() - began
        return answers

    def _train_step(self, message: Mapping[str, Any], attempt: str, best_loss: float) -> tuple[Answer, float, bool]:
        """Train one step and write its checkpoint if that is due.

        Return its answer, its loss, and whether the next step may follow in the same call.
        """
        assert self._live is not None
        answer = carry_out(self._live, {"do": "step", **message})
        if answer["is"] != "stepped":
            return answer, math.inf, False
        value, is_ordered = answer["value"], message["validate"]
        is_good = not is_ordered if value is None else math.isfinite(value)
        loss = message["sign"] * value if value is not None and is_good and is_ordered else math.inf
        is_due = self._live.step == message["until"] or loss < best_loss
        if not is_due:
            return answer, loss, is_good
        if not (attempt and answer["can_save"]):
            return answer, loss, False  # the driver decides whether to save
        answer["checkpoint"] = self._write(self._live.step, attempt)
        return answer, loss, is_good and answer["checkpoint"]["is"] == "saved"

    def save(self, step: int, attempt: str) -> Answer:
        """Write a checkpoint and put it into the store, or return it as bytes."""
        return self._put(self._write(step, attempt))

    def _write(self, step: int, attempt: str) -> Answer:
        assert self._live is not None
        try:
            path = self._checkpoints.scratch(self._trial, step, attempt)
            return {**carry_out(self._live, {"do": "save", "path": path}), "path": path, "of": (step, attempt)}
        except Exception as error:  # from the store, not from training code; each kind of store has its own errors
            return _describe_failure(step, error)

    def _put(self, written: Answer) -> Answer:
        if written["is"] != "saved":
            return written
        step, attempt = written["of"]
        began = time.perf_counter()
        try:
            put = self._checkpoints.put(self._trial, step, attempt)
        except Exception as error:
            return _describe_failure(step, error)
        return {"is": "saved", "put": put, "seconds": written["seconds"] + time.perf_counter() - began}

    def _begin(self, start: StartPoint) -> None:
        if self._live is not None:
            self._live.close()
        self._trial = start.trial
        if self._logs is not None:
            folder = self._logs / name_trial(start.trial)
            print_to([str(folder / STDOUT), str(folder / STDERR)], self._stderr)
        self._live = self._load(start)

    def _load(self, start: StartPoint) -> LiveTrial:
        checkpoint = self._fetch(start) if start.step else None
        return LiveTrial(self._target, start.config, start.step, checkpoint, start.max_steps, start.trial)

    def _fetch(self, start: StartPoint) -> Path:
        into = self._folder / "fetched"
        remove(into)
        try:
            path = self._checkpoints.get(start.trial, start.name, into, start.archive)
            is_changed = bool(start.digest) and compute_digest(path) != start.digest
        except tarfile.TarError:  # an archive that was changed
            is_changed = True
        if is_changed:
            raise _ChangedCheckpoint(f"the checkpoint of step {start.step} is not the one that was saved")
        return path

    def _check(self, start: StartPoint, message: Mapping[str, Any]) -> tuple[float | None, float]:
        """Return the value of the next step, trained from a checkpoint (None if there is no value), and the seconds it took."""
        began, value = time.perf_counter(), None
        with preserve_random_state():
            copy = self._load(start)
            with contextlib.suppress(*RAISED):  # a copy that cannot continue has no value: the check says so
                value = copy.advance(message["config"], message["until"], True).value
            copy.close()
        return value, time.perf_counter() - began


def _describe_failure(step: int, error: Exception) -> Answer:
    return {"is": "failed", "text": f"the checkpoint of step {step} cannot be kept: {error}"}


class _ChangedCheckpoint(Exception):
    """A checkpoint is not the one that was saved."""


class NodeMonitor:
    """An actor that needs no resources of its node and answers for the workers there."""

    def find_stopped(self, pids: Sequence[int]) -> list[int]:
        """Return the processes among these that were stopped, and so will neither continue nor end."""
        return [pid for pid in pids if _read_process_state(pid) in ("T", "t")]


def _read_process_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # the process is gone, which Ray reports itself, or this is not Linux
        return ""
