"""Tune a small Transformer with Hugging Face's Trainer. The rows of an image serve as words, so nothing is downloaded."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from sklearn.datasets import load_digits
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from shoestring import Float, tune
from shoestring.integrations.stepping import stepwise
from shoestring.integrations.transformers import TransformersSteps, checkpoint_of

IMAGES, LABELS = load_digits(n_class=4, return_X_y=True)
WORDS = torch.tensor(IMAGES.reshape(-1, 8, 8).mean(axis=2).round(), dtype=torch.long)  # brightness of each row, 0 to 16
ROWS = [{"input_ids": words, "labels": int(label)} for words, label in zip(WORDS, LABELS, strict=True)]


def make_model(dropout: float) -> BertForSequenceClassification:
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForSequenceClassification(BertConfig(vocab_size=17, num_labels=4, hidden_dropout_prob=dropout, **size))


def train(config: dict[str, Any], context: Any) -> Any:
    def fit(steps: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                num_train_epochs=steps.max_steps,  # epochs of a full training; the schedule depends on it
                learning_rate=config["lr"],
                lr_scheduler_type="cosine",
                per_device_train_batch_size=32,
                eval_strategy="epoch",
                save_strategy="epoch",  # each save is a step
                save_total_limit=1,
                seed=0,
                report_to=[],
                logging_strategy="no",
                disable_tqdm=True,
                use_cpu=True,
            )
            set_seed(0)
            model = make_model(config["dropout"])
            data = {"train_dataset": ROWS[:400], "eval_dataset": ROWS[400:]}
            trainer = Trainer(model, arguments, **data, callbacks=[TransformersSteps(steps, monitor="eval_loss")])
            trainer.train(resume_from_checkpoint=checkpoint_of(steps))

    yield from stepwise(fit, context)


if __name__ == "__main__":
    space = {"lr": Float(1e-4, 0.1, log=True), "dropout": Float(0.0, 0.5)}
    study = tune(train, space, budget="12 epochs", max_steps=4, seed=1, store="transformers.db")
    print(f"loss {study.best.value:.4f} with {study.best.config}")
