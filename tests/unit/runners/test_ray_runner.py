"""The driver's side of the Ray runner, with a Ray that needs no cluster: steps that come in one call, and prices of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_ray import FakeRay, a_node, install

from shoestring import Space
from shoestring.core.ledger.amendments import find_losses
from shoestring.core.ledger.budget import PricedSeconds, price_of
from shoestring.core.ledger.entries import Entry, Note, Order, Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import RunnerError
from shoestring.reports import facts
from shoestring.reports.messages import status_report
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.ray.actors import describe_node
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.ray_runner import RayRunner
from shoestring.runners.runner import RunningSteps, seconds_under_way
from shoestring.study.study import Study
from shoestring.testing.runners import Curve, check_runner_contract, make_definition

SPACE = Space.from_configs([{"rate": rate / 10} for rate in range(1, 9)])
NODES = [a_node("expensive", "accelerator_type:A100"), a_node("cheap", market="spot"), a_node("plain")]
PRICES = {"A100": 2.5, "market=spot": 0.4}
RATE = 3.6 / 3600  # dollars a second


class Quick:
    def __init__(self, config: dict[str, Any]) -> None:
        self.rate, self.done = config["rate"], 0

    def step(self) -> float:
        self.done += 1
        return float(self.rate + 1 / self.done)

    def save(self, path: Path) -> None:
        path.write_text(str(self.done))

    def load(self, path: Path) -> None:
        self.done = int(path.read_text())


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return install(monkeypatch, FakeRay(NODES))


def ends(config: dict[str, Any]) -> Iterator[float]:
    yield from (3.0, 2.0)


def run(folder: Path, budget: str, workers: int = 3, train: Any = Quick, **prices: float) -> Study:
    study = Study.begin(SPACE, budget, max_steps=20, policy="asha", seed=1, workers=workers)
    study.run(RayRunner(train, Checkpoints(folder), workers, RayCluster(prices=prices or PRICES)))
    return study


def entries(study: Study, kind: type[Entry]) -> list[Any]:
    return [entry for entry in study.ledger.entries() if isinstance(entry, kind)]


def test_the_contract_of_runners_is_kept(ray: FakeRay, tmp_path: Path) -> None:
    check_runner_contract(lambda folder: RayRunner(Curve, Checkpoints(folder)), tmp_path)


def test_quick_steps_come_in_one_call_with_a_receipt_each(ray: FakeRay, tmp_path: Path) -> None:
    study = run(tmp_path, "60 epochs", workers=1)
    paid = entries(study, Receipt)
    assert max(ray.trained) > 3
    assert len(ray.trained) < len(paid) == sum(ray.trained) == study.spent
    for order in entries(study, Order):
        steps = [receipt for receipt in paid if receipt.order == order.number]
        assert [receipt.at for receipt in steps] == sorted(receipt.at for receipt in steps)
    assert sum(receipt.cost.total for receipt in paid) <= study.ledger.state.clock, "no second is charged twice"
    assert {trial.saved_step for trial in study.ledger.trials} == {trial.steps for trial in study.ledger.trials}


def test_a_worker_that_dies_in_a_call_loses_nothing_that_it_reported(ray: FakeRay, tmp_path: Path) -> None:
    ray.answers_of = {1: ["answer"] * 4 + ["dies"], 2: ["answer", "answer", "dies"]}
    study = run(tmp_path, "60 epochs", workers=2)
    lost = entries(study, StateLoss)
    assert [entry.death for entry in lost] == [True, True]
    finished = [(receipt.trial, receipt.step) for receipt in entries(study, Receipt)]
    assert study.spent == 60
    assert len(finished) - len(set(finished)) <= len(lost), "at most what was not saved is trained again"
    for trial in study.ledger.trials:
        assert list(trial.values) == [trial.config["rate"] + 1 / step for step in range(1, trial.steps + 1)]


def test_the_third_death_of_its_worker_fails_a_trial_and_closes_its_order(ray: FakeRay, tmp_path: Path) -> None:
    ray.answers_of = {1: ["dies"], 2: ["dies"], 3: ["dies"]}
    study = run(tmp_path, "20 epochs", workers=1)
    assert [(entry.trial, entry.death) for entry in entries(study, StateLoss)] == [(0, True)] * 3
    assert study.ledger.trials[0].failures == 1
    assert study.ledger.open_orders == {}
    assert study.spent == 1, "the failed step"


def priced_seconds(study: Study) -> float:
    """Return the seconds of all entries, each multiplied by the price factor of its worker."""
    charged = [(receipt.cost.total, receipt.price_factor) for receipt in entries(study, Receipt)]
    charged += [(entry.seconds, entry.price_factor) for entry in entries(study, StateLoss)]
    charged += [(note.facts.get("seconds", 0.0), note.facts.get("price_factor", 1.0)) for note in entries(study, Note)]
    charged += [(order.thinking_s, 1.0) for order in entries(study, Order)]
    return float(sum(seconds * factor for seconds, factor in charged))


def test_cost_is_seconds_times_rate_times_the_price_of_the_node(ray: FakeRay, tmp_path: Path) -> None:
    """This holds for finished steps and for one that was lost with its worker."""
    ray.answers_of = {1: ["answer", "dies"]}
    study = run(tmp_path, "$1 at 3.6/h")
    paid, lost = entries(study, Receipt), entries(study, StateLoss)
    assert [entry.price_factor for entry in lost if entry.death] == [2.5]
    assert {receipt.worker.partition(":")[2] + f" {receipt.price_factor:g}" for receipt in paid} >= {
        "1 2.5",
        "2 0.4",
        "3 1",
    }
    assert study.spent == pytest.approx(priced_seconds(study) * RATE)


@pytest.mark.parametrize(("topic", "train"), [("check", Quick), ("ended", ends)])
def test_the_resume_check_and_an_end_are_charged_at_that_price_too(
    topic: str, train: Any, ray: FakeRay, tmp_path: Path
) -> None:
    study = run(tmp_path, "$1 at 3.6/h", 1, train, CPU=2.5)
    assert {note.facts.get("price_factor") for note in entries(study, Note) if note.topic == topic} == {2.5}
    assert study.spent == pytest.approx(priced_seconds(study) * RATE)


def test_interrupted_steps_are_charged_at_their_price_and_the_budget_limit_uses_it(
    ray: FakeRay, tmp_path: Path
) -> None:
    """Two workers never answer: at 2.5 and at 0.4 a second, a budget of half a second is used up in less time."""
    ray.answers_of = {1: ["never"], 2: ["never"]}
    study = run(tmp_path, "$0.0005 at 3.6/h", workers=2)
    cut = entries(study, Receipt)
    assert [(receipt.status, receipt.price_factor) for receipt in cut] == [("interrupted", 2.5), ("interrupted", 0.4)]
    assert study.spent == pytest.approx(priced_seconds(study) * RATE)
    assert sum(receipt.cost.total for receipt in cut) < 0.4, "without prices it would be the half second"


def test_a_budget_of_seconds_does_not_depend_on_prices(ray: FakeRay, tmp_path: Path) -> None:
    study = run(tmp_path, "0.2s")
    kinds = study.ledger.state.by_kind
    assert study.spent == pytest.approx(sum(kinds.values()))


def test_status_shows_the_cost_by_price(ray: FakeRay, tmp_path: Path) -> None:
    from rich.console import Console

    study = run(tmp_path, "60 epochs")
    costs = facts.summary("s", study.ledger, None)["cost_by_price"]
    assert [one["price_factor"] for one in costs] == [2.5, 1.0, 0.4]
    assert sum(one["seconds"] for one in costs) == pytest.approx(sum(r.cost.total for r in entries(study, Receipt)))
    console = Console(width=200)
    with console.capture() as captured:
        console.print(status_report("s", study.ledger, None))
    assert "at 2.5 times the rate (1 worker)" in captured.get()
    one_price = run(tmp_path / "alike", "20 epochs", A9000=3.0)
    assert facts.summary("s", one_price.ledger, None)["cost_by_price"] == []


def test_a_price_names_a_resource_or_a_label_and_the_first_that_fits_counts(ray: FakeRay) -> None:
    assert {"A100", "CPU"} <= describe_node("expensive")
    assert {"spot", "market=spot"} <= describe_node("cheap")
    assert describe_node("unknown") == set()
    cluster = RayCluster(prices={"spot": 0.5, "market=spot": 0.4, "A100": 2.5})
    assert [cluster.price_of(describe_node(name)) for name in ("expensive", "cheap", "plain")] == [2.5, 0.5, 1.0]
    with pytest.raises(RunnerError, match="the price A100=0 must be a number above 0"):
        RayCluster(prices={"A100": 0})


def test_running_steps_are_reported_with_their_price() -> None:
    running = RunningSteps()
    running.begin(7, 10.0, 2.5)
    running.begin(8, 11.0)
    under_way = seconds_under_way(running, 12.0)
    assert under_way == {7: 2.0, 8: 1.0}
    assert {number: price_of(seconds) for number, seconds in under_way.items()} == {7: 2.5, 8: 1.0}
    assert seconds_under_way({7: 10.0}, 12.0) == {7: 2.0}


def test_the_next_driver_charges_running_steps_at_their_price() -> None:
    ledger = Ledger(
        [make_definition("$1 at 3.6/h"), Order(number=0, trial=0, config={"rate": 0.1, "kind": "good"}, until=2)]
    )
    ledger = ledger.append(*find_losses(ledger, {}, {0: PricedSeconds(2.0, 2.5)}))
    assert ledger.state.by_kind["lost"] == 2.0, "what `status` shows as lost"
    assert ledger.spent == pytest.approx(2.0 * 2.5 * RATE)
