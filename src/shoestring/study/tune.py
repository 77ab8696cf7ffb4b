"""`tune`: begin a study and run it, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.space.space import Config, Space
from shoestring.core.values import checks
from shoestring.runners.checkpoints.checkpoint_store import make_location_entry
from shoestring.runners.make import count_steps, describe_code
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner
from shoestring.stores.ledger_store import LedgerStore
from shoestring.stores.unnamed import delete_unnamed, make_unnamed_file
from shoestring.study.begin import GivenDirection
from shoestring.study.run_study import Callback, RunOptions, run_study
from shoestring.study.study import Study


def tune(
    train: Callable[..., Any],
    space: Space | Mapping[str, Any],
    budget: str | Budget,
    *,
    max_steps: int | None = None,
    direction: GivenDirection = "min",
    policy: str | Policy | None = None,
    settings: Mapping[str, Any] | None = None,
    workers: int | None = None,
    runner: str | Runner | RayCluster | None = None,
    devices: str | Sequence[int] | None = None,
    live: int | None = None,
    checkpoints: str | Path | None = None,
    checkpoints_at_most: str | None = None,
    deadline: str | float | None = None,
    name: str = "study",
    store: str | LedgerStore | None = None,
    seed: int | None = None,
    prices: Prices | None = None,
    initial: Sequence[Config] = (),
    like: Any = (),
    like_rename: Mapping[str, str] | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    metric: str | None = None,
) -> Study:
    """Tune the hyperparameters of `train` until the budget is spent, and return the study.

    The same call again continues a stored study. The budget, the policy with its settings and the number of workers may then
    change.

    Parameters
    ----------
    train : callable
        The training code: a function of a configuration that returns its loss; a generator function that yields the loss
        after each step; or a class that is made with a configuration and has `step()`, which returns the loss. To save
        checkpoints the class also has `save(path)` and `load(path)`, where `path` becomes a file or a folder. If it has
        `validate()`, this returns the loss instead of `step()`, and is called only after the steps that the policy wants to
        be validated. Each may take a `Context` as its second argument: what the study knows about the trial.
    space : Space or mapping
        The parameters and their ranges, or a description of them as a dict.
    budget : str or Budget
        The total of the study: "400 epochs" (one step counts as one epoch), "2h" of worker time (four workers use it up in
        half an hour), or "$20 at 2.50/h" (an hour of one worker costs 2.50; see `Budget` for a price per machine). For a plain
        function also "20 trials" or "20 calls".
    max_steps : int, optional
        The number of steps of a full training. Required, except for a plain function, which has one step.
    direction : {"min", "max", "minimize", "maximize"}, optional
        Whether smaller or larger values are better.
    policy : str or Policy, optional
        What decides which trial is trained next: a name that `shoestring policies` lists, or a policy object. None: the
        policy of the stored study; in a new study, the default.
    settings : mapping, optional
        Settings of the policy by name. Its page lists them, and so does `shoestring policies NAME`.
    workers : int, optional
        The number of trials that are trained at the same time. With more than one, each worker is a process. None: one for
        each device, else the number of the stored study, else 1.
    runner : str or Runner or RayCluster, optional
        Where trials are trained: "local" in this process, "process" in other processes, "ray" on a Ray cluster. None:
        "local" for one worker without devices, else "process".
    devices : str or sequence of int, optional
        The devices of the workers, for example "0,1,2,3". Each worker gets one; a device that is listed twice is shared.
    live : int, optional
        The largest number of trials that stay in memory; not for Ray. The other trials continue from their checkpoints, or
        from the first step if they have none. With the "local" runner all trials count, also the one in training; by default
        there may be as many as leave a quarter of the memory free (and of the GPU's memory, if PyTorch uses one), or 8 where
        free memory cannot be measured. With worker processes only paused trials count; by default there may be as many as
        workers, or 8 if the training code cannot save checkpoints.
    checkpoints : str or Path, optional
        Where checkpoints are stored: a folder, or "s3://bucket/runs". None: the place of the stored study, else a folder
        beside the store.
    checkpoints_at_most : str, optional
        The largest disk space for checkpoints, such as "2GB".
    deadline : str or float, optional
        Stop after this much clock time: "2h", or seconds. 0 begins or opens the study without training.
    name : str, optional
        The name of the study in its store.
    store : str or LedgerStore, optional
        Where the study is stored: "file.db", "sqlite:///file.db" or "postgresql://…". None: in a new file in a temporary
        folder, which is named at the start and at the end and is deleted when it was not used for two weeks; `store=` with
        the name of this file continues the study. ":memory:": in no file, so the study is lost when the process ends.
    seed : int, optional
        The seed of all random choices. None: the seed of the stored study; in a new study, a random one.
    prices : Prices, optional
        Prices beside that of a step, for a budget in epochs: `Prices(validate_epochs=0.5)` charges half an epoch for each
        validation. None: only steps are charged.
    initial : sequence of mapping, optional
        Configurations to try before those of the policy.
    like : str or Path or Study or list of these, optional
        Earlier studies to learn from, when a study begins: the name of a study in this store, "FILE.db#NAME",
        "optuna:STORAGE#NAME", a table ("FILE.csv#COLUMN", "FILE.jsonl#COLUMN"), or a `Study`. What they found is copied into
        the new study. Policies choose its first configurations by it, and forget it if it proves wrong.
    like_rename : mapping, optional
        Parameters of earlier studies that have another name here: `{"learning_rate": "lr"}`.
    progress : bool, optional
        True shows the progress, False shows nothing. None: only in a terminal or a notebook; elsewhere only the name of a
        temporary file is printed (on standard error).
    callbacks : sequence of callable, optional
        Functions that are called as `f(study, trial)` in this process after each step that is finished or has failed, in the
        order of the list. `trial` is the trial of this step: `trial.values` has the values of its steps, and `trial.failure` the
        text of its failure, if it failed. A callback ends the run with `study.stop()`. An error in a callback is raised and ends
        the run too; the step is stored already. Time spent in callbacks is charged to a budget of time or money.
    metric : str, optional
        What the values are, such as "validation error". Figures, `status` and reports show this name.

    Returns
    -------
    Study
        The study; `study.best` has the best configuration, its value and its checkpoint. It is None if no step has a value.

    Raises
    ------
    TrainingFailed
        If no step of the training code ever worked. Its attribute `study` holds the failures.
    SpaceError, BudgetError, PolicyError, RunnerError
        If the space, the budget, the policy, or an option of the runner is wrong. Nothing is stored then.
    StudyError
        If another argument is wrong, or if the stored study has another space, direction, `max_steps`, unit of the budget,
        prices, seed or place for checkpoints. Without a seed or a place, those of the stored study are used. Nothing is
        stored then.
    StudyInUse
        If another process runs the stored study.
    KeyboardInterrupt
        At the second Ctrl-C. The first one finishes the step that is trained in this process, or interrupts the steps in other
        processes; then the study is returned, with `study.ending.reason == "stopped"`. In a thread, or where something else
        handles Ctrl-C (such as asyncio), nothing is changed; `study.stop()` always works.

    Warns
    -----
    UserWarning
        If trials failed and the study ended early, if the policy left a part of the budget unspent, or if resuming a trial
        from its checkpoint gives other values.

    Examples
    --------
    >>> from shoestring import Float, Space, tune
    >>> def train(config):
    ...     for step in range(4):
    ...         yield (config["lr"] - 0.1) ** 2 + 1 / (step + 1)
    >>> space = Space({"lr": Float(0.001, 1.0, log=True)})
    >>> study = tune(train, space, "40 epochs", max_steps=4, seed=0)
    >>> study.spent
    40.0
    >>> study.best.step
    4
    """
    if max_steps is not None:
        max_steps = checks.check_whole("max_steps", max_steps, 1, "the steps of a full training")
    options = RunOptions(
        workers=workers,
        runner=runner,
        devices=devices,
        live=live,
        checkpoints_at_most=checkpoints_at_most,
        deadline=deadline,
        callbacks=callbacks,
        progress=progress,
    )
    begin = partial(
        Study.begin,
        space,
        budget,
        name=name,
        max_steps=count_steps(train, max_steps),
        direction=direction,
        policy=policy,
        settings=settings,
        seed=seed,
        workers=options.device_count if workers is None else workers,
        prices=prices,
        initial=initial,
        like=like,
        like_rename=like_rename,
        target=describe_code(train) | make_location_entry(checkpoints),
        metric=metric,
    )
    return begin_and_run(begin, name, store, train, options)


def begin_and_run(
    begin: Callable[..., Study], name: str, store: str | LedgerStore | None, train: Any, options: RunOptions
) -> Study:
    """Begin a study with `begin(store=…)`, in a temporary file if there is no store, and run it."""
    if store is not None:
        study = begin(store=store)
        run_study(study, train, options)
        return study
    with _open_temporary_file(name, begin) as study:
        run_study(study, train, options)
    return study


@contextmanager
def _open_temporary_file(name: str, begin: Callable[..., Study]) -> Iterator[Study]:
    """Begin a study in a new temporary file, and close the file at the end: programs may keep hundreds of studies."""
    file = make_unnamed_file(checks.check_study_name(name))
    try:
        study = begin(store=str(file))
    except BaseException:
        delete_unnamed(file)
        raise
    with closing(study.store):  # type: ignore[type-var]  # the store of a file can be closed; it opens again when needed
        yield study
