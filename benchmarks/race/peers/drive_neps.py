"""NePS with ask and tell: ASHA, Hyperband, and ifBO if its weights were downloaded. Promoted configurations are resumed."""

import importlib.metadata
import logging
import math
import sys
import warnings
from functools import partial
from pathlib import Path

import neps
import numpy  # noqa: F401  # imported now, so that the link can seed it
from neps.optimizers import algorithms

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
VERSION = f"neps {importlib.metadata.version('neural-pipeline-search')}"
METHODS = {
    "asha": algorithms.asha,
    "hyperband": algorithms.hyperband,
    "ifbo": partial(algorithms.ifbo, surrogate_path=Path(sys.prefix) / "ifbo" / ".model"),
}
WORST = 1e9  # replaces a loss that diverged


def domain(p):
    if p["kind"] == "choice":
        return neps.Categorical(p["options"])
    kind = neps.Integer if p["kind"] == "int" else neps.Float
    return kind(p["low"], p["high"], log=p["log"])


def run(study):
    attributes = {p["name"]: domain(p) for p in study.parameters}
    space = type("Space", (neps.PipelineSpace,), {**attributes, "step": neps.IntegerFidelity(1, study.max_steps)})()
    tuned = neps.AskAndTell(METHODS[study.method](space))
    last = {}
    while True:
        trial = tuned.ask()
        number = trial.metadata.id.split("_")[0]  # "3_rung_1": configuration 3 on its second rung
        config = dict(trial.config)
        until = max(1, round(config.pop("step")))
        losses = study.train(number, config, until=until)
        last[number] = losses[-1] if losses else last[number]
        loss = last[number] if math.isfinite(last[number]) else WORST
        tuned.tell(trial, {"objective_to_minimize": loss, "cost": sum(study.costs_s)})
