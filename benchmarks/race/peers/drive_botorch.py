"""BoTorch: a Gaussian process and the log of expected improvement, optionally minus the log of the expected cost.

Trials are always trained to the end. Choices are one-hot encoded. On a table, all rows not tried yet are scored.
"""

import math
import warnings

import botorch
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from link import from_cube, to_cube

warnings.simplefilter("ignore")
VERSION = f"botorch {botorch.__version__}"
STARTS = 5  # quasi-random configurations before the model is used


def columns(parameters, points):
    """Return (n, columns) features: numbers unchanged, a choice as one column per option."""
    parts = []
    for j, p in enumerate(parameters):
        if p["kind"] == "choice":
            n = len(p["options"])
            cell = (points[:, j] * n).long().clamp(max=n - 1)
            parts.append(torch.nn.functional.one_hot(cell, n).double())
        else:
            parts.append(points[:, j : j + 1])
    return torch.cat(parts, dim=1)


def points_of(parameters, rows):
    """Return the points of features; a choice takes the option with the largest column."""
    parts, at = [], 0
    for p in parameters:
        if p["kind"] == "choice":
            n = len(p["options"])
            parts.append((rows[:, at : at + n].argmax(dim=1, keepdim=True).double() + 0.5) / n)
            at += n
        else:
            parts.append(rows[:, at : at + 1])
            at += 1
    return torch.cat(parts, dim=1)


def fit(x, y):
    model = SingleTaskGP(x, y[:, None])
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def choose(study, x, losses, prices, candidates):
    """Return the features of the next configuration and its number among `candidates` (None: the space is not listed)."""
    outputs = -torch.tensor(losses).double()
    rule = LogExpectedImprovement(fit(x, outputs), best_f=outputs.max())
    score = rule
    if study.method == "ei_per_cost":
        price = fit(x, torch.tensor(prices).double().clamp(min=1e-9).log())

        def score(rows):
            return rule(rows) - price.posterior(rows).mean.squeeze(-1).squeeze(-1)

    if candidates is not None:
        with torch.no_grad():
            best = int(score(candidates[:, None, :]).argmax())
        return candidates[best], best
    bounds = torch.stack([torch.zeros(x.shape[1]), torch.ones(x.shape[1])]).double()
    if score is rule:
        found, _ = optimize_acqf(rule, bounds, q=1, num_restarts=5, raw_samples=256)
        return found[0].detach(), None
    pool = torch.rand(2048, x.shape[1], dtype=torch.double)
    with torch.no_grad():
        return pool[int(score(pool[:, None, :]).argmax())], None


def run(study):
    parameters = study.parameters
    table = None
    if study.rows is not None:
        table = columns(parameters, torch.tensor([to_cube(parameters, row) for row in study.rows]).double())
    sobol = torch.quasirandom.SobolEngine(len(parameters), scramble=True, seed=study.seed)
    x, losses, prices, used = [], [], [], set()
    while True:
        row = None
        if len(losses) < STARTS:
            point = sobol.draw(1).double()
        else:
            left = None if table is None else [i for i in range(len(table)) if i not in used]
            if left == []:
                return
            candidates = None if table is None else table[left]
            chosen, number = choose(study, torch.stack(x), losses, prices, candidates)
            row = None if number is None else left[number]
            point = points_of(parameters, chosen[None, :])
        config = from_cube(parameters, point[0].tolist()) if row is None else study.rows[row]
        new = study.train(len(x), config, row=row, until=study.max_steps)
        used.add(study.row)
        finite = [loss for loss in new if math.isfinite(loss)]
        x.append(
            table[study.row]
            if table is not None
            else columns(parameters, torch.tensor([to_cube(parameters, config)]))[0].double()
        )
        losses.append(min(finite) if finite else max(losses, default=0.0))
        prices.append(sum(study.costs_s))
