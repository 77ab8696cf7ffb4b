"""The whole pipeline with a tiny network on a CPU: tasks, training, export, inference in NumPy. Needs PyTorch."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[3]))

from training import picture
from training.calibrate import calibrate, place, rank_correlation
from training.export import export, write_golden
from training.pack import pack
from training.prior import Draw, draw_tasks
from training.record import record
from training.studies import Tables, answer, batch, vary_columns
from training.train import Settings, train

from shoestring.models.thrift.features import Arms, Scale
from shoestring.models.thrift.lowest_losses import predict_lowest_losses
from shoestring.models.thrift.network import read
from shoestring.models.thrift.shapes import BINS, HIGH, LOW

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
TINY = Settings(steps=3, seconds=600.0, studies=6, arms=12, width=8, layers=1, heads=2)


def test_synthetic_tasks_are_finite_and_arms_differ() -> None:
    torch.manual_seed(0)
    losses, x = draw_tasks(12, 16, CPU)
    assert torch.isfinite(losses).all()
    assert (losses.std(1) > 0).any(1).all()
    assert ((x >= -1) & (x <= 1)).all()


def test_a_half_finished_study_is_within_its_budget(tmp_path: Path) -> None:
    pack(tmp_path / "t.npz", [ROOT / "benchmarks" / "data"])
    torch.manual_seed(0)
    tables = Tables([tmp_path / "t.npz"], ["stopping_curves"], CPU)
    assert tables.sources == ["stopping_curves"]
    s = batch(tables, 16, 24, 0.5, CPU)
    assert (s.n <= s.steps[:, None]).all()
    assert (s.n + s.reach <= s.steps[:, None]).all()
    assert (s.reach * s.price <= s.left[:, None] * (1 + 1e-4)).all()
    assert ((s.n > 0) & s.valid).any(1).all()
    lowest, has_value = answer(s)
    assert (lowest[has_value] < 1e29).all()


def test_with_many_columns_sixteen_are_used() -> None:
    torch.manual_seed(0)
    studies, columns = 200, 24
    x = torch.arange(columns)[None, None].expand(studies, 3, -1) / (2 * columns)  # the value of a column identifies it
    columns_used = vary_columns(Draw(studies, CPU), x)[:, 0]
    ranks = [
        row[row >= 0] for row in torch.where(columns_used > 0.5, 1 - columns_used, columns_used).round(decimals=4)
    ]  # mirrored or not
    assert max(len(row) for row in ranks) == 16
    assert all(row.unique().numel() == len(row) for row in ranks)


def test_an_interrupted_training_continues(tmp_path: Path) -> None:
    part = tmp_path / "all-0.part"
    network = train([], tmp_path / "whole.pt", TINY, CPU)
    state = {"network": network.state_dict(), "average": network.state_dict(), "done": 2, "seconds": 1.0}
    optimizer = torch.optim.AdamW(network.parameters())
    torch.save({**state, "optimizer": optimizer.state_dict()}, part)
    train([], tmp_path / "all-0.pt", TINY, CPU)
    facts = torch.load(tmp_path / "all-0.pt", weights_only=True)["facts"]
    assert '"done": 3' in facts
    assert not part.exists()


def test_training_without_synthetic_tasks_needs_recorded_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(tmp_path / "t.npz", [ROOT / "benchmarks" / "data"])
    monkeypatch.delattr("training.studies.draw_tasks")
    train([tmp_path / "t.npz"], tmp_path / "all-0.pt", replace(TINY, synthetic=0.0), CPU)
    with pytest.raises(SystemExit, match="nothing to train on"):
        train([], tmp_path / "all-1.pt", replace(TINY, synthetic=0.0), CPU)


def test_training_without_recorded_tables_uses_synthetic_tasks(tmp_path: Path) -> None:
    missing = tmp_path / "not_there.npz"
    train([missing], tmp_path / "all-0.pt", replace(TINY, synthetic=1.0), CPU)
    assert export([tmp_path / "all-0.pt"], tmp_path / "w.npz")["trained_on"] == []


def test_inference_in_numpy_equals_the_trained_network(tmp_path: Path) -> None:
    train([], tmp_path / "all-0.pt", TINY, CPU)
    header = export([tmp_path / "all-0.pt"], tmp_path / "w.npz")
    assert "hpo_rl_bench" not in header["trained_on"]
    write_golden(tmp_path / "all-0.pt", tmp_path / "golden.npz", studies=1, arms=8)
    with np.load(tmp_path / "golden.npz") as g:
        v = g["valid"][0]
        floats = {name: g[name][0][v].astype(float) for name in ("losses", "price", "x")}
        arms = Arms(
            n=g["n"][0][v], reach=g["reach"][0][v], left=float(g["left"][0]), steps=int(g["steps"][0]), **floats
        )
        expected = g["chances"][0][v]
    np.testing.assert_allclose(predict_lowest_losses(read(tmp_path / "w.npz"), arms).chances, expected, atol=1e-3)


def test_calibration_by_source_from_the_exported_file(tmp_path: Path) -> None:
    pack(tmp_path / "t.npz", [ROOT / "benchmarks" / "data"])
    settings = replace(TINY, fold="a")
    train([tmp_path / "t.npz", *_empty(tmp_path)], tmp_path / "a-0.pt", settings, CPU)
    export([tmp_path / "a-0.pt"], tmp_path / "a-0.npz")
    rows = list(calibrate(tmp_path / "a-0.npz", [tmp_path / "t.npz"], studies=4))
    assert {row["source"] for row in rows} == {"fashion_curves", "rl_curves", "stopping_curves"}
    assert all(0 <= row["inside_90"] <= 1 for row in rows)
    assert all(row["studies"] == 4 < row["arms"] for row in rows)
    drawn = picture.read([json.dumps(row) for row in rows])
    assert f"| rl_curves | {drawn['rl_curves']['inside_50']:.2f}".replace("0.", ".") in picture.table(drawn)


def test_intervals_cover_their_share_of_outcomes() -> None:
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.full(BINS, 0.3), size=4000)
    bins = np.array([rng.choice(BINS, p=row) for row in chances])
    scale = Scale(best=2.0, unit=0.5)
    u = LOW + (bins + rng.random(len(bins))) * (HIGH - LOW) / BINS
    reached = scale.best + scale.from_u(u) * scale.unit
    _, below = place(scale, chances, reached, rng)
    assert (np.abs(below - 0.5) < 0.45).mean() == pytest.approx(0.9, abs=0.02)
    overconfident = chances**2 / (chances**2).sum(axis=1, keepdims=True)
    _, below = place(scale, overconfident, reached, rng)
    assert (np.abs(below - 0.5) < 0.45).mean() < 0.85


def _empty(folder: Path) -> list[Path]:
    """Fold a leaves out all our older curves; without others there would be no table to draw."""
    source = folder / "small_trainings"
    record(source, 1, CPU, seed=3)
    pack(folder / "small.npz", [folder])
    return [folder / "small.npz"]


@pytest.fixture(autouse=True)
def _small_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.stacked.CONFIGS", 5)
    monkeypatch.setattr("training.stacked.REPORTS", 8)


def test_rank_correlation_of_orders_and_ties() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(a, a**3) == pytest.approx(1.0)
    assert rank_correlation(a, -a) == pytest.approx(-1.0)
    assert rank_correlation(a, np.array([1.0, 1.0, 2.0, 2.0])) == pytest.approx(2 / np.sqrt(5))
    assert rank_correlation(a, np.ones(4)) == 0.0
