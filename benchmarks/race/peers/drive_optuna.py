"""Optuna with a sampler and a pruner. A pruned trial cannot be resumed."""

import warnings

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")
VERSION = f"optuna {optuna.__version__}"


def make_sampler(name, seed):
    if name == "gp":
        import torch  # noqa: F401  # Optuna imports it after ten trials only; without it, fail before the study

        return optuna.samplers.GPSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed) if name == "tpe" else optuna.samplers.RandomSampler(seed=seed)


def make_pruner(name, max_steps):
    """Return the pruner with the settings of Optuna's documentation; Hyperband needs the number of steps."""
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=max_steps, reduction_factor=3)
    if name == "halving":
        return optuna.pruners.SuccessiveHalvingPruner()
    return optuna.pruners.MedianPruner() if name == "median" else optuna.pruners.NopPruner()


def suggest(trial, parameter):
    name = parameter["name"]
    if parameter["kind"] == "choice":
        return trial.suggest_categorical(name, parameter["options"])
    suggest_number = trial.suggest_int if parameter["kind"] == "int" else trial.suggest_float
    return suggest_number(name, parameter["low"], parameter["high"], log=parameter["log"])


def run(study):
    sampler, _, pruner = study.method.partition("_")
    tuned = optuna.create_study(
        study_name=f"race {study.seed}",  # Hyperband assigns trials to brackets by a hash of this name
        sampler=make_sampler(sampler, study.seed),
        pruner=make_pruner(pruner, study.max_steps),
    )
    stride = 1 if pruner else study.max_steps  # only a pruner needs intermediate losses
    while True:
        trial = tuned.ask()
        config = {parameter["name"]: suggest(trial, parameter) for parameter in study.parameters}
        best, state = float("inf"), optuna.trial.TrialState.COMPLETE
        for step in range(stride, study.max_steps + 1, stride):
            losses = study.train(trial.number, config, until=step)
            if not losses:
                break  # the recorded curve has ended
            best = min(best, *losses)
            trial.report(losses[-1], step)
            if study.ended:
                break
            if trial.should_prune():
                state = optuna.trial.TrialState.PRUNED
                break
        if state == optuna.trial.TrialState.PRUNED:
            tuned.tell(trial, state=state)
        else:
            tuned.tell(trial, best) if best < float("inf") else tuned.tell(trial, state=optuna.trial.TrialState.FAIL)
