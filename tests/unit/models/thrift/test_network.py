"""The network in NumPy says what PyTorch said: `tests/golden/data/thrift.npz`, written by `training/export.py`."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pytest

from shoestring.errors import StudyError
from shoestring.models.thrift import belief as belief_module
from shoestring.models.thrift.belief import believe
from shoestring.models.thrift.features import Arms, features, scale_of
from shoestring.models.thrift.network import in_single_precision, probabilities, read, shipped

GOLDEN = Path(__file__).parents[3] / "golden" / "data" / "thrift.npz"


def golden_studies() -> list[tuple[Arms, np.ndarray, np.ndarray]]:
    """Half-finished studies with their features and the chances that PyTorch gave."""
    with np.load(GOLDEN) as stored:
        told = dict(stored)
    studies = []
    for i, valid in enumerate(told["valid"]):
        one = {name: told[name][i][valid] for name in ("losses", "n", "reach", "price", "x")}
        floats = {name: one[name].astype(float) for name in ("losses", "price", "x")}
        arms = Arms(**{**one, **floats}, left=float(told["left"][i]), steps=int(told["steps"][i]))
        studies.append((arms, told["features"][i][valid], told["chances"][i][valid]))
    return studies


@pytest.mark.parametrize(("arms", "wanted_features", "wanted_chances"), golden_studies())
def test_numpy_and_pytorch_agree(arms: Arms, wanted_features: np.ndarray, wanted_chances: np.ndarray) -> None:
    np.testing.assert_allclose(features(arms, scale_of(arms)), wanted_features, atol=1e-5)
    np.testing.assert_allclose(believe(read(GOLDEN), arms).chances, wanted_chances, atol=1e-3)


def test_several_networks_are_averaged() -> None:
    arms, f, chances = golden_studies()[0]
    trained = np.flatnonzero(arms.is_opened)
    one = read(GOLDEN)
    np.testing.assert_allclose(probabilities(one * 2, f, trained), chances, atol=1e-3)


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    with np.load(GOLDEN) as stored:
        flat, facts = stored["weights"].copy(), str(stored["facts"])
    flat[0, 17] += 1
    np.savez(tmp_path / "damaged.npz", weights=flat, facts=facts)
    with pytest.raises(StudyError, match="do not match their checksum: install shoestring anew"):
        read(tmp_path / "damaged.npz")


def test_a_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    with np.load(GOLDEN) as stored:
        flat, facts = stored["weights"], str(stored["facts"])
    np.savez(tmp_path / "other.npz", weights=flat, facts=facts.replace('"layers": 2', '"layers": 1'))
    with pytest.raises(StudyError, match="a network of this shape"):
        read(tmp_path / "other.npz")


def test_the_shipped_weights_are_small_and_whole() -> None:
    with as_file(files("shoestring.models.thrift").joinpath("weights.npz")) as path:
        assert path.stat().st_size <= 4 * 2**20
    assert shipped() is shipped()  # read once
    arms, _, _ = golden_studies()[0]
    chances = believe(shipped(), arms).chances
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_a_belief_in_words() -> None:
    arms, _, _ = golden_studies()[0]
    belief = believe(read(GOLDEN), arms)
    assert (belief.gain >= 0).all()
    assert ((belief.chance_better >= 0) & (belief.chance_better <= 1)).all()
    assert (belief.quantile(0.05) <= belief.middle).all()
    assert (belief.middle <= belief.quantile(0.95)).all()


def test_of_many_arms_those_trained_furthest_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time grows with the arms that answer; the others still ask."""
    arms, _, _ = golden_studies()[0]
    whole = believe(read(GOLDEN), arms)
    monkeypatch.setattr(belief_module, "MOST_ANSWERS", 2)
    answering = belief_module._answering(arms)
    assert len(answering) == 2
    assert arms.n[answering].min() >= np.sort(arms.n)[-2]
    assert not np.allclose(believe(read(GOLDEN), arms).chances, whole.chances)


def test_single_precision_says_the_same_up_to_its_digits() -> None:
    plain = read(GOLDEN)
    short = in_single_precision(plain)
    assert {one.enter[0].dtype for one in short} == {np.dtype(np.float32)}
    assert {one.layers[0].kv[1].dtype for one in short} == {np.dtype(np.float32)}
    assert in_single_precision(plain) is short  # made once
    arms, _, _ = golden_studies()[0]
    np.testing.assert_allclose(believe(short, arms).gain, believe(plain, arms).gain, rtol=1e-4)
