"""Lightning: each epoch of a `Trainer` is a step.

    from shoestring.integrations.lightning import LightningSteps
    from shoestring.integrations.stepping import stepwise

    def train(config, context):
        def fit(steps):
            L.seed_everything(1)
            trainer = L.Trainer(max_epochs=steps.max_steps, callbacks=[LightningSteps(steps, monitor="val_loss")])
            trainer.fit(Net(**config), train_loader, valid_loader, ckpt_path=checkpoint_of(steps))

        yield from stepwise(fit, context)

`max_epochs` is the length of a full training, the `max_steps` of the study, and not the number of epochs that are ordered: a
schedule that anneals over the training depends on it.

A checkpoint is written at the end of a training epoch, before the next epoch draws random numbers. The random generators must be
restored at the same point: before the fit makes the iterator of its first epoch, because that draws random numbers. This is after
`on_fit_start`, or earlier if `configure_optimizers` asks for `estimated_stepping_batches`; then the iterator is made again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import RunnerError
from shoestring.integrations.optional import import_optional
from shoestring.integrations.stepping import Steps, read_metric, read_other_metrics

__all__ = ["LightningSteps", "checkpoint_of"]


def _package_name() -> str:
    """Return the package that the user imports: Lightning has two names, and their classes do not work together."""
    is_older = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    is_only = find_spec("lightning") is None and find_spec("pytorch_lightning") is not None
    return "pytorch_lightning" if is_older or is_only else "lightning.pytorch"


_callbacks = import_optional("LightningSteps", f"{_package_name()}.callbacks", "lightning")
_CHECKPOINT, _STATE = "lightning.ckpt", "state.json"
Apply = Callable[[Any, Any, Mapping[str, Any]], Any]


def checkpoint_of(steps: Steps) -> str | None:
    """Return the checkpoint for `trainer.fit(ckpt_path=…)`.

    Parameters
    ----------
    steps : Steps
        The argument of `fit`.

    Returns
    -------
    str or None
        The checkpoint to continue from; None at the start of a trial.
    """
    return None if steps.checkpoint is None else str(steps.checkpoint / _CHECKPOINT)


class LightningSteps(_callbacks.Checkpoint):  # type: ignore[misc, name-defined]
    """A callback that makes each epoch a step. It is a checkpoint callback, so it runs after all other callbacks.

    An epoch that needs no value is not validated.

    Parameters
    ----------
    steps : Steps
        The argument of `fit`.
    monitor : str
        The metric that is reported as the value, as logged with `self.log`.
    apply : callable, optional
        For runs whose hyperparameters change during training: `apply(trainer, module, config)` is called before an epoch
        whose configuration differs from that of the epoch before.
    """

    def __init__(self, steps: Steps, monitor: str, apply: Apply | None = None) -> None:
        self.steps, self.monitor, self.apply = steps, monitor, apply
        self._limit_val_batches: Any = None  # the user's setting, while validation is off
        self._applied_config = None if steps.context is None else dict(steps.context.config)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.steps.restore_random()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self.steps.checkpoint is not None and trainer.ckpt_path is None:
            raise RunnerError(
                "this trial was resumed, but fit starts from nothing: call trainer.fit(…, ckpt_path=checkpoint_of(steps))"
            )
        fetcher = getattr(trainer.fit_loop, "_data_fetcher", None)
        if trainer.train_dataloader is None or fetcher is not None:  # random numbers may have been drawn since `setup`
            self.steps.restore_random()
        if self.steps.checkpoint is not None and fetcher is not None:
            iter(fetcher)  # the iterator of the first epoch was made before the generators were restored: make it again

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Step plateau schedules: Lightning does so only after the checkpoint of an epoch, so the checkpoint lacks that step."""
        if self.steps.checkpoint is None:
            return
        state = loads((self.steps.checkpoint / _STATE).read_text())
        metrics, self._applied_config = state["metrics"], state["config"]
        for schedule in trainer.lr_scheduler_configs:
            is_due = schedule.interval == "epoch" and self.steps.done % schedule.frequency == 0
            if schedule.reduce_on_plateau and is_due and schedule.monitor in metrics:
                schedule.scheduler.step(metrics[schedule.monitor])

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self._limit_val_batches is None:
            self._limit_val_batches = trainer.limit_val_batches
        trainer.limit_val_batches = self._limit_val_batches if self.steps.should_validate else 0
        config = None if self.steps.context is None else dict(self.steps.context.config)
        if self.apply is not None and config is not None and config != self._applied_config:
            self.apply(trainer, pl_module, config)
            self._applied_config = config

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}

        def save(folder: Path) -> None:
            trainer.save_checkpoint(folder / _CHECKPOINT)
            (folder / _STATE).write_text(dumps({"metrics": metrics, "config": self._applied_config}))

        if self.steps.should_validate:
            value = read_metric(self.monitor, metrics, "self.log has logged")
            self.steps.report(value, save, metrics=read_other_metrics(self.monitor, metrics))
        else:  # the logged metrics may be those of an earlier epoch
            self.steps.report(None, save)
