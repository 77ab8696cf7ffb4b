"""Earlier studies: read what they found, and copy it into the first entries of a new study (`like=`, `--like`).

A source is one of

    NAME                          a study in the store of the new study
    FILE.db#NAME, postgresql://…#NAME     a study in another store; without #NAME if the store has one study
    optuna:STORAGE#NAME           a study of Optuna: a database, or a journal file
    FILE.csv#COLUMN, FILE.jsonl#COLUMN    a table: a row for each trial, or for each step of a trial; COLUMN has the values

In Python a source may also be a `Study`. From each trial its configuration is copied, how good it looked (its score, see
`models.first_looks`), and its seconds a step. At most 200 trials are copied: from more, those at even distances from the best
to the worst. Only the parameters that the new study has too are used. A value that the new study cannot place leaves the trial
out: an option that it does not have, or a number that its log scale does not have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from shoestring.core.deciding.reproducible import sort_best_first
from shoestring.core.ledger.entries import Direction
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import EarlierStudy
from shoestring.core.space.encoding import Encoding
from shoestring.core.space.space import Config, Space
from shoestring.core.values.credentials import hide_credentials
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import count
from shoestring.errors import StudyError, did_you_mean
from shoestring.stores.addresses import open_store
from shoestring.stores.ledger_store import LedgerStore
from shoestring.study.blas import OneThread
from shoestring.study.earlier_optuna import read_optuna_study
from shoestring.study.earlier_tables import TABLE_ENDINGS, read_table

MAX_TRIALS = 200  # copied from one earlier study
_MIN_TRIALS = 2  # with a result, for a model
_STORE_ENDINGS = (".db", ".sqlite", ".sqlite3")
_OPTUNA = "optuna:"


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """One trial of an earlier study."""

    config: Config
    losses: Sequence[float | None]  # by step; infinite if it diverged or failed
    step_s: float | None = None  # mean seconds of a step


@dataclass(frozen=True, slots=True)
class SourceStudy:
    """An earlier study as it was read."""

    name: str
    source: str  # where it was read from, without credentials
    trials: Sequence[EarlierTrial]
    direction: Direction | None = None  # None: a table does not say


def read_earlier_studies(
    sources: Sequence[Any], renames: Mapping[str, str], space: Space, direction: Direction, store: LedgerStore
) -> list[EarlierStudy]:
    """Return what is copied from each source; raise StudyError if a source cannot be used."""
    unknown = next((name for name in renames.values() if name not in space.parameters), None)
    if unknown is not None:
        raise StudyError(f"{unknown!r} is not a parameter of this study. {did_you_mean(unknown, space.parameters)}")
    return [copy_source(read_source(source, direction, store), renames, space, direction) for source in sources]


def copy_source(source: SourceStudy, renames: Mapping[str, str], space: Space, direction: Direction) -> EarlierStudy:
    """Return what is copied from a source into a study with this space and direction."""
    from shoestring.models.first_looks import place_trials, score_places  # these import SciPy
    from shoestring.policies.earlier_studies import fit_earlier_study

    if source.direction not in (None, direction):
        raise StudyError(
            f"the earlier study {source.name!r} has the direction {source.direction!r}, this one {direction!r}: its best trials "
            "would be the worst here. Leave it out."
        )
    trials = [replace(trial, config=_rename(trial.config, renames)) for trial in source.trials if _has_loss(trial)]
    parameters = [name for name in space.parameters if any(name in trial.config for trial in trials)]
    varying = [name for name in parameters if name in space.cube_names]
    if trials and not varying:
        theirs = ", ".join(sorted({name for trial in trials for name in trial.config})) or "none"
        raise StudyError(
            f"the earlier study {source.name!r} has no parameter in common with this one that varies here: it has {theirs}; "
            f"this study has {', '.join(space.cube_names)}. Use --like-rename OLD=NEW (like_rename=…) if names have changed."
        )
    encoding = Encoding(space)
    usable = [trial for trial in trials if _can_place(encoding, trial.config, parameters)]
    if len(usable) < _MIN_TRIALS:
        raise StudyError(
            f"the earlier study {source.name!r} has {count(len(usable), 'trial')} with a result and a configuration that this "
            f"study can place, of {len(source.trials)}: it needs at least {_MIN_TRIALS}. Leave it out."
        )
    places = place_trials([trial.losses for trial in usable])
    order = sort_best_first(places, "lowest", exact=True)
    kept = [int(i) for i in order[np.linspace(0, len(order) - 1, min(len(order), MAX_TRIALS)).round().astype(int)]]
    scores = score_places(places)
    prices = [usable[i].step_s for i in kept]
    known_prices = [price for price in prices if price is not None and price > 0.0]
    facts = EarlierStudy(
        name=source.name,
        source=source.source,
        digest="",
        date=datetime.now(UTC).date().isoformat(),
        trials=len(source.trials),
        parameters=parameters,
        configs=[{name: usable[i].config[name] for name in parameters if name in usable[i].config} for i in kept],
        scores=[float(scores[i]) for i in kept],
        step_s=known_prices if len(known_prices) == len(kept) else [],
    )
    rows = dumps([facts.configs, facts.scores, facts.step_s])
    with OneThread():  # as for decisions: two threads made this 25 times slower on a busy machine
        return fit_earlier_study(space, replace(facts, digest=blake2b(rows.encode(), digest_size=8).hexdigest()))


def refit_earlier_studies(space: Space, studies: Sequence[EarlierStudy]) -> list[EarlierStudy]:
    """Return the same earlier studies for another space; those of which too little can be placed in it are left out."""
    from shoestring.policies.earlier_studies import fit_earlier_study

    encoding, refitted = Encoding(space), []
    for facts in studies:
        parameters = [name for name in facts.parameters if name in space.parameters]
        kept = [i for i, config in enumerate(facts.configs) if _can_place(encoding, config, parameters)]
        if len(kept) >= _MIN_TRIALS and any(name in space.cube_names for name in parameters):
            rows = replace(
                facts,
                parameters=parameters,
                configs=[
                    {name: facts.configs[i][name] for name in parameters if name in facts.configs[i]} for i in kept
                ],
                scores=[facts.scores[i] for i in kept],
                step_s=[facts.step_s[i] for i in kept] if facts.step_s else [],
            )
            refitted.append(fit_earlier_study(space, rows))
    return refitted


def find_step_s(sources: Sequence[Any], store: LedgerStore) -> float:
    """Return the mean seconds of a step in earlier studies; raise StudyError if none of them knows it."""
    found = [read_source(source, "min", store) for source in sources]
    known = [trial.step_s for one in found for trial in one.trials if trial.step_s]
    if not known:
        names = ", ".join(one.name for one in found)
        raise StudyError(f"no trial of {names} has the seconds of its steps: give --step-cost, as in --step-cost 30s")
    return float(np.mean(known))


def _rename(config: Config, renames: Mapping[str, str]) -> Config:
    return {renames.get(name, name): value for name, value in config.items()}


def _has_loss(trial: EarlierTrial) -> bool:
    return any(loss is not None for loss in trial.losses)


def _can_place(encoding: Encoding, config: Config, parameters: Sequence[str]) -> bool:
    try:
        encoding.features_elsewhere(config, parameters)
    except ValueError:
        return False
    return True


# sources --------------------------------------------------------------------------------------------------------------


def describe_source(source: Any) -> str:
    """Return the words for a source that are stored and shown: without credentials."""
    if hasattr(source, "ledger"):  # a Study
        return f"{hide_credentials(source.store.where)}#{source.name}"
    return hide_credentials(str(source))


def read_source(source: Any, direction: Direction, store: LedgerStore) -> SourceStudy:
    """Return the earlier study that a source names; raise StudyError if there is none."""
    if hasattr(source, "ledger"):  # a Study
        return read_ledger(source.name, describe_source(source), source.ledger)
    if isinstance(source, Path):
        source = str(source)
    if not isinstance(source, str) or not source:
        raise StudyError(
            f"like={source!r} must name an earlier study: a study of this store, FILE.db#NAME, optuna:STORAGE#NAME, "
            "or a table, FILE.csv#COLUMN"
        )
    place, _, part = source.partition("#")
    if source.startswith(_OPTUNA):
        return _read_optuna(source, place.removeprefix(_OPTUNA), part)
    if place.lower().endswith(TABLE_ENDINGS):
        return _read_table(source, place, part, direction)
    if "#" in source or "://" in source or place.lower().endswith(_STORE_ENDINGS):
        other = open_store(place, must_exist=True)
        return _read_study(source, other, part or _find_only_study(other, source))
    return _read_study(source, store, source)


def _read_study(source: str, store: LedgerStore, name: str) -> SourceStudy:
    ledger = store.load(name)
    if ledger is None:
        studies = store.studies()
        known = f"it has {', '.join(studies)}" if studies else "it has no study"
        raise StudyError(
            f"there is no study {name!r} in {store.where}: {known}. {did_you_mean(name, studies)}".rstrip()
        )
    return read_ledger(name, describe_source(source), ledger)


def _find_only_study(store: LedgerStore, source: str) -> str:
    studies = store.studies()
    if len(studies) != 1:
        found = ", ".join(studies) if studies else "none"
        raise StudyError(
            f"{hide_credentials(source)!r} must name one of its studies, as in {store.where}#NAME: {found}"
        )
    return studies[0]


def read_ledger(name: str, source: str, ledger: Ledger) -> SourceStudy:
    """Return a study of a ledger as a source."""
    trials = []
    for trial in ledger.trials:
        is_bad = trial.diverged or bool(trial.failure)
        step_s = math.fsum(trial.step_costs) / len(trial.step_costs) if trial.step_costs else None
        trials.append(EarlierTrial(trial.config, [math.inf] if is_bad else list(trial.losses), step_s))
    return SourceStudy(name, source, trials, ledger.definition.direction)


def _read_optuna(source: str, place: str, name: str) -> SourceStudy:
    found, direction, rows = read_optuna_study(place, name)
    sign = 1.0 if direction == "min" else -1.0
    trials = [
        EarlierTrial(config, [sign * value for value in curve] if curve else [math.inf], seconds)
        for config, curve, seconds in rows
    ]
    return SourceStudy(found, describe_source(source), trials, direction)


def _read_table(source: str, place: str, column: str, direction: Direction) -> SourceStudy:
    sign = 1.0 if direction == "min" else -1.0
    trials = [
        EarlierTrial(config, [_to_loss(value, sign) for value in values], step_s)
        for config, values, step_s in read_table(Path(place), column)
    ]
    return SourceStudy(Path(place).name, describe_source(source), trials)


def _to_loss(value: float | None, sign: float) -> float | None:
    """Return the loss of a value of a table; infinite if it is no number."""
    return value if value is None else (math.inf if math.isnan(value) else sign * value)
