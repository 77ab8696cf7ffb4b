"""Optuna: a sampler proposes, a pruner stops. A stopped trial cannot be taken up again."""

import warnings

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")
VERSION = f"optuna {optuna.__version__}"


def make_sampler(name, seed):
    if name == "gp":
        import torch  # noqa: F401  # asked for after ten trials only: where it is missing there shall not be half a study

        return optuna.samplers.GPSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed) if name == "tpe" else optuna.samplers.RandomSampler(seed=seed)


def make_pruner(name, max_steps):
    """As the documentation introduces them; Hyperband is told the number of steps, which it needs."""
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
        study_name=f"race {study.seed}",  # Hyperband deals trials to brackets by a hash of this name
        sampler=make_sampler(sampler, study.seed),
        pruner=make_pruner(pruner, study.max_steps),
    )
    stride = 1 if pruner else study.max_steps  # only a pruner looks at a curve under way
    while True:
        trial = tuned.ask()
        config = {parameter["name"]: suggest(trial, parameter) for parameter in study.parameters}
        best, state = float("inf"), optuna.trial.TrialState.COMPLETE
        for step in range(stride, study.max_steps + 1, stride):
            losses = study.train(trial.number, config, until=step)
            if not losses:
                break  # the curve has come to its own end
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
