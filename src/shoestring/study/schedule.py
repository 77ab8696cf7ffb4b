"""The schedule that an online run has found: a config for each round, to be replayed on runs that need no validation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from shoestring.core import arguments
from shoestring.core.ledger import Ledger
from shoestring.core.space import Config
from shoestring.core.strict_json import dumps, loads
from shoestring.errors import StudyError
from shoestring.policies.online.rounds import RunView


@dataclass(frozen=True)
class Schedule:
    """A config for each round: found once, replayed as often as you like.

    for config in Schedule.load("schedule.json"):
        train_one_round(model, config)
    """

    configs: tuple[Config, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(config, Mapping) for config in arguments.configs("configs", self.configs)):
            raise StudyError(f"configs={self.configs!r} must be dicts of parameters, one for each round")

    @classmethod
    def of(cls, ledger: Ledger) -> Schedule:
        """The schedule of the run in this ledger, as far as it was trained."""
        return cls(tuple(ledger.view(RunView()).configs))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(config) for config in self.configs)

    def __len__(self) -> int:
        return len(self.configs)

    def config(self, round: int) -> dict[str, Any]:
        """The config of a round, from 1; a run that goes on longer keeps the last one."""
        round = arguments.whole("round", round, 1, f"rounds of this schedule are counted from 1 to {len(self)}")
        if not self.configs:
            raise StudyError(f"round {round} of a schedule without rounds: train the run first")
        return dict(self.configs[min(round, len(self)) - 1])

    def save(self, path: str | Path) -> None:
        """As JSON, one entry for each stretch of rounds with one config."""
        try:
            spans = [(key, len(list(same))) for key, same in groupby(map(dumps, self.configs))]
        except (TypeError, ValueError, RecursionError) as error:
            raise StudyError(f"the schedule cannot be written: {error}") from None
        body = {"shoestring_schedule": 1, "spans": [{"rounds": n, "config": json.loads(key)} for key, n in spans]}
        Path(path).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schedule:
        try:
            body = loads(Path(path).read_text(encoding="utf-8"))
            if body["shoestring_schedule"] != 1:
                raise ValueError(f"its version is {body['shoestring_schedule']!r}, not 1")
            return cls(tuple(span["config"] for span in body["spans"] for _ in range(span["rounds"])))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StudyError(f"{str(path)!r} is not a schedule: {error}; write one with Schedule.save(path)") from None
