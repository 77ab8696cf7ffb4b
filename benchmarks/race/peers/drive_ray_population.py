"""Ray Tune's population-based training with the population size and the interval of its guide, on one worker.

Ray's scheduler decides which trial is trained, saved or replaced by a copy, and with which hyperparameters. If budget is left at
the end of a population, a new population begins; Ray's guide does not cover this case.

The race copies a model in its present state, while Ray loads a checkpoint when the copy runs next. Therefore the first step of a
copy is trained immediately, and the scheduler gets its loss when the copy runs next. All other trials are paused at their
checkpoints at that time.
"""

import math
from types import SimpleNamespace

from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler

POPULATION, INTERVAL = 4, 5  # trials, steps
WORST = 1e9  # replaces a loss that diverged


class Member:
    """A trial of the scheduler. After each copy it is a new trial of the race: `key`, which began at step `base`."""

    def __init__(self, number, config):
        self.trial_id, self.config, self.evaluated_params = str(number), config, {}
        self.status, self.experiment_tag, self.last_result = Trial.PENDING, str(number), {}
        self.temporary_state = SimpleNamespace(saving_to=None)
        manager = SimpleNamespace(checkpoint_config=SimpleNamespace(num_to_keep=None), _latest_checkpoint_result=None)
        self.run_metadata = SimpleNamespace(checkpoint_manager=manager)
        self.key, self.base, self.step, self.loss = self.trial_id, 0, 0, WORST
        self.copies, self.unreported = 0, []  # losses that were trained and not reported yet

    def is_finished(self):
        return self.status == Trial.TERMINATED

    def set_config(self, config):
        self.config = config

    def set_experiment_tag(self, tag):
        self.experiment_tag = tag

    def take_step(self, study):
        self.step += 1
        losses = self.unreported or study.train(self.key, self.config, until=self.step - self.base)
        self.unreported = []
        if losses:  # without losses it has diverged, and keeps its last loss until it is replaced
            self.loss = losses[-1] if math.isfinite(losses[-1]) else WORST
        self.last_result = {"loss": self.loss, "training_iteration": self.step}

    def become_copy(self, study):
        """Continue as a copy of the trial that the scheduler chose."""
        source, at = self.run_metadata.checkpoint_manager._latest_checkpoint_result.checkpoint
        self.copies += 1
        self.key, self.base, self.step = f"{self.trial_id} copy {self.copies}", at, at
        self.unreported = study.train(self.key, self.config, until=1, copy_of=source)


class Controller:
    """A controller for the scheduler; `replaced` is the member that has to become a copy."""

    search_alg = None

    def __init__(self, members):
        self._members, self.replaced = members, None

    def get_trials(self):
        return self._members

    def _schedule_trial_save(self, member, result=None):
        return member.key, member.step

    def pause_trial(self, member, should_checkpoint=True):
        member.status, self.replaced = Trial.PAUSED, member


def mutation(parameter, domain):
    """Return the mutation of a parameter as in Ray's documentation: a list for choices, a distribution for numbers."""
    return parameter["options"] if parameter["kind"] == "choice" else domain


def run_populations(study, space):
    mutations = {p["name"]: mutation(p, space[p["name"]]) for p in study.parameters if not p["fixed"]}
    number = 0
    while True:
        scheduler = PopulationBasedTraining(
            time_attr="training_iteration",
            metric="loss",
            mode="min",
            perturbation_interval=INTERVAL,
            hyperparam_mutations=mutations,
            log_config=False,
        )
        members = [
            # `sample` uses NumPy's generator, which the link has seeded.
            Member(number + i, {name: one.sample() for name, one in space.items()})
            for i in range(POPULATION)
        ]
        number += POPULATION
        run_population(study, scheduler, members)


def run_population(study, scheduler, members):
    controller = Controller(members)
    for member in members:
        scheduler.on_trial_add(controller, member)
    while (member := scheduler.choose_trial_to_run(controller)) is not None:
        member.status = Trial.RUNNING
        while member.status == Trial.RUNNING:
            member.take_step(study)
            if member.step >= study.max_steps:
                member.status = Trial.TERMINATED
                scheduler.on_trial_complete(controller, member, member.last_result)
            elif scheduler.on_trial_result(controller, member, member.last_result) == TrialScheduler.PAUSE:
                member.status = Trial.PAUSED
        if controller.replaced is not None:
            controller.replaced.become_copy(study)
            controller.replaced = None
