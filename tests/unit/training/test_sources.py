"""Which curves may be trained on: weights are derived from them, so their licences decide."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))  # `training` is no part of the package

from training import sources
from training.pack import find_tables, losses_of, pack, prices_of, ranks_of

from shoestring.runners.simulated.recorded_table import Table

ROOT = Path(__file__).parents[3]


def test_sources_for_judging_only_are_not_trained_on() -> None:
    for fold in sources.FOLDS:
        assert not set(sources.trained_on(fold)) & set(sources.JUDGED_ONLY)
        assert not set(sources.trained_on(fold)) & set(sources.judged_on(fold))


def test_every_source_is_judged_by_weights_that_were_not_trained_on_it() -> None:
    for source in (*sources.TRAINABLE, *sources.JUDGED_ONLY):
        if source != "small_trainings":
            assert source in sources.judged_on(sources.fold_of(source))


def test_the_shipped_weights_list_their_training_sources() -> None:
    with np.load(ROOT / "src" / "shoestring" / "models" / "thrift" / "weights.npz") as stored:
        facts = json.loads(str(stored["facts"]))
    assert facts["fold"] == "all"
    assert set(facts["trained_on"]) == set(sources.TRAINABLE)


def test_only_permitted_sources_are_packed(tmp_path: Path) -> None:
    for source in ("rl_curves", "hpo_rl_bench"):
        (tmp_path / source).mkdir()
        (tmp_path / source / "one.npz").write_bytes(b"")
    assert [source for source, _ in find_tables([tmp_path], tuple(sources.TRAINABLE))] == ["rl_curves"]


def test_a_packed_table_has_losses_ranks_and_prices(tmp_path: Path) -> None:
    table = Table.load(ROOT / "benchmarks" / "data" / "fashion_curves" / "resnet.npz", max_steps=50)
    losses = losses_of(table)
    assert np.isfinite(losses).all()
    assert losses.max() <= np.quantile(table.values[:, 0], 0.95) < table.values.max()
    ranks = ranks_of(table)
    assert (ranks >= 0).sum(axis=1).tolist() == [6] * len(ranks)  # five hyperparameters, none inactive, and `run`
    assert np.median(prices_of(table)) == pytest.approx(1.0)
    meta = pack(tmp_path / "packed.npz", [ROOT / "benchmarks" / "data"], ("fashion_curves",))
    with np.load(tmp_path / "packed.npz") as packed:
        assert len(packed["Y"]) == sum(int(str(one["n"])) for one in meta)
