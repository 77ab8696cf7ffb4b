"""Log a study to TensorBoard, MLflow or Weights & Biases, from its ledger, while it runs or afterwards.

    tune(train, space, "2h", callbacks=[Follow(TensorBoard("runs/digits"))])  # while it runs
    log_study(Study.open("digits", "mine.db").ledger, Mlflow("digits"))        # afterwards

Every trial is a run with its configuration, its learning curve, its seconds and its metrics. One more run shows the study: the
best value so far against the spent budget. The ledger stays the complete record: what a tool has lost can be logged again.
"""

from __future__ import annotations

import math
import posixpath
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from shoestring.core.ledger.entries import Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config
from shoestring.core.values.strict_json import dumps
from shoestring.integrations.optional import import_optional
from shoestring.study.study import Study

__all__ = ["Follow", "Logger", "Mlflow", "TensorBoard", "Wandb", "log_study"]
STUDY_RUN = "study"  # the name of the run that shows the study as a whole
_MAX_OPEN_WRITERS = 16  # of TensorBoard: each has a thread and a file


class Logger(Protocol):
    """The methods that a tool must have. Write a class with them to log to a tool of your own."""

    def start(self, run: str, config: Config) -> None:
        """Begin a run.

        Parameters
        ----------
        run : str
            The name of the run.
        config : mapping
            The configuration of its trial; for the run of the study, its policy, budget and seed.
        """
        ...

    def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers of a step.

        Parameters
        ----------
        run : str
            The name of a run that was begun.
        step : int
            The step of its trial; for the run of the study, the number of entries in the ledger.
        values : mapping
            Finite numbers by name.
        """
        ...

    def close(self) -> None:
        """Finish: nothing more will be logged."""
        ...


class Follow:
    """A callback for `tune(callbacks=[…])` that logs every finished step, also the earlier steps of the study.

    Call `close` when the study is over, or use it as a context manager.

    Parameters
    ----------
    logger : Logger
        `TensorBoard`, `Mlflow`, `Wandb`, or an object of your own with the methods of `Logger`.
    """

    def __init__(self, logger: Logger) -> None:
        self.logger = logger
        # This ledger grows entry by entry, so that earlier steps are logged with the state of the study at their time.
        self._logged_ledger: Ledger | None = None
        self._best = math.inf
        self._started_runs: set[str] = set()

    def __call__(self, study: Study, trial: Trial | None = None) -> None:
        """Log the steps of the study that are not logged yet.

        Parameters
        ----------
        study : Study
            The study.
        trial : Trial, optional
            The trial that was trained; it is not used.
        """
        self._log_new_steps(study.ledger)

    def _log_new_steps(self, ledger: Ledger) -> None:
        so_far = self._logged_ledger or ledger.fork(1)
        for one in ledger.entries(len(so_far)):
            so_far = so_far.append(one)
            if isinstance(one, Receipt) and one.is_finished:
                try:
                    self._log(so_far, one)
                except BaseException:  # the next call logs this step again
                    self._logged_ledger = so_far.fork(len(so_far) - 1)
                    raise
        self._logged_ledger = so_far

    def close(self) -> None:
        """Close the logger."""
        self.logger.close()

    def __enter__(self) -> Follow:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _log(self, ledger: Ledger, receipt: Receipt) -> None:
        run = f"trial-{receipt.trial:04d}"
        self._start(run, ledger.orders[receipt.order].config)
        # A metric that is called "value" or "seconds" is replaced.
        values = {**receipt.metrics, "value": receipt.value, "seconds": receipt.cost.total}
        self._write(run, receipt.step, values)
        if receipt.value is not None and ledger.state.sign * receipt.value < self._best:
            self._best = ledger.state.sign * receipt.value
            self._start(
                STUDY_RUN, {"policy": ledger.state.policy, "budget": str(ledger.budget), "seed": ledger.definition.seed}
            )
            self._write(STUDY_RUN, len(ledger), {"best": receipt.value, "spent": ledger.spent, "trial": receipt.trial})

    def _start(self, run: str, config: Config) -> None:
        if run not in self._started_runs:
            self._started_runs.add(run)
            self.logger.start(run, config)

    def _write(self, run: str, step: int, values: Mapping[str, float | None]) -> None:
        # These tools accept finite numbers only.
        self.logger.log(run, step, {name: x for name, x in values.items() if x is not None and math.isfinite(x)})


def log_study(ledger: Ledger, logger: Logger) -> None:
    """Log a whole study at once.

    Parameters
    ----------
    ledger : Ledger
        The ledger of the study.
    logger : Logger
        Where to log it; it is closed afterwards.
    """
    with Follow(logger) as follow:
        follow._log_new_steps(ledger)


class TensorBoard(Logger):
    """Log to TensorBoard's event files, one folder for each run; configurations are in its HParams tab.

    Parameters
    ----------
    folder : str or Path
        Where to write; `tensorboard --logdir FOLDER` shows it.

    Raises
    ------
    MissingExtra
        If TensorBoard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        self._events = import_optional("TensorBoard", "tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._hparams = import_optional("TensorBoard", "tensorboard.plugins.hparams.summary_v2", "tensorboard")
        self._protos = import_optional("TensorBoard", "tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summaries = import_optional("TensorBoard", "tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._folder = Path(folder)
        self._writers: dict[str, Any] = {}  # by run, the least recently used first

    def start(self, run: str, config: Config) -> None:
        params = {
            name: value if isinstance(value, str | int | float) else dumps(value) for name, value in config.items()
        }
        summary = self._hparams.hparams_pb(params, trial_id=run)
        self._writer(run).add_event(self._protos.Event(wall_time=time.time(), summary=summary))

    def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
        Summary = self._summaries.Summary
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._writer(run).add_event(self._protos.Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer(self, run: str) -> Any:
        """Return the writer of a run. Each has its own thread and file; a run whose writer was closed gets one more file."""
        writer = self._writers.pop(run, None) or self._events.EventFileWriter(str(self._folder / run))
        self._writers[run] = writer
        if len(self._writers) > _MAX_OPEN_WRITERS:
            self._writers.pop(next(iter(self._writers))).close()
        return writer


class Mlflow(Logger):
    """Log to the runs of an MLflow experiment.

    Parameters
    ----------
    experiment : str
        The name of the experiment; it is created if it does not exist.
    tracking_uri : str, default "sqlite:///mlflow.db"
        Where MLflow stores it. The default is a file, since MLflow no longer accepts plain folders.

    Raises
    ------
    MissingExtra
        If MLflow is not installed.
    """

    def __init__(self, experiment: str, tracking_uri: str = "sqlite:///mlflow.db") -> None:
        mlflow = import_optional("Mlflow", "mlflow", "mlflow")
        self._entities = import_optional("Mlflow", "mlflow.entities", "mlflow")
        self._client = mlflow.MlflowClient(tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = found.experiment_id if found else self._client.create_experiment(experiment)
        self._runs: dict[str, str] = {}

    def start(self, run: str, config: Config) -> None:
        created = self._client.create_run(self._experiment, run_name=run)
        self._runs[run] = created.info.run_id
        params = [
            self._entities.Param(_mlflow_name(name), value if isinstance(value, str) else dumps(value))
            for name, value in config.items()
        ]
        self._client.log_batch(created.info.run_id, params=params)

    def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
        now_ms = int(time.time() * 1000)
        metrics = [self._entities.Metric(_mlflow_name(name), value, now_ms, step) for name, value in values.items()]
        self._client.log_batch(self._runs[run], metrics=metrics)

    def close(self) -> None:
        for run_id in self._runs.values():
            self._client.set_terminated(run_id)


def _mlflow_name(name: str) -> str:
    """Return a name that MLflow accepts: letters, digits and -_. / in the form of a plain path."""
    allowed = re.sub(r"[^\w\-. /]", "_", name)
    is_path = posixpath.normpath(allowed) == allowed and not allowed.startswith(("/", "."))
    return allowed if is_path else re.sub(r"\W", "_", name)


class Wandb(Logger):
    """Log to the runs of a Weights & Biases project.

    Parameters
    ----------
    project : str
        The name of the project.
    group : str, default "study"
        The group of the runs.
    mode : str, default "offline"
        "offline" writes files, which `wandb sync` uploads later; "online" uploads at once.
    folder : str or Path, optional
        Where to write; the working folder by default.

    Raises
    ------
    MissingExtra
        If Weights & Biases is not installed.
    """

    def __init__(
        self, project: str, group: str = STUDY_RUN, mode: str = "offline", folder: str | Path | None = None
    ) -> None:
        self._wandb = import_optional("Wandb", "wandb", "wandb")
        self._options = {
            "project": project,
            "group": group,
            "mode": mode,
            "dir": None if folder is None else str(folder),
        }
        self._runs: dict[str, Any] = {}

    def start(self, run: str, config: Config) -> None:
        settings = self._wandb.Settings(silent=True, console="off")
        options = {"config": dict(config), "reinit": "create_new", "settings": settings}
        self._runs[run] = self._wandb.init(**self._options, name=run, **options)

    def log(self, run: str, step: int, values: Mapping[str, float]) -> None:
        self._runs[run].log(dict(values), step=step)

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()
