"""A study in TensorBoard, MLflow or Weights & Biases, fed from its ledger: while it runs, or afterwards.

    tune(train, space, "2h", observe=Follow(TensorBoard("runs/digits")))     # while it runs
    log_study(Study.open("digits", "mine.db").ledger, Mlflow("digits"))       # afterwards

Every trial is a run with its config, its curve, its seconds and its metrics; one more run is the study: the best value so far
against what was spent. The ledger is the truth: whatever these tools lose can be written again.
"""

from __future__ import annotations

import math
import posixpath
import re
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from shoestring.core.ledger.entries import Entry, Note, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.core.values.strict_json import dumps
from shoestring.integrations.optional import need
from shoestring.reports.text import warning_of

STUDY = "study"  # the name of the run that shows the study as a whole
_MOST_WRITERS = 16  # of TensorBoard, open at the same time


class Logger(Protocol):
    """What is asked of a tool."""

    def start(self, run: str, config: Config) -> None:
        """A run of that name begins."""
        ...

    def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
        """These finite numbers belong to a step of a run."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


class Follow:
    """For `observe`: hands every receipt to a logger as it comes, those from before it was there first.

    `close` it when the study is over, or use it as a context manager.
    """

    def __init__(self, logger: Logger) -> None:
        self.logger = logger
        self._seen: Ledger | None = None  # grown entry by entry, so that the past is told as it was
        self._best = math.inf
        self._started: set[str] = set()

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        seen = self._seen or ledger.fork(1)
        for one in ledger.entries(len(seen)):
            seen = seen.append(one)
            if isinstance(one, Receipt) and one.is_finished:
                self._log(seen, one)
        self._seen = seen
        if isinstance(entry, Note) and (text := warning_of(entry)):
            warnings.warn(text, stacklevel=2)  # what `tune` itself would say

    def close(self) -> None:
        self.logger.close()

    def __enter__(self) -> Follow:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _log(self, ledger: Ledger, receipt: Receipt) -> None:
        run = f"trial-{receipt.trial:04d}"
        self._start(run, ledger.orders[receipt.order].config)
        values = {**receipt.metrics, "value": receipt.value, "seconds": receipt.cost.total}  # ours are what they say
        self._write(run, receipt.step, values)
        if receipt.value is not None and ledger.books.sign * receipt.value < self._best:
            self._best = ledger.books.sign * receipt.value
            self._start(
                STUDY, {"policy": ledger.books.policy, "budget": str(ledger.budget), "seed": ledger.opened.seed}
            )
            self._write(STUDY, len(ledger), {"best": receipt.value, "spent": ledger.spent, "trial": receipt.trial})

    def _start(self, run: str, config: Config) -> None:
        if run not in self._started:
            self._started.add(run)
            self.logger.start(run, config)

    def _write(self, run: str, step: int, values: Mapping[str, float | None]) -> None:
        """These tools choke on what is no number."""
        self.logger.log(run, step, {name: x for name, x in values.items() if x is not None and math.isfinite(x)})


def log_study(ledger: Ledger, logger: Logger) -> None:
    """A whole study at once."""
    with Follow(logger) as follow:
        follow(ledger, None)


class TensorBoard:
    """Event files, one folder for each run; hyperparameters in the HParams tab. `tensorboard --logdir FOLDER` shows them."""

    def __init__(self, folder: str | Path) -> None:
        self._events = need("TensorBoard", "tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._hparams = need("TensorBoard", "tensorboard.plugins.hparams.summary_v2", "tensorboard")
        self._protos = need("TensorBoard", "tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summaries = need("TensorBoard", "tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._folder = Path(folder)
        self._writers: dict[str, Any] = {}  # the least recently used first

    def start(self, run: str, config: Config) -> None:
        known = {
            name: value if isinstance(value, str | int | float) else dumps(value) for name, value in config.items()
        }
        summary = self._hparams.hparams_pb(known, trial_id=run)
        self._writer(run).add_event(self._protos.Event(wall_time=time.time(), summary=summary))

    def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
        of = self._summaries.Summary
        summary = of(value=[of.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._writer(run).add_event(self._protos.Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer(self, run: str) -> Any:
        """Each has a thread and a file of its own; a run that goes on after its writer was closed gets one more file."""
        writer = self._writers.pop(run, None) or self._events.EventFileWriter(str(self._folder / run))
        self._writers[run] = writer
        if len(self._writers) > _MOST_WRITERS:
            self._writers.pop(next(iter(self._writers))).close()
        return writer


class Mlflow:
    """Runs of one experiment. The default store is a SQLite file: MLflow no longer takes plain folders."""

    def __init__(self, experiment: str, tracking_uri: str = "sqlite:///mlflow.db") -> None:
        mlflow = need("Mlflow", "mlflow", "mlflow")
        self._entities = need("Mlflow", "mlflow.entities", "mlflow")
        self._client = mlflow.MlflowClient(tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = found.experiment_id if found else self._client.create_experiment(experiment)
        self._runs: dict[str, str] = {}

    def start(self, run: str, config: Config) -> None:
        made = self._client.create_run(self._experiment, run_name=run)
        self._runs[run] = made.info.run_id
        words = [
            self._entities.Param(_mlflow_name(name), value if isinstance(value, str) else dumps(value))
            for name, value in config.items()
        ]
        self._client.log_batch(made.info.run_id, params=words)

    def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
        now_ms = int(time.time() * 1000)
        metrics = [self._entities.Metric(_mlflow_name(name), value, now_ms, step) for name, value in values.items()]
        self._client.log_batch(self._runs[run], metrics=metrics)

    def close(self) -> None:
        for identity in self._runs.values():
            self._client.set_terminated(identity)


def _mlflow_name(name: str) -> str:
    """MLflow takes letters, digits and -_. /, and no name that is no plain path."""
    allowed = re.sub(r"[^\w\-. /]", "_", name)
    is_path = posixpath.normpath(allowed) == allowed and not allowed.startswith(("/", "."))
    return allowed if is_path else re.sub(r"\W", "_", name)


class Wandb:
    """Runs of one project, grouped by study; offline unless told otherwise (`wandb sync` sends them later)."""

    def __init__(
        self, project: str, group: str = STUDY, mode: str = "offline", folder: str | Path | None = None
    ) -> None:
        self._wandb = need("Wandb", "wandb", "wandb")
        self._options = {
            "project": project,
            "group": group,
            "mode": mode,
            "dir": None if folder is None else str(folder),
        }
        self._runs: dict[str, Any] = {}

    def start(self, run: str, config: Config) -> None:
        quiet = self._wandb.Settings(silent=True, console="off")
        made = self._wandb.init(**self._options, name=run, config=dict(config), reinit="create_new", settings=quiet)
        self._runs[run] = made

    def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
        self._runs[run].log(dict(values), step=step)

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()
