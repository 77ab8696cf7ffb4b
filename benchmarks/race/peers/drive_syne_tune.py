"""Syne Tune 0.13: its schedulers, used as its own tuner uses them, with one worker. Paused trials are resumed.

Schedulers with a Gaussian process are restricted to the rows of a table by `restrict_configurations`; the others propose
points.
"""

import datetime
import logging
import math
import warnings

import syne_tune
from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import choice, lograndint, loguniform, randint, uniform
from syne_tune.optimizer.baselines import ASHA, BOHB, MOBSTER, DyHPO, HyperTune, SyncBOHB, SyncHyperband
from syne_tune.optimizer.scheduler import SchedulerDecision

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
VERSION = f"syne-tune {syne_tune.__version__}"

PROMOTION = {"type": "promotion", "grace_period": 1}
METHODS = {  # class, arguments, whether it accepts restrict_configurations
    "asha": (ASHA, PROMOTION, True),
    "bohb": (BOHB, PROMOTION, False),
    "mobster": (MOBSTER, PROMOTION, True),
    "hypertune": (HyperTune, PROMOTION, True),
    "dyhpo": (DyHPO, {"grace_period": 1}, True),
    "hyperband": (SyncHyperband, {"grace_period": 1}, False),
    "sync_bohb": (SyncBOHB, {"grace_period": 1}, False),
}
WORST = 1e9  # replaces a loss that diverged: a Gaussian process cannot be fitted to infinity


def domain(parameter):
    if parameter["kind"] == "choice":
        return choice(parameter["options"])
    kinds = {("int", False): randint, ("int", True): lograndint, ("float", False): uniform, ("float", True): loguniform}
    return kinds[parameter["kind"], parameter["log"]](parameter["low"], parameter["high"])


def make_scheduler(study):
    kind, arguments, restricts = METHODS[study.method]
    space = {parameter["name"]: domain(parameter) for parameter in study.parameters}
    options = {"debug_log": False}
    if restricts and study.rows is not None:
        options["restrict_configurations"] = study.rows
    return kind(
        {**space, "max_steps": study.max_steps},
        metric="loss",
        mode="min",
        resource_attr="step",
        max_resource_attr="max_steps",
        random_seed=study.seed,
        search_options=options,
        **arguments,
    )


def run(study):
    scheduler = make_scheduler(study)
    names = [parameter["name"] for parameter in study.parameters]
    numbers = {tuple(row[name] for name in names): i for i, row in enumerate(study.rows or [])}
    trials, steps, last = {}, {}, {}
    while True:
        suggestion = scheduler.suggest(trial_id=len(trials))
        if suggestion is None:
            return
        if suggestion.spawn_new_trial_id:
            trial = Trial(trial_id=len(trials), config=dict(suggestion.config), creation_time=datetime.datetime.now())
            trials[trial.trial_id], steps[trial.trial_id] = trial, 0
            scheduler.on_trial_add(trial=trial)
        else:
            trial = trials[suggestion.checkpoint_trial_id]
        train(study, scheduler, trial, names, numbers, steps, last)


def train(study, scheduler, trial, names, numbers, steps, last):
    """Train a trial step by step until the scheduler pauses or stops it, or until its last step."""
    number = trial.trial_id
    config = {name: trial.config[name] for name in names}
    row = numbers.get(tuple(config[name] for name in names))
    while steps[number] < study.max_steps:
        steps[number] += 1
        losses = study.train(number, config, row=row, until=steps[number])
        # A recorded curve that ended early keeps its last loss: it has no further steps.
        last[number] = losses[-1] if losses else last[number]
        loss = last[number] if math.isfinite(last[number]) else WORST
        result = {"loss": loss, "step": steps[number], "elapsed_time": sum(study.costs_s)}
        decision = scheduler.on_trial_result(trial=trial, result=result)
        if decision != SchedulerDecision.CONTINUE:
            scheduler.on_trial_remove(trial=trial)
            return
    scheduler.on_trial_complete(trial, result)
