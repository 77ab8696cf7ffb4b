"""A network with dropout, shuffled data, AdamW and a cosine schedule, trained by Hugging Face's Trainer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
import transformers
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from transformers import Trainer, TrainerCallback, TrainingArguments

from shoestring import Context, Report
from shoestring.integrations.stepping import Steps, stepwise
from shoestring.integrations.transformers import TransformersSteps, checkpoint_of

torch.set_num_threads(1)
EPOCHS = 6
IMAGES, LABELS = (torch.tensor(array) for array in load_digits(return_X_y=True))
IMAGES = IMAGES.float() / 16


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end

    def __len__(self) -> int:
        return self.end - self.begin

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"images": IMAGES[self.begin + i], "labels": LABELS[self.begin + i]}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(32, 10)
        )

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(images)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def arguments(folder: str, config: dict[str, Any]) -> TrainingArguments:
    """Return the arguments; `every` is the number of batches of a step (8 are an epoch), an epoch if it is missing."""
    strategies: dict[str, Any] = {"eval_strategy": "epoch", "save_strategy": "epoch"}
    if "every" in config:
        strategies = {"eval_strategy": "steps", "eval_steps": config["every"]}
        strategies |= {"save_strategy": "steps", "save_steps": config["every"]}
    return TrainingArguments(
        output_dir=folder,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=50,
        per_device_eval_batch_size=200,
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=1,
        save_total_limit=1,
        dataloader_num_workers=config.get("workers", 0),
        **strategies,
    )


def make_trainer(folder: str, config: dict[str, Any], callback: TrainerCallback) -> Trainer:
    transformers.set_seed(1)
    return Trainer(
        Net(), arguments(folder, config), train_dataset=Rows(0, 400), eval_dataset=Rows(400, 600), callbacks=[callback]
    )


def train(config: dict[str, Any], context: Context) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(folder, config, TransformersSteps(steps))
            trainer.train(resume_from_checkpoint=checkpoint_of(steps))

    yield from stepwise(fit, context)


def train_without_checkpoint(config: dict[str, Any], context: Context) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        with tempfile.TemporaryDirectory() as folder:
            make_trainer(folder, config, TransformersSteps(steps)).train()

    yield from stepwise(fit, context)


def train_from_weights_only(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Load only the weights and train again: optimiser, schedule and generators start again."""

    class WithoutResumeCheck(TransformersSteps):
        def on_train_begin(self, *arguments: Any, **more: Any) -> None:
            pass

    def fit(steps: Steps) -> None:
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(folder, config, WithoutResumeCheck(steps))
            if (path := checkpoint_of(steps)) is not None:
                trainer.model.load_state_dict(load_file(Path(path) / "model.safetensors"))
            trainer.train()

    yield from stepwise(fit, context)


def whole_run(config: dict[str, Any]) -> list[float]:
    """Train with the trainer alone, without shoestring."""
    values = []

    class Record(TrainerCallback):
        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, Any], **more: Any) -> None:
            values.append(metrics["eval_loss"])

    with tempfile.TemporaryDirectory() as folder:
        make_trainer(folder, config, Record()).train()
    return values
