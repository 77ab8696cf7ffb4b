"""The newest Syne Tune: asynchronous successive halving with stopping, and random or density-based proposals.

A stopped trial cannot be resumed. Version 0.13 was the last with the promoting variants and with Gaussian processes.
"""

import datetime
import logging
import math
import warnings

import syne_tune
from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import choice, lograndint, loguniform, randint, uniform
from syne_tune.optimizer.baselines import ASHA, BOHB
from syne_tune.optimizer.scheduler import SchedulerDecision

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
VERSION = f"syne-tune {syne_tune.__version__}"
METHODS = {"asha": ASHA, "bohb": BOHB}
WORST = 1e9  # replaces a loss that diverged


def domain(parameter):
    if parameter["kind"] == "choice":
        return choice(parameter["options"])
    kinds = {("int", False): randint, ("int", True): lograndint, ("float", False): uniform, ("float", True): loguniform}
    return kinds[parameter["kind"], parameter["log"]](parameter["low"], parameter["high"])


def run(study):
    scheduler = METHODS[study.method](
        {parameter["name"]: domain(parameter) for parameter in study.parameters},
        metric="loss",
        time_attr="step",
        max_t=study.max_steps,
        do_minimize=True,
        random_seed=study.seed,
    )
    number = 0
    while True:
        suggestion = scheduler.suggest()
        if suggestion is None:
            return
        trial = Trial(trial_id=number, config=dict(suggestion.config), creation_time=datetime.datetime.now())
        scheduler.on_trial_add(trial)
        train(study, scheduler, trial)
        number += 1


def train(study, scheduler, trial):
    """Train a trial step by step until the scheduler stops it, or until its last step."""
    config = {parameter["name"]: trial.config[parameter["name"]] for parameter in study.parameters}
    result = {}
    for step in range(1, study.max_steps + 1):
        losses = study.train(trial.trial_id, config, until=step)
        if not losses:
            break
        result = {"loss": losses[-1] if math.isfinite(losses[-1]) else WORST, "step": step}
        if scheduler.on_trial_result(trial, result) != SchedulerDecision.CONTINUE:
            scheduler.on_trial_remove(trial)
            return
        if study.ended:
            break
    scheduler.on_trial_complete(trial, result)
