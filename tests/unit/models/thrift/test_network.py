"""The network in NumPy agrees with PyTorch: `tests/golden/data/thrift.npz`, written by `training/export.py`."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pytest

from shoestring.errors import StudyError
from shoestring.models.thrift import lowest_losses
from shoestring.models.thrift.features import Arms, features, scale_of
from shoestring.models.thrift.lowest_losses import predict_lowest_losses
from shoestring.models.thrift.network import load_shipped_networks, probabilities, read, to_single_precision

GOLDEN = Path(__file__).parents[3] / "golden" / "data" / "thrift.npz"


def golden_studies() -> list[tuple[Arms, np.ndarray, np.ndarray]]:
    """Return half-finished studies with their features and the probabilities from PyTorch."""
    with np.load(GOLDEN) as stored:
        arrays = dict(stored)
    studies = []
    for i, valid in enumerate(arrays["valid"]):
        one = {name: arrays[name][i][valid] for name in ("losses", "n", "reach", "price", "x")}
        floats = {name: one[name].astype(float) for name in ("losses", "price", "x")}
        arms = Arms(**{**one, **floats}, left=float(arrays["left"][i]), steps=int(arrays["steps"][i]))
        studies.append((arms, arrays["features"][i][valid], arrays["chances"][i][valid]))
    return studies


@pytest.mark.parametrize(("arms", "wanted_features", "wanted_chances"), golden_studies())
def test_numpy_and_pytorch_agree(arms: Arms, wanted_features: np.ndarray, wanted_chances: np.ndarray) -> None:
    np.testing.assert_allclose(features(arms, scale_of(arms)), wanted_features, atol=1e-5)
    np.testing.assert_allclose(predict_lowest_losses(read(GOLDEN), arms).chances, wanted_chances, atol=1e-3)


def test_several_networks_are_averaged() -> None:
    arms, f, chances = golden_studies()[0]
    trained = np.flatnonzero(arms.is_started)
    one = read(GOLDEN)
    np.testing.assert_allclose(probabilities(one * 2, f, trained), chances, atol=1e-3)


def test_damaged_weights_are_errors(tmp_path: Path) -> None:
    with np.load(GOLDEN) as stored:
        flat, facts = stored["weights"].copy(), str(stored["facts"])
    flat[0, 17] += 1
    np.savez(tmp_path / "damaged.npz", weights=flat, facts=facts)
    with pytest.raises(StudyError, match="do not match their checksum: reinstall shoestring"):
        read(tmp_path / "damaged.npz")


def test_a_file_of_another_shape_is_an_error(tmp_path: Path) -> None:
    with np.load(GOLDEN) as stored:
        flat, facts = stored["weights"], str(stored["facts"])
    np.savez(tmp_path / "other.npz", weights=flat, facts=facts.replace('"layers": 2', '"layers": 1'))
    with pytest.raises(StudyError, match="a network of this shape"):
        read(tmp_path / "other.npz")


def test_the_shipped_weights_are_small_and_whole() -> None:
    with as_file(files("shoestring.models.thrift").joinpath("weights.npz")) as path:
        assert path.stat().st_size <= 4 * 2**20
    assert load_shipped_networks() is load_shipped_networks()  # read once
    arms, _, _ = golden_studies()[0]
    chances = predict_lowest_losses(load_shipped_networks(), arms).chances
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_the_quantities_of_a_prediction() -> None:
    arms, _, _ = golden_studies()[0]
    lowest = predict_lowest_losses(read(GOLDEN), arms)
    assert (lowest.gain >= 0).all()
    assert ((lowest.chance_better >= 0) & (lowest.chance_better <= 1)).all()
    assert (lowest.quantile(0.05) <= lowest.median).all()
    assert (lowest.median <= lowest.quantile(0.95)).all()


def test_with_many_arms_those_trained_furthest_are_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time grows with the arms in the context; all others still attend to them."""
    arms, _, _ = golden_studies()[0]
    whole = predict_lowest_losses(read(GOLDEN), arms)
    monkeypatch.setattr(lowest_losses, "MAX_CONTEXT_ARMS", 2)
    context = lowest_losses._choose_context(arms)
    assert len(context) == 2
    assert arms.n[context].min() >= np.sort(arms.n)[-2]
    assert not np.allclose(predict_lowest_losses(read(GOLDEN), arms).chances, whole.chances)


def test_single_precision_agrees_up_to_its_digits() -> None:
    plain = read(GOLDEN)
    short = to_single_precision(plain)
    assert {one.enter[0].dtype for one in short} == {np.dtype(np.float32)}
    assert {one.layers[0].kv[1].dtype for one in short} == {np.dtype(np.float32)}
    assert to_single_precision(plain) is short  # made once
    arms, _, _ = golden_studies()[0]
    np.testing.assert_allclose(
        predict_lowest_losses(short, arms).gain, predict_lowest_losses(plain, arms).gain, rtol=1e-4
    )
