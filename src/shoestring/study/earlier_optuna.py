"""Read trials of a stored study of Optuna, as an earlier study, or to continue it (`integrations.optuna`)."""

from __future__ import annotations

from typing import Any

from shoestring.core.ledger.entries import Direction
from shoestring.core.values.credentials import hide_credentials
from shoestring.errors import MissingExtra, StudyError, one_line

OptunaTrial = tuple[dict[str, Any], list[float], float | None]  # configuration, values by step, seconds of a step


def read_optuna_study(where: str, name: str) -> tuple[str, Direction, list[OptunaTrial]]:
    """Return the name, the direction and the finished trials of a stored study; without a name it must be the only one."""
    optuna = _import_optuna()
    shown = hide_credentials(where)
    try:
        storage = make_storage(where)
        known = optuna.study.get_all_study_names(storage)
        if not name and len(known) != 1:
            raise StudyError(
                f"{shown!r} holds {len(known)} Optuna studies: name one, as in optuna:STORAGE#NAME; "
                f"it has {', '.join(known) or 'none'}"
            )
        study = optuna.load_study(study_name=name or known[0], storage=storage)
    except StudyError:
        raise
    except Exception as error:  # a driver of any database may raise any error
        problem = one_line(str(error)) or type(error).__name__
        raise StudyError(
            f"the Optuna study {name!r} in {shown!r} cannot be read: {hide_credentials(problem)}"
        ) from None
    require_one_objective(study)
    trials = [
        (dict(trial.params), read_curve(trial), _seconds(trial)) for trial in study.trials if trial.state.is_finished()
    ]
    return study.study_name, "min" if study.direction.name == "MINIMIZE" else "max", trials


def make_storage(where: str) -> Any:
    """Return the storage at an address of a database, or in a journal file."""
    if "://" in where:
        return where
    journal = _import_optuna().storages.journal
    return _import_optuna().storages.JournalStorage(journal.JournalFileBackend(where))


def read_curve(trial: Any) -> list[float]:
    """Return the reported values of an Optuna trial by step from 1; the last is the final value."""
    values = [float(trial.intermediate_values[step]) for step in sorted(trial.intermediate_values)]
    if trial.state.name == "COMPLETE":
        return [*values[:-1], float(trial.value)]
    return values if trial.state.name == "PRUNED" else []


def require_one_objective(study: Any) -> None:
    """Raise StudyError if an Optuna study has several objectives."""
    if len(study.directions) != 1:
        raise StudyError(
            f"the Optuna study {study.study_name!r} has {len(study.directions)} objectives: it must have one"
        )


def _seconds(trial: Any) -> float | None:
    if trial.duration is None:
        return None
    return float(trial.duration.total_seconds()) / max(1, len(trial.intermediate_values))


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtra("an earlier study of Optuna", "optuna", "optuna") from None
    return optuna
