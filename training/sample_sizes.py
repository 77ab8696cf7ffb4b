"""Curves by sample size (lcdb_sample_size, MIT) as tables in the npz layout: a step is the next larger training set.

An arm is one of twenty learners with one split of the data, so arms of a learner differ by chance only, and a surrogate
must learn to treat this as noise. The module needs pandas and pyarrow.

    python -m training sample_sizes --data DIR --out out/thrift/data/lcdb_sample_size
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

_SPLITS = 4  # arms of a learner
_FEWEST_STEPS, _FEWEST_LEARNERS = 10, 10


def write_tables(parquet: Path, out: Path) -> int:
    """Write the tables and return their number."""
    import pandas as pd

    columns = ["openmlid", "learner", "size_train", "outer_seed", "inner_seed", "cost", "valid_acc"]
    fits = pd.read_parquet(parquet, columns=columns)
    out.mkdir(parents=True, exist_ok=True)
    written = 0
    for dataset, of_one in fits.groupby("openmlid"):
        sizes = np.sort(of_one.size_train.unique())
        if len(sizes) < _FEWEST_STEPS or of_one.learner.nunique() < _FEWEST_LEARNERS:
            continue
        learners = sorted(of_one.learner.unique())
        hp, accuracy, seconds = [], [], []
        for place, learner in enumerate(learners):
            splits = of_one[of_one.learner == learner].groupby(["outer_seed", "inner_seed"])
            for _, split in list(splits)[:_SPLITS]:
                at = split.drop_duplicates("size_train").set_index("size_train").reindex(sizes)
                known = int(at.valid_acc.notna().to_numpy().cumprod().sum())  # up to the first fit that timed out
                if known < 2:
                    continue
                hp.append([float(place)])
                accuracy.append(np.where(np.arange(len(sizes)) < known, at.valid_acc.to_numpy(), np.nan))
                seconds.append(np.nancumsum(at.cost.to_numpy()))
        if len(hp) < _FEWEST_LEARNERS:
            continue
        meta = {
            "task": str(dataset),
            "objective": "valid_acc",
            "direction": "max",
            "fidelity": "size_train",
            "hp_categories": {"learner": learners},
        }
        arrays = {"valid_acc": np.array(accuracy, np.float32), "cost": np.array(seconds, np.float32)}
        names = {"hp": np.array(hp), "hp_names": np.array(["learner"]), "meta": json.dumps(meta)}
        np.savez_compressed(out / f"openml_{dataset}.npz", **arrays, **names, size_train=sizes.astype(np.float32))
        written += 1
    return written
