"""Hugging Face Transformers: each save of a `Trainer` is a step.

    from shoestring.integrations.stepping import stepwise
    from shoestring.integrations.transformers import TransformersSteps, checkpoint_of

    def train(config, context):
        def fit(steps):
            arguments = TrainingArguments(
                num_train_epochs=steps.max_steps, eval_strategy="epoch", save_strategy="epoch", seed=1, …
            )
            set_seed(1)
            trainer = Trainer(model, arguments, …, callbacks=[TransformersSteps(steps)])
            trainer.train(resume_from_checkpoint=checkpoint_of(steps))

        yield from stepwise(fit, context)

A step is done whenever the trainer saves: with "epoch" at the end of each epoch, with "steps" and `save_steps` also within an
epoch (the trainer then skips the data that it has seen). `num_train_epochs` is the length of a full training, which the schedule
of the learning rate depends on. The trainer's own checkpoint holds the weights, the optimiser, the schedule and its random
generators.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from shoestring.errors import RunnerError
from shoestring.integrations.optional import import_optional
from shoestring.integrations.stepping import Steps, read_metric, read_other_metrics

__all__ = ["TransformersSteps", "checkpoint_of"]
_transformers = import_optional("TransformersSteps", "transformers", "transformers")
_CHECKPOINT = "trainer"


def checkpoint_of(steps: Steps) -> str | None:
    """Return the checkpoint for `trainer.train(resume_from_checkpoint=…)`.

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


class TransformersSteps(_transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """A callback that makes each save of the trainer a step.

    Parameters
    ----------
    steps : Steps
        The argument of `fit`.
    monitor : str, default "eval_loss"
        The metric of the evaluation that is reported as the value.
    """

    def __init__(self, steps: Steps, monitor: str = "eval_loss") -> None:
        self.steps, self.monitor = steps, monitor
        self._value: float | None = None
        self._metrics: dict[str, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.steps.checkpoint is not None and state.global_step == 0:
            raise RunnerError(
                "this trial was resumed, but training starts from nothing: call "
                "trainer.train(resume_from_checkpoint=checkpoint_of(steps))"
            )

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, Any], **more: Any) -> None:
        self._value = read_metric(self.monitor, metrics, "the evaluation returned")
        self._metrics = read_other_metrics(self.monitor, metrics)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        control.should_evaluate &= self.steps.should_validate

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        control.should_evaluate &= self.steps.should_validate

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"

        def save(folder: Path) -> None:
            shutil.copytree(written, folder / _CHECKPOINT)

        value, metrics = self._value, self._metrics
        self._value, self._metrics = None, {}
        self.steps.report(value, save, metrics=metrics)
