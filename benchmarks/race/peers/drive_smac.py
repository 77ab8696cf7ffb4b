"""SMAC3 with ask and tell: its multi-fidelity facade (Hyperband with random forests), and two others for plain objectives.

A configuration that SMAC proposes again with a larger budget is resumed: SMAC identifies it, so a user can keep checkpoints.
"""

import importlib.metadata
import logging
import math
import tempfile
import warnings

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
from smac import BlackBoxFacade, HyperparameterOptimizationFacade, MultiFidelityFacade, Scenario
from smac.runhistory.dataclasses import TrialValue

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
VERSION = f"smac {importlib.metadata.version('smac')}"
FACADES = {"multi_fidelity": MultiFidelityFacade, "forest": HyperparameterOptimizationFacade, "gp": BlackBoxFacade}
WORST = 1e9  # replaces a loss that diverged


def make_space(study):
    space = ConfigurationSpace(seed=study.seed)
    for p in study.parameters:
        if p["kind"] == "choice":
            space.add(Categorical(p["name"], p["options"]))
        else:
            kind = Integer if p["kind"] == "int" else Float
            space.add(kind(p["name"], (p["low"], p["high"]), log=p["log"]))
    return space


def run(study):
    staged = study.method == "multi_fidelity"
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            make_space(study),
            deterministic=True,
            n_trials=10**6,  # the budget ends the study
            min_budget=1 if staged else None,
            max_budget=study.max_steps if staged else None,
            seed=study.seed,
            output_directory=folder,
        )
        facade = FACADES[study.method](
            scenario, lambda config, seed=0, budget=0: 0.0, overwrite=True, logging_level=False
        )
        numbers, last = {}, {}
        while True:
            info = facade.ask()
            number = numbers.setdefault(info.config, len(numbers))
            until = max(1, round(info.budget)) if staged else study.max_steps
            losses = study.train(number, dict(info.config), until=until)
            last[number] = losses[-1] if losses else last[number]
            loss = last[number] if math.isfinite(last[number]) else WORST
            facade.tell(info, TrialValue(cost=loss, time=sum(study.costs_s)), save=False)
