"""HEBO: a Gaussian process on warped inputs with several acquisition functions at once. Trials are always trained to the end."""

import importlib.metadata
import math
import warnings

import numpy as np
import pandas as pd
from hebo.design_space.design_space import DesignSpace
from hebo.optimizers.hebo import HEBO

warnings.simplefilter("ignore")
VERSION = f"hebo {importlib.metadata.version('HEBO')}"


def describe(p):
    if p["kind"] == "choice":
        return {"name": p["name"], "type": "cat", "categories": p["options"]}
    kind = {("float", False): "num", ("float", True): "pow", ("int", False): "int", ("int", True): "pow_int"}
    return {"name": p["name"], "type": kind[p["kind"], p["log"]], "lb": p["low"], "ub": p["high"]}


def run(study):
    space = DesignSpace().parse([describe(p) for p in study.parameters])
    tuned = HEBO(space, scramble_seed=study.seed)
    number, worst = 0, 0.0
    while True:
        proposed = tuned.suggest(n_suggestions=1)
        config = {name: value.item() if hasattr(value, "item") else value for name, value in proposed.iloc[0].items()}
        finite = [loss for loss in study.train(number, config, until=study.max_steps) if math.isfinite(loss)]
        loss = min(finite) if finite else worst
        worst = max(worst, loss) if number else loss
        if study.row is not None:  # on a table, the loss belongs to the row that replaced the point
            row = study.rows[study.row]
            proposed = pd.DataFrame([[row[name] for name in proposed.columns]], columns=proposed.columns)
        tuned.observe(proposed, np.array([[loss]]))
        number += 1
