"""Lightning: a `Trainer` whose epochs are steps.

    from shoestring.integrations.lightning import LightningSteps
    from shoestring.integrations.stepping import stepwise

    def train(config, context):
        def fit(steps):
            L.seed_everything(1)
            trainer = L.Trainer(max_epochs=steps.max_steps, callbacks=[LightningSteps(steps, monitor="val_loss")])
            trainer.fit(Net(**config), train_loader, valid_loader, ckpt_path=checkpoint_of(steps))

        yield from stepwise(fit, context)

`max_epochs` is the length of a whole training, the `max_steps` of the study, never what an order pays for: a schedule that
anneals over the run depends on it. Where a checkpoint is taken and where the random generators are put back belong together:
at the end of a training epoch, before anything of the next is drawn, and before the fit makes the iterator of its first epoch,
which draws. That is after `on_fit_start`, or earlier where `configure_optimizers` asks for `estimated_stepping_batches`; then the
iterator is made again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import RunnerError
from shoestring.integrations.optional import metric, need, others
from shoestring.integrations.stepping import Steps


def _name() -> str:
    """Lightning is sold under two names, and the classes of one are strangers to the other: that of the user's own import."""
    is_older = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    is_only = find_spec("lightning") is None and find_spec("pytorch_lightning") is not None
    return "pytorch_lightning" if is_older or is_only else "lightning.pytorch"


_callbacks = need("LightningSteps", f"{_name()}.callbacks", "lightning")
_CHECKPOINT, _FACTS = "lightning.ckpt", "facts.json"
Apply = Callable[[Any, Any, Mapping[str, Any]], Any]


def checkpoint_of(steps: Steps) -> str | None:
    """For `trainer.fit(ckpt_path=…)`: the checkpoint to go on from, None at the start."""
    return None if steps.checkpoint is None else str(steps.checkpoint / _CHECKPOINT)


class LightningSteps(_callbacks.Checkpoint):  # type: ignore[misc, name-defined]
    """A callback that makes each epoch a step. As a kind of checkpoint callback it runs after all others.

    `monitor` is what is reported, as logged with `self.log`. Where a value was not bought, that epoch is not validated. `apply`
    is for runs whose hyperparameters change while they train: `apply(trainer, module, config)` is called before an
    epoch whose config is another than the last one's.
    """

    def __init__(self, steps: Steps, monitor: str, apply: Apply | None = None) -> None:
        self.steps, self.monitor, self.apply = steps, monitor, apply
        self._limit_val_batches: Any = None  # the user's own, while validation is off
        self._applied = None if steps.context is None else dict(steps.context.config)  # what the run was made for

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.steps.restore_random()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self.steps.checkpoint is not None and trainer.ckpt_path is None:
            raise RunnerError(
                "this trial was thawed, but fit starts anew: trainer.fit(…, ckpt_path=checkpoint_of(steps))"
            )
        fetcher = getattr(trainer.fit_loop, "_data_fetcher", None)
        if trainer.train_dataloader is None or fetcher is not None:  # whatever was drawn since `setup` does not count
            self.steps.restore_random()
        if self.steps.checkpoint is not None and fetcher is not None:
            iter(fetcher)  # the iterator of the first epoch was made too early: make it again

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """What Lightning's checkpoint leaves out: a schedule that waits for a plateau looks at an epoch after it was saved."""
        if self.steps.checkpoint is None:
            return
        facts = loads((self.steps.checkpoint / _FACTS).read_text())
        metrics, self._applied = facts["metrics"], facts["config"]
        for schedule in trainer.lr_scheduler_configs:
            is_due = schedule.interval == "epoch" and self.steps.done % schedule.frequency == 0
            if schedule.reduce_on_plateau and is_due and schedule.monitor in metrics:
                schedule.scheduler.step(metrics[schedule.monitor])

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self._limit_val_batches is None:
            self._limit_val_batches = trainer.limit_val_batches
        trainer.limit_val_batches = self._limit_val_batches if self.steps.should_validate else 0
        config = None if self.steps.context is None else dict(self.steps.context.config)
        if self.apply is not None and config is not None and config != self._applied:
            self.apply(trainer, pl_module, config)
            self._applied = config

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}

        def save(folder: Path) -> None:
            trainer.save_checkpoint(folder / _CHECKPOINT)
            (folder / _FACTS).write_text(dumps({"metrics": metrics, "config": self._applied}))

        if self.steps.should_validate:
            value = metric(self.monitor, metrics, "was logged")
            self.steps.report(value, save, metrics=others(self.monitor, metrics))
        else:  # what was logged may be an earlier epoch's
            self.steps.report(None, save)
