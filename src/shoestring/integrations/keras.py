"""Keras 3: `fit` whose epochs are steps.

    from shoestring.integrations.keras import KerasSteps, load_model
    from shoestring.integrations.stepping import stepwise

    def train(config, context):
        def fit(steps):
            model = load_model(steps) or build(config)
            span = {"initial_epoch": steps.done, "epochs": steps.max_steps}
            model.fit(x, y, validation_data=(vx, vy), callbacks=[KerasSteps(steps)], **span)

        yield from stepwise(fit, context)

The whole model is saved, optimiser, schedule and the seeds of its dropout layers included; weights alone are not enough.
`epochs` is the length of a whole training, and so is what a schedule like `CosineDecay` is given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoestring.errors import RunnerError
from shoestring.integrations.optional import metric, need, others
from shoestring.integrations.stepping import Steps

_keras = need("KerasSteps", "keras", "keras")
_CHECKPOINT = "model.keras"


def load_model(steps: Steps, **options: Any) -> Any:
    """The model to go on with, None at the start; options are those of `keras.saving.load_model`."""
    return None if steps.checkpoint is None else _keras.saving.load_model(steps.checkpoint / _CHECKPOINT, **options)


class KerasSteps(_keras.callbacks.Callback):  # type: ignore[misc, name-defined]
    """A callback that makes each epoch a step; `monitor` is what is reported, as `fit` logs it. Put it last."""

    def __init__(self, steps: Steps, monitor: str = "val_loss") -> None:
        super().__init__()
        self.steps, self.monitor = steps, monitor
        self._is_first = True

    def on_train_begin(self, logs: Any = None) -> None:
        self.steps.restore_random()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._is_first and epoch != self.steps.done:
            raise RunnerError(
                f"this trial goes on after epoch {self.steps.done}, not {epoch}: fit(initial_epoch=steps.done)"
            )
        self._is_first = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        def save(folder: Path) -> None:
            self.model.save(folder / _CHECKPOINT)

        told = logs or {}
        self.steps.report(metric(self.monitor, told, "fit logs"), save, metrics=others(self.monitor, told))
