"""The networks of the online benchmarks on a few made-up images: augmentations, losses, what each step moves, whole runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
FOLDER = Path(__file__).parents[2] / "benchmarks" / "online"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two sorts of images, bright on the left or on the right."""
    rng = np.random.default_rng(0)
    told: dict[str, Any] = {}
    for name, n in (("train", 10_120), ("test", 60)):
        y = rng.integers(0, 2, n)
        x = rng.integers(0, 60, (n, 28, 28))
        x[:, :, :14] += np.where(y, 150, 0)[:, None, None]
        told |= {f"x_{name}": x.astype(np.uint8), f"y_{name}": y.astype(np.uint8)}
    np.savez(tmp_path / "images.npz", **told)
    return tmp_path / "images.npz"


def test_augmentations(scripts: Any) -> None:
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


def test_contrastive_loss_by_hand(scripts: Any) -> None:
    networks = scripts.networks
    z = torch.nn.functional.normalize(torch.randn(6, 4, dtype=torch.float64), dim=1).float()
    rows = []
    for i in range(6):
        likeness = torch.exp(z @ z[i] / networks.TEMPERATURE)
        rows.append(-torch.log(likeness[(i + 3) % 6] / (likeness.sum() - likeness[i])))
    assert networks.contrastive_loss(3.0 * z).item() == pytest.approx(torch.stack(rows).mean().item(), rel=1e-5)


def test_read_outs_find_what_is_linear(scripts: Any) -> None:
    networks = scripts.networks
    x = torch.randn(400, 5)
    y = (x[:, 0] + 2 * x[:, 1] > 0).long()
    told = x[:300], y[:300], x[300:], y[300:]
    assert networks.ridge_accuracy(*told) > 0.93
    assert networks.logistic_accuracy(*told, steps=50) > 0.93


def test_each_step_moves_its_own_part(scripts: Any, images: Path) -> None:
    self_tuning = scripts.self_tuning
    plan = replace(self_tuning.QUICK, rounds=30, steps=1, batch=16, width=2, n_train=40, n_held_out=40)
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


def test_layers_answer_linearly(scripts: Any) -> None:
    network = scripts.self_tuning_network
    layer = network.HyperLinear(3, 4)
    x, h = torch.randn(5, 3), torch.randn(5, 8)
    zero, one, two = (layer(x, scale * h) for scale in (0.0, 1.0, 2.0))
    assert torch.allclose(two - one, one - zero, atol=1e-5)
    plain = torch.nn.functional.linear(x, layer.both.weight[:4], layer.both.bias[:4])
    assert torch.allclose(zero, plain, atol=1e-6)


@pytest.mark.parametrize("method", ["CE@0.8", "baseline"])
def test_a_contrastive_run(scripts: Any, images: Path, method: str) -> None:
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


@pytest.mark.parametrize("method", ["CE@0.8", "UCB1, Ber(0.2)", "1:1 > 2:1"])
def test_a_self_tuning_run(scripts: Any, images: Path, method: str) -> None:
    self_tuning = scripts.self_tuning
    plan = replace(self_tuning.QUICK, rounds=9, steps=2, batch=8, width=2, n_train=40, n_held_out=40, watch=3)
    run = self_tuning.run_one(method, 0, plan, images, "cpu")
    assert len(run["arms"]) == 9
    assert run["arms"][0] == "."  # the warm-up
    assert run["passes"] == sum(arm in ":T" for arm in run["arms"])
    assert len(run["watched"]) == len(run["hyper"]) == 3
    if method == "1:1 > 2:1":
        assert run["arms"] == ".tttttttt"
    assert np.isfinite(run["test_loss"])
