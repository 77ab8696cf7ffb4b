"""What earlier studies predict for the configurations of this study: their scores, and the price of a step.

The ledger holds the rows of each earlier study (`core.ledger.notes.EarlierStudy`). A Gaussian process of these rows predicts the
score of any configuration here. It sees the same columns as the model of this study. A column of a parameter that the earlier
study did not have is the same everywhere, so it has no influence.

The models are made when they are first needed, because most studies have no earlier ones and need no SciPy for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from shoestring.core.ledger.notes import EarlierStudy
from shoestring.core.values.arrays import Floats
from shoestring.policy import Encoding, Entry, Note, Space, StudyDefinition, Why

if TYPE_CHECKING:
    from shoestring.models.earlier_scores import InformedGP
    from shoestring.models.gp.posterior import GP

_MAX_FITTED = 100  # rows that the parameters of a model are fitted to, at even distances from best to worst


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

    def expect_scores(self, features: Floats, scores: Floats) -> EarlierExpectation:
        """Return the scores that the earlier studies let us expect, given the scores, (n,), of features, (n, columns)."""
        names = [facts.name for facts in self.studies]
        return EarlierExpectation.of(names, [one.scores for one in self.models], features, scores)

    def expect_log_price(self, features: Floats, log_price: Floats) -> EarlierExpectation | None:
        """Return the log seconds of a step that the earlier studies let us expect, given those, (n,), of features, (n, columns).

        None if no earlier study knows them.
        """
        known = [(facts.name, one.prices) for facts, one in zip(self.studies, self.models, strict=True) if one.prices]
        names, predictors = [name for name, _ in known], [prices for _, prices in known]
        return EarlierExpectation.of(names, predictors, features, log_price) if known else None


@dataclass(frozen=True, slots=True, eq=False)
class EarlierExpectation:
    """What earlier studies let us expect: their predictions, each with the weight that it has earned."""

    names: Sequence[str]  # of the studies
    predictors: Sequence[Predictor]
    weights: Floats  # (J,)

    @classmethod
    def of(cls, names: Sequence[str], predictors: Sequence[Predictor], x: Floats, y: Floats) -> EarlierExpectation:
        """Return the expectation whose weights follow from the results y, (n,), of features x, (n, columns)."""
        from shoestring.models.earlier_scores import weigh_earlier_studies

        predicted = np.column_stack([one.predict_mean(x) for one in predictors])
        return cls(names, predictors, weigh_earlier_studies(y, predicted))

    @property
    def trust(self) -> float:
        """How much the earlier studies are believed, compared with the start of the study: 0 to 1."""
        from shoestring.models.earlier_scores import PRIOR_WEIGHT

        return min(1.0, float(self.weights.sum()) / PRIOR_WEIGHT)

    def describe(self) -> str:
        """Return the names of the earlier studies with their weights, for `why`."""
        pairs = zip(self.names, self.weights, strict=True)
        return ", ".join(f"{name} (weight {weight:.2g})" for name, weight in pairs)

    def mean(self, x: Floats) -> Floats:
        """Return what is expected, (m,), for features x, (m, columns)."""
        return np.asarray(np.column_stack([one.predict_mean(x) for one in self.predictors]) @ self.weights)

    def mean_with_gradient(self, x: Floats) -> tuple[Floats, Floats]:
        """Return what is expected, (m,), and its derivatives with respect to x, (m, columns)."""
        gradient = np.zeros_like(x)
        for weight, one in zip(self.weights, self.predictors, strict=True):
            gradient += weight * one.predict_gradient(x)
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
class Predictor:
    """A model of one earlier study. Columns of parameters that the study did not have are the same everywhere."""

    gp: GP
    unknown: Floats  # (columns,): the value of these columns; NaN in the others

    def predict_mean(self, x: Floats) -> Floats:
        """Return the predictions, (m,), for features x, (m, columns)."""
        return self.gp.predict_mean(self._fill(x))

    def predict_gradient(self, x: Floats) -> Floats:
        """Return the derivatives of the predictions with respect to x, (m, columns)."""
        return np.where(np.isnan(self.unknown), self.gp.predict_with_gradient(self._fill(x))[2], 0.0)

    def _fill(self, x: Floats) -> Floats:
        return np.where(np.isnan(self.unknown), x, self.unknown)


@dataclass(frozen=True, slots=True, eq=False)
class EarlierModel:
    """The models of one earlier study, with the parameters that were fitted when it was read."""

    scores: Predictor
    prices: Predictor | None  # of the log seconds of a step

    @classmethod
    def of(cls, encoding: Encoding, facts: EarlierStudy) -> EarlierModel:
        """Return the models of an earlier study."""
        from shoestring.models.gp.kernels import kernel_for
        from shoestring.models.gp.posterior import condition

        x, unknown = encode_rows(encoding, facts)
        kernel = kernel_for(encoding)
        scores = Predictor(condition(kernel, np.array(facts.score_fit), x, np.array(facts.scores)), unknown)
        if not facts.step_s:
            return cls(scores, None)
        prices = condition(kernel, np.array(facts.price_fit), x, np.log(facts.step_s))
        return cls(scores, Predictor(prices, unknown))


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

    part = np.linspace(0, len(x) - 1, min(len(x), _MAX_FITTED)).round().astype(np.intp)

    def fit(y: Floats) -> list[float]:
        return [float(number) for number in fit_gp(kernel, x[part], y[part]).theta]

    price_fit = fit(np.log(facts.step_s)) if facts.step_s else []
    return replace(facts, score_fit=fit(np.array(facts.scores)), price_fit=price_fit)
