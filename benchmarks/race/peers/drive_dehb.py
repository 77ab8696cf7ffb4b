"""DEHB with ask and tell. A configuration that returns with a larger fidelity is resumed, because DEHB gives its id."""

import importlib.metadata
import math
import tempfile
import warnings

import numpy as np
from dehb import DEHB
from link import from_cube

warnings.simplefilter("ignore")
VERSION = f"dehb {importlib.metadata.version('dehb')}"
WORST = 1e9  # replaces a loss that diverged


def run(study):
    with tempfile.TemporaryDirectory() as folder:
        tuned = DEHB(
            dimensions=len(study.parameters),
            min_fidelity=1,
            max_fidelity=study.max_steps,
            eta=3,
            n_workers=1,
            seed=study.seed,
            output_path=folder,
            save_freq="end",
            log_level="ERROR",
        )
        last = {}
        while True:
            job = tuned.ask()
            number = job["config_id"]
            point = np.asarray(job["config"], dtype=float)
            losses = study.train(number, from_cube(study.parameters, point), until=max(1, round(job["fidelity"])))
            last[number] = losses[-1] if losses else last[number]
            loss = last[number] if math.isfinite(last[number]) else WORST
            tuned.tell(job, {"fitness": loss, "cost": sum(study.costs_s)})
