"""Hugging Face Transformers: a `Trainer` whose saves are steps.

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

Whenever the trainer saves, a step is done: with "epoch" at the end of each, with "steps" and `save_steps` also within an epoch
(the trainer then skips the data that it has seen). `num_train_epochs` is the length of a whole training, which the learning
rate's schedule goes by. The trainer's own checkpoint holds the weights, the optimiser, the schedule and its random generators.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from shoestring.errors import RunnerError
from shoestring.integrations.optional import metric, need, others
from shoestring.integrations.stepping import Steps

_transformers = need("TransformersSteps", "transformers", "transformers")
_CHECKPOINT = "trainer"


def checkpoint_of(steps: Steps) -> str | None:
    """For `trainer.train(resume_from_checkpoint=…)`: the checkpoint to go on from, None at the start."""
    return None if steps.checkpoint is None else str(steps.checkpoint / _CHECKPOINT)


class TransformersSteps(_transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """A callback that makes each save of the trainer a step; `monitor` is what is reported, as evaluation names it."""

    def __init__(self, steps: Steps, monitor: str = "eval_loss") -> None:
        self.steps, self.monitor = steps, monitor
        self._value: float | None = None
        self._metrics: dict[str, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if self.steps.checkpoint is not None and state.global_step == 0:
            raise RunnerError(
                "this trial was thawed, but training starts anew: trainer.train(resume_from_checkpoint=checkpoint_of(steps))"
            )

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, Any], **rest: Any) -> None:
        self._value = metric(self.monitor, metrics, "the evaluation gave")
        self._metrics = others(self.monitor, metrics)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        control.should_evaluate &= self.steps.should_validate

    def on_epoch_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        control.should_evaluate &= self.steps.should_validate

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"

        def save(folder: Path) -> None:
            shutil.copytree(written, folder / _CHECKPOINT)

        value, metrics = self._value, self._metrics
        self._value, self._metrics = None, {}
        self.steps.report(value, save, metrics=metrics)
