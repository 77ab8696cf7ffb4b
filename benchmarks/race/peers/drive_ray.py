"""Ray Tune's schedulers with random configurations from its search space, one worker. A stopped trial cannot be resumed.

The driver uses the scheduler interface as Ray's own controller does, because Ray would run trials in its own processes.
Population-based training is in drive_ray_population.py.
"""

import logging
import math
import warnings

import ray
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule, TrialScheduler

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
VERSION = f"ray {ray.__version__}"
WORST = 1e9  # replaces a loss that diverged


def domain(parameter):
    if parameter["kind"] == "choice":
        return tune.choice(parameter["options"])
    low, high = parameter["low"], parameter["high"]
    if parameter["kind"] == "int":
        return tune.lograndint(low, high + 1) if parameter["log"] else tune.randint(low, high + 1)
    return tune.loguniform(low, high) if parameter["log"] else tune.uniform(low, high)


def make_scheduler(study):
    options = {"metric": "loss", "mode": "min", "time_attr": "training_iteration"}
    if study.method == "asha":
        return AsyncHyperBandScheduler(max_t=study.max_steps, grace_period=1, reduction_factor=3, **options)
    return MedianStoppingRule(grace_period=1, min_samples_required=3, **options)


class Trial:
    """A trial with the attributes that a scheduler reads."""

    def __init__(self, number, config):
        self.trial_id, self.config, self.last_result = str(number), config, {}


class Controller:
    """A controller with one running trial and no other live ones."""

    def get_live_trials(self):
        return []


def run(study):
    if study.method == "pbt":
        from drive_ray_population import run_populations

        return run_populations(study, {p["name"]: domain(p) for p in study.parameters})
    scheduler, controller = make_scheduler(study), Controller()
    space = {parameter["name"]: domain(parameter) for parameter in study.parameters}
    number = 0
    while True:
        config = {name: one.sample() for name, one in space.items()}  # NumPy's generator, seeded by the link
        trial = Trial(number, config)
        scheduler.on_trial_add(controller, trial)
        if not train(study, scheduler, controller, trial, number):
            scheduler.on_trial_complete(controller, trial, trial.last_result)
        number += 1


def train(study, scheduler, controller, trial, number):
    """Train a trial step by step; return whether the scheduler stopped it."""
    for step in range(1, study.max_steps + 1):
        losses = study.train(number, trial.config, until=step)
        if not losses:
            return False
        loss = losses[-1] if math.isfinite(losses[-1]) else WORST
        trial.last_result = {"loss": loss, "training_iteration": step, "time_total_s": sum(study.costs_s)}
        if scheduler.on_trial_result(controller, trial, trial.last_result) == TrialScheduler.STOP:
            return True
        if study.ended:
            return False
    return False
