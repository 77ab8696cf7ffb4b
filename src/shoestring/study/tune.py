"""`tune`: a study from start to end in one call.

from shoestring import Float, Space, tune

study = tune(train, Space({"lr": Float(1e-4, 1.0, log=True)}), budget="200 epochs", max_steps=20)
print(study.best.config, study.best.value)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget, Prices, read_duration_s
from shoestring.core.ledger.entries import Direction
from shoestring.core.space.space import Config, Space
from shoestring.core.values import checks as arguments
from shoestring.runners.checkpoints.checkpoint_store import name_place
from shoestring.runners.devices import parse_devices
from shoestring.runners.make import check_runner, steps_of, target_of
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner
from shoestring.stores.store import Store
from shoestring.study.loop import Observe
from shoestring.study.run_code import require_watch
from shoestring.study.study import Study


def tune(
    train: Callable[..., Any],
    space: Space | Mapping[str, Any],
    budget: str | Budget,
    *,
    max_steps: int | None = None,
    direction: Direction = "min",
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
    store: str | Store | None = None,
    seed: int | None = None,
    prices: Prices | None = None,
    initial: Sequence[Config] = (),
    progress: bool | None = None,
    observe: Observe | None = None,
) -> Study:
    """Tune `train` over `space` until the budget is spent; the result is the study, with `.best`.

    The same call again goes on with a stored study. Raises `TrainingFailed` (its `study` tells more) when no step of the
    training code ever worked; warns when trials began to fail, or when the policy left money unspent.

    train                a function of a config that returns its loss, a generator that yields it, a class with `step()`
    space                what may be tried: a `Space`, or its description as a dict
    budget               the total of the study: "400 epochs", "2h", "$20 at 2.50/h"
    max_steps            steps of a full training; a plain function has 1, other code must say
    direction            "min" if smaller values are better, "max" if larger ones are
    policy               who decides: a name that `shoestring policies` lists, or an object with a name and a `decide`; None:
                         the study's own, and for a new one the default
    settings             of the policy, when it is given by name
    workers              trials trained at the same time; several run in processes of their own; None: one for each device,
                         else the study's own, and for a new one 1
    runner               "local" (this process), "process" (others), "ray" or `RayCluster(…)` (a cluster, where `workers` are
                         the most seats), or a runner; None: by the number of workers
    devices              of the workers, as "0,1,2,3": each gets its own; a number given twice is shared
    live                 most trials kept alive while frozen; None: as many as leave a quarter of the memory free, of a GPU
                         too if PyTorch uses it; one for each worker in processes of their own
    checkpoints          where they are kept, a folder or "s3://bucket/runs"; None: the study's own, else beside its store
    checkpoints_at_most  most disk space for checkpoints, as "2GB"
    deadline             stop after this much clock time: "2h", or seconds
    name                 of the study in its store
    store                where it is kept: "file.db", "sqlite:///file.db", "postgresql://…"; None: in memory
    seed                 of all random choices; None: drawn, and kept in the study
    prices               what else an epoch budget pays for: `Prices(validate_epochs=0.5)`
    initial              configs to try before the policy's own
    progress             True: show it; False: silence; None: in a terminal or a notebook, and nowhere else
    observe              called with (ledger, entry) for every new entry, and with None while nothing happens
    """
    require_watch(observe, progress)
    if max_steps is not None:
        max_steps = arguments.whole("max_steps", max_steps, 1, "the steps of a full training")
    if workers is None and devices is not None:
        workers = len(parse_devices(devices))
    check_runner(runner, 1 if workers is None else workers, live, checkpoints_at_most, devices)
    deadline_s = read_duration_s(deadline, "deadline")
    study = Study.begin(
        space,
        budget,
        name=name,
        store=store,
        max_steps=steps_of(train, max_steps),
        direction=direction,
        policy=policy,
        settings=settings,
        seed=seed,
        workers=workers,
        prices=prices,
        initial=initial,
        target=target_of(train) | name_place(checkpoints),
    )
    study.run(
        train,
        runner=runner,
        devices=devices,
        live=live,
        checkpoints_at_most=checkpoints_at_most,
        deadline=deadline_s,
        observe=observe,
        progress=progress,
    )
    return study
