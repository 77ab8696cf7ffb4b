"""Nodes die, fall silent and are added while a study runs, and drivers are killed: nothing is lost or charged twice."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from conftest import HERE, Nodes, start_driver
from postgres_server import new_database
from ray_code import CONFIGS, GATE, SlowCurve, loss_at

from shoestring import Space
from shoestring.core.ledger.entries import Cost, Entry, Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.ray_runner import RayRunner
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome
from shoestring.study.study import Study

SPACE = Space.from_configs(CONFIGS)
BUDGET, MAX_STEPS = 72, 12
POLICIES = ("bhpt", "guided_halving")
SILENT_S = 4.0  # 10 by default; nodes are looked at every half second and asked every two seconds, as by default


class Table:
    """The curves of the training code, for an undisturbed run."""

    def step(self, config: Config, step: int) -> StepOutcome:
        return StepOutcome(loss_at(dict(config), step), Cost(train=1.0))


def begin(policy: str, store: str | None = None, budget: str = f"{BUDGET} epochs") -> Study:
    return Study.begin(SPACE, budget, name=policy, store=store, max_steps=MAX_STEPS, policy=policy, seed=1, workers=2)


def run_undisturbed(policy: str) -> Ledger:
    study = begin(policy)
    study.run(SimulatedRunner(Table(), 2))
    return study.ledger


def check_ledger(ledger: Ledger, policy: str) -> None:
    """Check the budget, that each step was charged once, and that the result is that of an undisturbed run."""
    finished = [(e.trial, e.step) for e in ledger.entries() if isinstance(e, Receipt) and e.is_finished]
    assert ledger.spent <= BUDGET
    assert ledger.spent == len(set(finished)), "each step is charged once, however often it had to be trained"
    assert len(ledger.trials) == len(CONFIGS)
    for trial in ledger.trials:
        assert list(trial.values) == [loss_at(trial.config, step) for step in range(1, trial.steps + 1)]
    expected = run_undisturbed(policy)
    assert ledger.best is not None
    assert expected.best is not None
    assert (ledger.best.best_config, ledger.best.best_value) == (expected.best.best_config, expected.best.best_value)


def test_a_study_survives_nodes_that_die_fall_silent_and_are_added(
    nodes: Nodes, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """Two studies at once, on two nodes: one is killed, one is added, and the other of the first two is silenced."""
    nodes.connect()
    each = dict.fromkeys(POLICIES, 1.0)  # room for one worker of each study
    to_kill, to_silence = nodes.add(cpus=2, **each), nodes.add(cpus=2, **each)
    studies = {policy: begin(policy) for policy in POLICIES}
    endings: list[str] = []

    def run(policy: str) -> None:
        cluster = RayCluster(resources={policy: 1}, silent_after_s=SILENT_S)
        runner = RayRunner(SlowCurve, Checkpoints(tmp_path / policy), 2, cluster)
        endings.append(studies[policy].run(runner).reason)

    threads = [threading.Thread(target=run, args=(policy,), daemon=True) for policy in POLICIES]
    for thread in threads:
        thread.start()
    eventually(lambda: all(len(study.ledger.orders) >= 5 for study in studies.values()))
    with blocked_steps():
        nodes.kill(to_kill)
        nodes.add(cpus=2, **each)
    eventually(lambda: all(has_two_workers_again(study) for study in studies.values()))
    with blocked_steps():  # otherwise the whole budget is spent on other nodes until the silence is noticed
        nodes.silence(to_silence)
        eventually(lambda: any(find_silent(study.ledger) for study in studies.values()))
    for thread in threads:
        thread.join(90)
    assert endings == ["budget", "budget"]
    for policy, study in studies.items():
        check_ledger(study.ledger, policy)
        assert study.ledger.spent == BUDGET
        lost = [entry for entry in study.ledger.entries() if isinstance(entry, StateLoss)]
        assert all(entry.seconds <= SILENT_S + 5 for entry in lost), "what a silent node may cost: 15 s by default"


def find_silent(ledger: Ledger) -> list[StateLoss]:
    """Return the losses that we noticed, long before Ray would have noticed."""
    lost = [entry for entry in ledger.entries() if isinstance(entry, StateLoss)]
    return [entry for entry in lost if entry.why == f"its node was silent for {SILENT_S:g} s"]


@contextlib.contextmanager
def blocked_steps() -> Iterator[None]:
    """Let no step be completed meanwhile, so that what happens meanwhile happens during the study."""
    Path(GATE).touch()
    try:
        yield
    finally:
        Path(GATE).unlink()


def has_two_workers_again(study: Study) -> bool:
    """Return whether two workers have sent receipts since one died."""
    entries = list(study.ledger.entries())
    lost = [number for number, entry in enumerate(entries) if isinstance(entry, StateLoss) and entry.death]
    return len({e.worker for e in entries[lost[-1] :] if isinstance(e, Receipt)}) >= 2 if lost else False


def test_another_machine_continues_when_a_driver_is_killed(
    connected: Nodes, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """Two studies at once, each with a driver, a database and a shared folder of its own."""
    stores = {policy: new_database() for policy in POLICIES}
    studies = {
        policy: begin_on(connected, policy, stores[policy], tmp_path / f"shared {policy}") for policy in POLICIES
    }
    first = {policy: resume(policy, stores[policy], tmp_path / f"one {policy}") for policy in POLICIES}
    before: dict[str, list[Entry]] = {}

    def kill_drivers_halfway() -> bool:
        for policy in first.keys() - before.keys():
            if len(receipts_in(studies[policy])) >= 12:
                with first[policy] as driver:
                    driver.send_signal(signal.SIGKILL)
                before[policy] = list(load(studies[policy]).entries())
        return len(before) == len(first)

    eventually(kill_drivers_halfway)
    assert all(len(receipts_in(study)) < BUDGET for study in studies.values()), "too late"
    second = {policy: resume(policy, stores[policy], tmp_path / f"two {policy}", "--json") for policy in POLICIES}
    for policy, study in studies.items():
        with second[policy]:
            output, errors = second[policy].communicate(timeout=120)
        assert second[policy].returncode == 0, errors
        assert json.loads(output)["spent"] == BUDGET
        ledger = load(study)
        assert list(ledger.entries())[: len(before[policy])] == before[policy], "nothing that was stored is lost"
        check_ledger(ledger, policy)
        assert max(trial.saved_step for trial in ledger.trials) > 0
        assert not (tmp_path / f"two {policy}" / "shoestring.checkpoints").exists()


def begin_on(cluster: Nodes, policy: str, store: str, place: Path) -> Study:
    """Begin a study that `resume` can run on the cluster."""
    return Study.begin(
        SPACE,
        f"{BUDGET} epochs",
        name=policy,
        store=store,
        max_steps=MAX_STEPS,
        policy=policy,
        seed=1,
        workers=2,
        target={
            "kind": "python",
            "where": str(HERE / "ray_code.py:SlowCurve"),
            "runner": "ray",
            "cluster": {"address": cluster.address},
            "checkpoints": str(place),
        },
    )


def load(study: Study) -> Ledger:
    ledger = study.store.load(study.name)
    assert ledger is not None
    return ledger


def receipts_in(study: Study) -> list[Receipt]:
    return [entry for entry in load(study).entries() if isinstance(entry, Receipt)]


def resume(policy: str, store: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    folder.mkdir()
    return start_driver(folder, "resume", "--study", policy, "--store", store, *words)
