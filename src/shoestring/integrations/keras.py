"""Keras 3: each epoch of `fit` is a step.

    from shoestring.integrations.keras import KerasSteps, load_model
    from shoestring.integrations.stepping import stepwise

    def train(config, context):
        def fit(steps):
            model = load_model(steps) or build(config)
            span = {"initial_epoch": steps.done, "epochs": steps.max_steps}
            model.fit(x, y, validation_data=(vx, vy), callbacks=[KerasSteps(steps)], **span)

        yield from stepwise(fit, context)

The whole model is saved, with the optimiser, the schedule and the seeds of its dropout layers; the weights alone would not be
enough. `epochs` is the length of a full training, and so is the length of a schedule such as `CosineDecay`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoestring.errors import RunnerError
from shoestring.integrations.optional import import_optional
from shoestring.integrations.stepping import Steps, read_metric, read_other_metrics

__all__ = ["KerasSteps", "load_model"]
_keras = import_optional("KerasSteps", "keras", "keras")
_CHECKPOINT = "model.keras"


def load_model(steps: Steps, **options: Any) -> Any:
    """Load the model from the checkpoint of a trial.

    Parameters
    ----------
    steps : Steps
        The argument of `fit`.
    **options
        Options of `keras.saving.load_model`.

    Returns
    -------
    keras.Model or None
        The model to continue with; None at the start of a trial.
    """
    return None if steps.checkpoint is None else _keras.saving.load_model(steps.checkpoint / _CHECKPOINT, **options)


class KerasSteps(_keras.callbacks.Callback):  # type: ignore[misc, name-defined]
    """A callback that makes each epoch a step. It must be the last callback.

    Parameters
    ----------
    steps : Steps
        The argument of `fit`.
    monitor : str, default "val_loss"
        The logged metric that is reported as the value.
    """

    def __init__(self, steps: Steps, monitor: str = "val_loss") -> None:
        super().__init__()
        self.steps, self.monitor = steps, monitor
        self._is_first = True

    def on_train_begin(self, logs: Any = None) -> None:
        self.steps.restore_random()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._is_first and epoch != self.steps.done:
            raise RunnerError(
                f"this trial continues after epoch {self.steps.done}, not {epoch}: call fit(initial_epoch=steps.done)"
            )
        self._is_first = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        def save(folder: Path) -> None:
            self.model.save(folder / _CHECKPOINT)

        logged = logs or {}
        value = read_metric(self.monitor, logged, "fit logs")
        self.steps.report(value, save, metrics=read_other_metrics(self.monitor, logged))
