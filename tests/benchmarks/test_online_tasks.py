"""The networks of the online benchmarks on a few made-up images: augmentations, losses, what each step moves, whole runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
FOLDER = Path(__file__).parents[2] / "benchmarks" / "online"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Write images of two classes, bright on the left or on the right."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for name, n in (("train", 10_120), ("test", 60)):
        y = rng.integers(0, 2, n)
        x = rng.integers(0, 60, (n, 28, 28))
        x[:, :, :14] += np.where(y, 150, 0)[:, None, None]
        arrays |= {f"x_{name}": x.astype(np.uint8), f"y_{name}": y.astype(np.uint8)}
    np.savez(tmp_path / "images.npz", **arrays)
    return tmp_path / "images.npz"


def test_each_augmentation_changes_images_in_its_own_way(scripts: Any) -> None:
    aug = scripts.augmentations
    x, generator = torch.rand(64, 1, 14, 14), torch.Generator().manual_seed(0)

    def only(*names: str) -> Any:
        chances = torch.tensor([float(name in names) for name in aug.NAMES])
        return aug.augment(x, chances, generator)

    assert torch.allclose(only(), x, atol=1e-5)
    assert torch.allclose(only("flip_horizontal"), x.flip(3), atol=1e-5)
    assert torch.allclose(only("flip_vertical"), x.flip(2), atol=1e-5)
    assert torch.allclose(only("inversion"), 1 - x, atol=1e-5)
    cut = (only("cutout") == 0.0).float().mean(dim=(1, 2, 3))
    assert 0.02 < cut.mean() < 0.25
    for name in ("crop", "rotation", "tone", "blur"):
        assert (only(name) - x).abs().amax(dim=(1, 2, 3)).min() > 1e-3
    half = aug.augment(x, torch.full((8,), 0.5), generator)
    assert half.shape == x.shape
    assert half.min() >= -1e-5
    assert half.max() <= 1 + 1e-5


def test_the_contrastive_loss_equals_the_one_computed_by_hand(scripts: Any) -> None:
    networks = scripts.networks
    z = torch.nn.functional.normalize(torch.randn(6, 4, dtype=torch.float64), dim=1).float()
    rows = []
    for i in range(6):
        likeness = torch.exp(z @ z[i] / networks.TEMPERATURE)
        rows.append(-torch.log(likeness[(i + 3) % 6] / (likeness.sum() - likeness[i])))
    assert networks.contrastive_loss(3.0 * z).item() == pytest.approx(torch.stack(rows).mean().item(), rel=1e-5)


def test_read_outs_learn_a_linear_boundary(scripts: Any) -> None:
    networks = scripts.networks
    torch.manual_seed(0)
    x = torch.randn(4000, 5)
    y = (x[:, 0] + 2 * x[:, 1] > 0).long()
    parts = x[:3000], y[:3000], x[3000:], y[3000:]
    assert networks.ridge_accuracy(*parts) > 0.93
    assert networks.logistic_accuracy(*parts, steps=50) > 0.93


def test_each_kind_of_step_changes_its_own_parameters(scripts: Any, images: Path) -> None:
    self_tuning = scripts.self_tuning
    plan = replace(scripts.few_images.QUICK, rounds=30, steps=1, batch=16, width=2, n_train=40, n_held_out=40)
    training = self_tuning.SelfTuning(scripts.fashion.load(images, "cpu", 14, 40, 40), plan, 0)
    model = training.model

    def state() -> tuple[list[Any], list[Any]]:
        trained, tuned = model.parts()
        return [p.detach().clone() for p in trained], [p.detach().clone() for p in tuned]

    def moved(before: list[Any], after: list[Any]) -> bool:
        return any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))

    start = state()
    training.round(None)
    trained = state()
    assert moved(start[0], trained[0])
    assert not moved(start[1], trained[1])
    training._tune()
    tuned = state()
    assert not moved(trained[0], tuned[0])
    assert moved(trained[1], tuned[1])
    assert model.training
    hyper = model.hyper.detach().expand(8, -1)
    assert torch.allclose(model.values(hyper)[0], torch.sigmoid(hyper[0]) * model.greatest)


def test_layers_respond_linearly_to_the_hyperparameters(scripts: Any) -> None:
    network = scripts.self_tuning_network
    layer = network.HyperLinear(3, 4)
    x, h = torch.randn(5, 3), torch.randn(5, 8)
    zero, one, two = (layer(x, scale * h) for scale in (0.0, 1.0, 2.0))
    assert torch.allclose(two - one, one - zero, atol=1e-5)
    plain = torch.nn.functional.linear(x, layer.both.weight[:4], layer.both.bias[:4])
    assert torch.allclose(zero, plain, atol=1e-6)


def test_normalisation_after_the_response_cancels_it(scripts: Any) -> None:
    network = scripts.self_tuning_network
    x = torch.randn(6, 3, 5, 5)
    for norm, shift in (("behind", False), ("before", False), ("before", True), ("behind", True)):
        ways = network.Ways(answer="scale+shift" if shift else "scale", norm=norm)
        layer = network.HyperConv(3, 4, ways)
        with torch.no_grad():
            layer.both.weight[4:] = layer.both.weight[:4]  # W' = W: a response scales
            layer.answer.weight.fill_(0.25)
            zero, one = layer(x, torch.zeros(6, 8)), layer(x, torch.ones(6, 8))  # 1 + 0 and 1 + 2 times the same
        if norm == "before" and not shift:
            assert torch.allclose(one, 3.0 * zero, atol=1e-4)
        assert torch.allclose(one, zero, atol=1e-3) == (norm == "behind")  # a shift of all images is cancelled, too


def test_the_initial_hyperparameters_can_be_set(scripts: Any) -> None:
    ways = scripts.self_tuning_network.Ways(dropout=0.6, distortion=0.3)
    model = scripts.self_tuning_network.SelfTuningVGG(2, ways)
    shares = model.values(model.hyper.detach()) / model.greatest
    assert torch.allclose(shares, torch.tensor([0.6] * 4 + [0.3] * 4))


def test_a_lead_over_the_trend_is_corrected(scripts: Any) -> None:
    plain, corrected = (scripts.contrastive.CorrectedLevel(share) for share in (0.0, 0.25))
    levels = [(1, 0.5), (2, 0.6), (4, 0.6), (12, 0.5)]
    assert [plain.correct(*one) for one in levels] == pytest.approx([0.5, 0.6, 0.6, 0.5])
    # a lead of 0.07 over the trend at round 2, then of 0.049; after eight rounds all of it is corrected
    expected = np.cumsum([0.5, 0.1, 0.0 + 0.5 * 0.07, -0.1 + 0.049])
    assert [corrected.correct(*one) for one in levels] == pytest.approx(expected.tolist())


def test_the_effects_of_a_factorial_are_those_put_in(scripts: Any) -> None:
    factorial = scripts.factorial
    signs = factorial.design()
    assert np.array_equal(signs.T @ signs, 16.0 * np.eye(7))
    pairs = [signs[:, i] * signs[:, j] for i in range(7) for j in range(i)]
    assert not np.any(signs.T @ np.column_stack(pairs))  # main effects are not mixed with pairs
    true = np.array([1.0, -2.0, 0.0, 0.5, 0.0, 0.0, 3.0])
    found, error = factorial.effects(7.0 + 0.5 * signs @ true)
    assert found == pytest.approx(true)
    assert error == pytest.approx(0.0, abs=1e-9)
    noise = np.random.default_rng(0).standard_normal((4000, 16))
    drawn = [factorial.effects(row) for row in noise]
    assert np.std([effect[0] for effect, _ in drawn]) == pytest.approx(0.5, rel=0.05)
    assert np.sqrt(np.mean([error[0] ** 2 for _, error in drawn])) == pytest.approx(0.5, rel=0.05)
    assert factorial.config(0) == factorial.HALF | {"crop": 0.6, "inversion": 0.0} | dict.fromkeys(
        factorial.FACTORS[1:4], 0.2
    ) | {name: 0.2 if sign < 0 else 0.8 for name, sign in zip(factorial.FACTORS[4:], signs[0, 4:], strict=True)}


@pytest.mark.parametrize(("rank", "sign", "ok"), [(1.0, 1.0, True), (-1.0, 1.0, False), (1.0, -1.0, False)])
def test_the_effects_of_one_round_and_of_the_end_must_agree(scripts: Any, rank: float, sign: float, ok: bool) -> None:
    final = np.array([-0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 2.0])
    once = rank * np.arange(7.0)
    if sign < 0:
        once = once - 10.0  # the ranks agree, and every sign is reversed
    verdict = scripts.factorial.judge({"final": (final, np.full(7, 0.5)), "round 3": (once, np.ones(7))})
    assert verdict["ok"] == ok
    assert verdict["measured"]["other_sign"] == (["cutout"] if once[-1] < 0 else [])


def test_a_branch_does_not_change_the_run(scripts: Any, images: Path) -> None:
    """A run ends with the same weights with and without branches."""
    contrastive, factorial = scripts.contrastive, scripts.factorial
    plan = replace(contrastive.QUICK, rounds=4, steps=1, batch=8, width=2, n_train=60, n_readout=40, n_held_out=40)
    data = scripts.fashion.load(images, "cpu", 14, 60, 40)

    def weights(branched: bool) -> list[Any]:
        run = contrastive.Pretraining(data, plan, 0)
        if branched:
            moments = factorial._branch(run, plan)
            assert [one["round"] for one in moments] == [1, 2, 3]
            assert all(len(one["gains"]) == 16 for one in moments)
        else:
            for _ in range(3):
                run.train_round(factorial.HALF)
        run.train_round(factorial.HALF)
        return [p.detach().clone() for p in run.encoder.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(weights(True), weights(False), strict=True))


def test_few_images_are_judged_by_the_closed_share_of_the_gap(scripts: Any, images: Path) -> None:
    few = scripts.few_images
    plan = replace(few.QUICK, rounds=3, steps=1, batch=8, width=2, n_train=40, n_held_out=40, watch=1)
    runs = [
        {"method": name, "seed": 0, "plan": {}, **few.run_one(name, 0, plan, images, "cpu")}
        for name in (few.WEAKEST, "fixed 0.6/0.3", "tuned, shift, norm before")
    ]
    assert runs[1]["hyper"][0] == runs[1]["hyper"][-1] == pytest.approx([0.48] * 4 + [0.15, 0.3, 0.3, 0.3], abs=1e-3)
    assert runs[2]["tuning_steps"] == 2  # none in the warm-up
    assert "fixed 0.6/0.3" in few.show(runs)
    for reached, ok in ((0.5, True), (0.9, False)):
        losses = {few.WEAKEST: 1.0, "fixed 0.6/0.3": 0.4, "tuned, shift, norm before": reached}
        verdict = few.judge([run | {"validation_loss": losses[run["method"]]} for run in runs])
        assert verdict["ok"] == ok
        assert verdict["measured"]["best_fixed"] == "fixed 0.6/0.3"
    flat = few.judge([run | {"validation_loss": 1.0} for run in runs])
    assert not flat["ok"]  # without a possible gain there is no evidence


@pytest.mark.parametrize("method", ["CE@0.8", "baseline"])
def test_a_contrastive_run_records_its_rounds(scripts: Any, images: Path, method: str) -> None:
    contrastive = scripts.contrastive
    plan = replace(
        contrastive.QUICK, rounds=4, steps=1, batch=8, width=2, n_train=60, n_readout=40, n_held_out=40, watch=2
    )
    run = contrastive.run_one(method, 0, plan, images, "cpu")
    assert (run["passes"] > 0) == (method != "baseline")
    assert run["passes"] == len(run["validated"])
    assert len(run["configs"]) == 4
    assert run["configs"][0] == [0.5] * 8
    assert [round for round, _ in run["watched"]] == [2, 4]
    assert 0.0 <= run["test"] <= 1.0


def test_the_decisions_of_a_recorded_run_can_be_repeated(scripts: Any, images: Path) -> None:
    """Pr(better) is not recorded: it is computed again, and a decision that differs from the record is an error."""
    contrastive = scripts.contrastive
    plan = replace(contrastive.QUICK, rounds=6, steps=1, batch=8, width=2, n_train=60, n_readout=40, n_held_out=40)
    plan = replace(plan, without=("inversion",), lengthscale=1.2, correction=0.25)
    run = {"method": "CE@0.8", "seed": 0, "plan": asdict(plan)} | contrastive.run_one("CE@0.8", 0, plan, images, "cpu")
    sure = contrastive.recompute_confidence(json.loads(json.dumps(run)))
    assert len(sure) == 6
    assert sure[0] is None  # the first round is given
    validated = {round for round, _ in run["validated"]}
    assert any(one is not None for one in sure)
    assert all(one is None or (one < 0.8) == (round in validated) for round, one in enumerate(sure, start=1))
    run["configs"][3] = [0.123] * 8
    with pytest.raises(SystemExit, match="round 4"):
        contrastive.recompute_confidence(run)
    table = scripts.factorial.show_confidence([{**run, "method": "baseline"}])
    assert table.count("\n") == 1  # the head only: only CE decides whether to validate


@pytest.mark.parametrize("method", ["CE@0.8", "UCB1, Ber(0.2)", "1:1 > 2:1"])
def test_a_self_tuning_run_records_its_rounds(scripts: Any, images: Path, method: str) -> None:
    self_tuning = scripts.self_tuning
    plan = replace(scripts.few_images.QUICK, rounds=9, steps=2, batch=8, width=2, n_train=40, n_held_out=40, watch=3)
    run = self_tuning.run_one(method, 0, plan, images, "cpu")
    assert len(run["arms"]) == 9
    assert run["arms"][0] == "."  # the warm-up
    assert run["passes"] == sum(arm in ":T" for arm in run["arms"])
    assert len(run["watched"]) == len(run["hyper"]) == 3
    if method == "1:1 > 2:1":
        assert run["arms"] == ".tttttttt"
    assert np.isfinite(run["test_loss"])


def test_the_page_has_the_tables_of_grid_and_factorial(scripts: Any) -> None:
    page = (FOLDER / "README.md").read_text()
    stored = {
        task: [json.loads(line) for line in (FOLDER / "results" / f"{task}.jsonl").read_text().splitlines()]
        for task in ("few_images", "factorial")
    }
    few, factorial = scripts.few_images, scripts.factorial
    assert few.show(stored["few_images"]) in page
    assert factorial.show(factorial.measure(stored["factorial"])) in page
    verdict = few.judge(stored["few_images"])
    assert verdict["ok"]
    for name, closed in verdict["measured"]["closed"].items():
        assert f"{closed:.0%} ({name})" in page


def test_stored_runs_have_the_present_plan(scripts: Any) -> None:
    """An interrupted race can continue from stored results only if their plan is the present one."""

    def plan_of(task: str) -> list[dict[str, Any]]:
        lines = (FOLDER / "results" / f"{task}.jsonl").read_text().splitlines()
        return [json.loads(line)["plan"] for line in lines]

    few, contrastive, factorial = scripts.few_images, scripts.contrastive, scripts.factorial
    raced = few.Plan(ways=few.BUILDS["tuned, shift, norm before"])
    assert all(plan == asdict(raced) for plan in plan_of("few_images_race"))
    anew = replace(contrastive.Plan(), **factorial.RACE_PLAN)
    assert all(plan == json.loads(json.dumps(asdict(anew))) for plan in plan_of("factorial_race"))
