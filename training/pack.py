"""Pack all curves for training into one small file, ready for an accelerator.

    Y       (rows, 50)  losses, smaller is better, standardised by table; after the end of a curve its last one
    X       (rows, 32)  hyperparameters by rank within their table, 0 to 1; -1: inactive or none
    price   (rows,)     seconds of a step, relative to the median of the table; 1 where no time was recorded
    meta    JSON text   [{source, name, n, steps}, …], tables in the order of their rows

Curves are thinned to at most 50 steps, as in judging; very large losses and nan are replaced by the 95 % quantile of first
losses, so that a table has a common worst loss.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoestring.runners.simulated.recorded_table import Table
from training.sources import TRAINABLE

STEPS, COLUMNS, MOST_ROWS = 50, 32, 1000
FEWEST_ROWS, FEWEST_STEPS, CLIP = 4, 8, 0.95
Floats = NDArray[np.float64]


def find_tables(roots: Sequence[Path], sources: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield (source, file) for all tables of these sources; a table that is in two folders is taken from the first."""
    seen: set[tuple[str, str]] = set()
    for root in roots:
        for path in sorted(root.glob("*/*.npz")):
            source = path.parent.name
            if source in sources and (source, path.stem) not in seen:
                seen.add((source, path.stem))
                yield source, path


def losses_of(table: Table) -> Floats:
    """Return losses (n, T) without gaps and without very large ones."""
    losses = table.values if table.direction == "min" else -table.values
    losses = np.where(np.isfinite(losses), losses, np.nan)
    first = losses[np.isfinite(losses[:, 0]), 0]
    worst = float(np.quantile(first, CLIP)) if first.size else float(np.nanmax(losses))
    within = np.arange(losses.shape[1]) < table.lengths[:, None]
    losses = np.where(within & np.isnan(losses), worst, losses)  # diverged before the end of the curve
    last = losses[np.arange(len(losses)), table.lengths - 1]
    return np.minimum(np.where(within, losses, last[:, None]), worst)


def ranks_of(table: Table) -> Floats:
    """Return each varying hyperparameter by the rank of its value among the distinct ones, (n, COLUMNS)."""
    ranks = np.full((len(table.configs), COLUMNS), -1.0)
    names = sorted({name for config in table.configs for name in config})
    column = 0
    for name in names:
        values = [config.get(name) for config in table.configs]
        there = [value for value in values if value is not None]
        known = sorted(set(there), key=lambda value: (isinstance(value, str), value))
        if len(known) < 2 or column == COLUMNS:
            continue
        place = {value: i / (len(known) - 1) for i, value in enumerate(known)}
        ranks[:, column] = [-1.0 if value is None else place[value] for value in values]
        column += 1
    return ranks


def prices_of(table: Table) -> Floats:
    """Return the price of a step of each curve relative to the median, (n,), within 0.02..50."""
    seconds = table.costs_s.sum(axis=1) / np.maximum(1, table.lengths)
    middle = float(np.median(seconds))
    return np.clip(seconds / middle, 0.02, 50.0) if middle > 0 else np.ones(len(seconds))


def pack(
    out: Path, roots: Sequence[Path], sources: Collection[str] = tuple(TRAINABLE), seed: int = 0
) -> list[dict[str, object]]:
    """Write all tables of the sources into one file; return what it states about each table."""
    rng = np.random.default_rng(seed)
    curves, configs, prices, meta = [], [], [], []
    for source, path in find_tables(roots, sources):
        table = Table.load(path, max_steps=STEPS)
        if len(table.configs) < FEWEST_ROWS or table.max_steps < FEWEST_STEPS:
            continue
        if len(table.configs) > MOST_ROWS:
            table = table.subset(np.sort(rng.permutation(len(table.configs))[:MOST_ROWS]))
        losses = losses_of(table)
        spread = float(losses.std())
        if not spread > 0:
            continue
        padded = np.zeros((len(losses), STEPS))
        padded[:, : table.max_steps] = (losses - losses.mean()) / spread
        curves.append(padded)
        configs.append(ranks_of(table))
        prices.append(prices_of(table))
        meta.append({"source": source, "name": path.stem, "n": len(losses), "steps": table.max_steps})
    if not meta:
        raise SystemExit(f"no tables of {', '.join(sources)} in {', '.join(map(str, roots))}")
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        out,
        Y=np.concatenate(curves).astype(np.float32),
        X=np.concatenate(configs).astype(np.float16),
        price=np.concatenate(prices).astype(np.float32),
        meta=json.dumps(meta),
    )
    found = {source: sum(one["source"] == source for one in meta) for source in sources}
    print(f"{out}: {len(meta)} tables, {out.stat().st_size / 2**20:.1f} MiB", found, file=sys.stderr)
    return meta
