"""What earlier studies predict for the configurations of this study: their scores, and the price of a step.

The ledger holds the rows of each earlier study (`core.ledger.notes.EarlierStudy`). A Gaussian process of these rows predicts the
score of any configuration here. It sees the same columns as the model of this study. A column of a parameter that the earlier
study did not have is the same everywhere, so it has no influence.

The models are made when they are first needed, because most studies have no earlier ones and need no SciPy for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from shoestring.core.ledger.notes import EarlierStudy
from shoestring.core.values.arrays import Floats
from shoestring.policy import Encoding, Entry, Note, Space, StudyDefinition, Why

if TYPE_CHECKING:
    from shoestring.models.earlier_scores import InformedGP
    from shoestring.models.gp.posterior import GP


@dataclass(slots=True, eq=False)
class EarlierStudies:
    """The earlier studies of a ledger, with their models."""

    space: Space
    studies: list[EarlierStudy] = field(default_factory=list)
    _models: list[EarlierModel] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.studies)

    @property
    def models(self) -> list[EarlierModel]:
        """The models of the studies."""
        if len(self._models) < len(self.studies):
            encoding = Encoding(self.space)
            self._models += [EarlierModel.of(encoding, facts) for facts in self.studies[len(self._models) :]]
        return self._models

    @property
    def step_s(self) -> float | None:
        """The mean seconds of a step in the earlier studies; None if they are not known."""
        means = [float(np.mean(facts.step_s)) for facts in self.studies if facts.step_s]
        return float(np.mean(means)) if means else None

    def predict_scores(self, features: Floats) -> Floats:
        """Return the score that each earlier study predicts, (m, J), for features, (m, columns)."""
        return np.column_stack([one.scores.predict_mean(one.fill(features)) for one in self.models])

    def expect(self, features: Floats, scores: Floats) -> EarlierExpectation:
        """Return what the earlier studies let us expect, weighted by the scores, (n,), of features, (n, columns)."""
        from shoestring.models.earlier_scores import weigh_earlier_studies

        return EarlierExpectation(self, weigh_earlier_studies(scores, self.predict_scores(features)))

    def predict_log_price(self, features: Floats) -> Floats | None:
        """Return the mean of the predicted log seconds of a step, (m,); None if no earlier study knows them."""
        known = [one.prices.predict_mean(one.fill(features)) for one in self.models if one.prices is not None]
        return np.asarray(np.mean(known, axis=0)) if known else None


@dataclass(frozen=True, slots=True, eq=False)
class EarlierExpectation:
    """The scores that earlier studies let us expect."""

    earlier: EarlierStudies
    weights: Floats  # (J,)

    @property
    def trust(self) -> float:
        """How much the earlier studies are believed, compared with the start of the study: 0 to 1."""
        from shoestring.models.earlier_scores import PRIOR_WEIGHT

        return min(1.0, float(self.weights.sum()) / PRIOR_WEIGHT)

    def describe(self) -> str:
        """Return the names of the earlier studies with their weights, for `why`."""
        names = (facts.name for facts in self.earlier.studies)
        return ", ".join(f"{name} (weight {weight:.2g})" for name, weight in zip(names, self.weights, strict=True))

    def mean(self, x: Floats) -> Floats:
        """Return the expected scores, (m,), for features x, (m, columns)."""
        return np.asarray(self.earlier.predict_scores(x) @ self.weights)

    def mean_with_gradient(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the expected scores, (m,), and their derivatives with respect to x, (m, columns)."""
        gradient = np.zeros_like(x)
        for weight, one in zip(self.weights, self.earlier.models, strict=True):
            gradient += weight * np.where(np.isnan(one.unknown), one.scores.predict_with_gradient(one.fill(x))[2], 0.0)
        return self.mean(x), gradient


@dataclass(frozen=True, slots=True)
class EarlierStudiesView:
    """View of the earlier studies of a ledger."""

    def start(self, definition: StudyDefinition) -> EarlierStudies:
        return EarlierStudies(definition.space)

    def absorb(self, state: EarlierStudies, entry: Entry) -> EarlierStudies:
        if isinstance(entry, Note) and entry.topic == EarlierStudy.topic:
            state.studies.append(EarlierStudy.from_note(entry))
        return state


EARLIER_STUDIES = EarlierStudiesView()


@dataclass(frozen=True, slots=True, eq=False)
class EarlierModel:
    """The models of one earlier study, with the parameters that were fitted when it was read."""

    unknown: Floats  # (columns,): the value of the columns of parameters that it did not have; NaN in the other columns
    scores: GP
    prices: GP | None  # of the log seconds of a step

    @classmethod
    def of(cls, encoding: Encoding, facts: EarlierStudy) -> EarlierModel:
        """Return the models of an earlier study."""
        from shoestring.models.gp.kernels import kernel_for
        from shoestring.models.gp.posterior import condition

        x, unknown = encode_rows(encoding, facts)
        kernel = kernel_for(encoding)
        scores = condition(kernel, np.array(facts.score_fit), x, np.array(facts.scores))
        prices = condition(kernel, np.array(facts.price_fit), x, np.log(facts.step_s)) if facts.step_s else None
        return cls(unknown, scores, prices)

    def fill(self, features: Floats) -> Floats:
        """Return features, (m, columns), with the columns that the earlier study did not have set to one value."""
        return np.where(np.isnan(self.unknown), features, self.unknown)


def describe_earlier(gp: GP | InformedGP) -> Why:
    """Return which earlier studies a prediction is made from; nothing if it is made from this study alone."""
    expected = getattr(gp, "expected", None)
    return {"learned_from": expected.describe()} if isinstance(expected, EarlierExpectation) else {}


def encode_rows(encoding: Encoding, facts: EarlierStudy) -> tuple[Floats, Floats]:
    """Return the features of the rows, (n, columns), and the value of each column that the study did not have, else NaN."""
    absent = encoding.features_elsewhere({}, encoding.space.parameters)
    unknown = np.where(np.isnan(encoding.features_elsewhere({}, facts.parameters)), absent, np.nan)
    rows = [encoding.features_elsewhere(config, facts.parameters) for config in facts.configs]
    return np.where(np.isnan(unknown), np.array(rows), unknown), unknown


def fit_earlier_study(space: Space, facts: EarlierStudy) -> EarlierStudy:
    """Return the earlier study with the fitted parameters of its models."""
    from shoestring.models.gp.fit import fit_gp
    from shoestring.models.gp.kernels import kernel_for

    encoding = Encoding(space)
    x, _ = encode_rows(encoding, facts)
    kernel = kernel_for(encoding)

    def fit(y: Floats) -> list[float]:
        return [float(number) for number in fit_gp(kernel, x, y).theta]

    price_fit = fit(np.log(facts.step_s)) if facts.step_s else []
    return replace(facts, score_fit=fit(np.array(facts.scores)), price_fit=price_fit)
