"""The Ray runner on a real cluster: the contract of all runners, checkpoint stores, errors, and stopping."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import HERE, Nodes, start_driver
from ray_code import CONFIGS, DriverOnlyFolder, HoldsTheLock, Quick, SlowCurve, loss_at, never_saves, plain

from shoestring import Space, tune
from shoestring.core.ledger.entries import Note, Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.checkpoint_store import CheckpointStore
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.ray.actors import describe_node
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.ray_runner import RayRunner
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.stores.sql import SqlStore
from shoestring.study.study import Study
from shoestring.testing.runners import (
    Curve,
    CurveSource,
    check_continuing_study,
    check_runner_contract,
    make_definition,
    outcomes,
    run_study,
)

pytestmark = pytest.mark.usefixtures("connected")
SPACE = Space.from_configs(CONFIGS)


def receipts(ledger: Ledger) -> list[Receipt]:
    return [entry for entry in ledger.entries() if isinstance(entry, Receipt)]


def test_one_worker_keeps_the_contract(tmp_path: Path) -> None:
    check_runner_contract(lambda folder: RayRunner(Curve, Checkpoints(folder)), tmp_path)


def test_three_workers_train_what_one_trains(tmp_path: Path) -> None:
    ledger = run_study(RayRunner(Curve, Checkpoints(tmp_path), workers=3), Ledger([make_definition(workers=3)]))
    values = {(trial, step): (value, status) for _, trial, step, value, status in outcomes(ledger)}
    expected = run_study(SimulatedRunner(CurveSource()), Ledger([make_definition()]))
    common = {(trial, step): (value, status) for _, trial, step, value, status in outcomes(expected)}
    both = values.keys() & common.keys()
    assert {key: values[key] for key in both} == {key: common[key] for key in both}
    assert len(both) >= 12
    assert ledger.spent <= 15
    assert len({receipt.worker for receipt in receipts(ledger)}) == 3


@pytest.mark.parametrize("kind", ["bytes through the driver", "s3"])
def test_a_stopped_study_continues_from_its_checkpoints(kind: str, s3: str, tmp_path: Path) -> None:
    places = itertools.count()
    expected = run_study(SimulatedRunner(CurveSource()), Ledger([make_definition()]))
    store: Path | str | CheckpointStore = (
        DriverOnlyFolder(tmp_path / "kept") if kind != "s3" else f"{s3}/runs-{next(places)}"
    )

    def make(folder: Path) -> RayRunner:
        return RayRunner(Curve, Checkpoints(store))

    check_continuing_study(make, tmp_path, expected, (9,))
    if kind != "s3":
        assert list((tmp_path / "kept").glob("trial-*/step-*")), "the driver has no checkpoints"


def test_tune_on_a_cluster_has_the_best_model_and_its_log(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    study = tune(
        SlowCurve, SPACE, "10 epochs", max_steps=4, policy="asha", runner="ray", workers=2, store=store, progress=False
    )
    assert study.spent == 10
    assert study.best is not None
    assert study.best.load(SlowCurve).done == study.best.step
    assert isinstance(study.checkpoints, Path)
    log = study.checkpoints / f"trial-{study.best.trial:04d}" / "stdout.txt"
    assert f"step {study.best.step}" in log.read_text()
    assert not list(study.checkpoints.glob(".mark-*"))


def test_the_resume_check_is_made_by_the_worker(tmp_path: Path) -> None:
    class Forgets(Quick):
        def load(self, path: Path) -> None:
            self.done = 0

    found = {}
    for train in (Quick, Forgets):
        study = tune(
            train, SPACE, "100 epochs", max_steps=20, policy="random_search", runner="ray", seed=1, progress=False
        )
        (check,) = [entry for entry in study.ledger.entries() if isinstance(entry, Note) and entry.topic == "check"]
        found[train.__name__] = check.facts["same"]
        assert check.facts["seconds"] > 0
    assert found == {"Quick": True, "Forgets": False}


def test_code_that_cannot_save_keeps_its_worker_until_another_trial_needs_it(tmp_path: Path) -> None:
    study = tune(
        never_saves,
        SPACE,
        "30 epochs",
        max_steps=6,
        policy="successive_halving",
        runner="ray",
        workers=2,
        progress=False,
    )
    lost = [entry for entry in study.ledger.entries() if isinstance(entry, StateLoss)]
    assert study.spent == 30
    assert {entry.resumable_step for entry in lost} == {0}
    assert {entry.why for entry in lost} == {"another trial needed its worker, and it could not be saved"}
    for trial in study.trials:
        assert list(trial.values) == [loss_at(trial.config, step) for step in range(1, trial.steps + 1)]


def test_a_plain_function_loses_nothing(tmp_path: Path) -> None:
    study = tune(plain, SPACE, "8 epochs", runner="ray", workers=2, store=str(tmp_path / "s.db"), progress=False)
    assert study.spent == 8
    assert not [entry for entry in study.ledger.entries() if isinstance(entry, StateLoss)]
    assert not list(tmp_path.glob("*checkpoints*"))


def test_a_step_that_holds_the_python_lock_is_not_taken_for_silence(tmp_path: Path) -> None:
    cluster = RayCluster(silent_after_s=1.0)
    study = tune(HoldsTheLock, SPACE, "1 epochs", max_steps=2, runner=cluster, progress=False)
    (receipt,) = receipts(study.ledger)
    assert receipt.status == "ok"
    assert receipt.cost.total >= 3.0


def test_the_budget_limit_ends_running_steps(tmp_path: Path) -> None:
    study = Study.begin(SPACE, "3s", max_steps=60, policy="random_search", seed=1)
    study.run(RayRunner(SlowCurve, Checkpoints(tmp_path), workers=2))
    assert 3.0 <= study.spent <= 4.0
    assert sum(receipt.cost.total for receipt in receipts(study.ledger)) <= 4.0


def test_impossible_requests_are_errors() -> None:
    cluster = RayCluster(cpus=64, gpus=1, start_within_s=0.5)
    with (
        pytest.warns(UserWarning, match="no node of the Ray cluster has room"),
        pytest.raises(
            RunnerError, match=r"no room for .* s: a worker needs 64 CPU, 1 GPU of one node, and the cluster has"
        ),
    ):
        tune(plain, SPACE, "2 epochs", runner=cluster, progress=False)
    with pytest.raises(RunnerError, match="Ray clients"):
        RayCluster(address="ray://somewhere:10001")
    with pytest.raises(RunnerError, match="gpus=-1 of a worker must be a number, 0 or more"):
        RayCluster(gpus=-1)
    with pytest.raises(RunnerError, match="live=3 is not for Ray"):
        tune(plain, SPACE, "2 epochs", runner="ray", live=3, progress=False)


def test_workers_take_custom_resources_and_the_price_of_their_node(connected: Nodes) -> None:
    node = connected.add(cpus=1, labels={"market": "spot"}, highmem=1)
    try:
        assert {"market=spot", "spot", "highmem"} <= describe_node(node.node_id)
        cluster = RayCluster(cpus=0.5, resources={"highmem": 1}, prices={"market=spot": 0.4})
        runner = RayRunner(plain, Checkpoints(Path("unused")), 2, cluster)
        runner.start(Ledger([make_definition()]))
        assert runner.workers == 1, "the cluster has no more of this resource"
        assert [worker.price_factor for worker in runner._pool.ready] == [0.4]
        runner.close()
    finally:
        connected.kill(node)


def test_a_driver_that_gets_sigterm_pauses_and_exits(
    connected: Nodes, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """`resume` then continues with the options that were given to `run`."""
    space = ["-p", "rate={float=[0.05,0.7]}", "--max-steps", "6", "--policy", "asha", "--seed", "1", "--study", "s"]
    where = [
        "--runner",
        "ray",
        "--address",
        connected.address,
        "--cpus",
        "1",
        "--workers",
        "2",
        "--checkpoints",
        "kept",
    ]
    words = [
        "run",
        f"{HERE}/ray_code.py:SlowCurve",
        *space,
        *where,
        "--budget",
        "40 epochs",
        "--store",
        "s.db",
        "--json",
    ]
    with start_driver(tmp_path, *words) as driver:
        store = SqlStore(f"sqlite:///{tmp_path}/s.db")
        eventually(lambda: (ledger := store.load("s")) is not None and ledger.spent > 4)
        driver.send_signal(signal.SIGTERM)
        output, errors = driver.communicate(timeout=60)
    assert driver.returncode == 143, errors
    assert json.loads(output)["reason"] == "stopped"
    stopped = Study.open("s", tmp_path / "s.db")
    assert stopped.ledger.definition.target["cluster"] == {"address": connected.address, "cpus": 1.0}
    paused = {(trial.number, trial.steps) for trial in stopped.trials if trial.steps}
    in_folder = {
        (int(path.parent.name[-4:]), int(path.name[-6:])) for path in (tmp_path / "kept/s").glob("trial-*/step-??????")
    }
    assert paused <= in_folder
    with start_driver(tmp_path, "resume", "--budget", "24 epochs", "--store", "s.db", "--json") as driver:
        output, errors = driver.communicate(timeout=60)
    assert driver.returncode == 0, errors
    assert json.loads(output)["spent"] == 24
