"""The schedule that an online run has found: a config for each round, to be replayed on runs that need no validation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

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
        if round < 1 or not self.configs:
            raise StudyError(f"round {round} of a schedule of {len(self)} rounds: rounds are counted from 1")
        return dict(self.configs[min(round, len(self)) - 1])

    def save(self, path: str | Path) -> None:
        """As JSON, one entry for each stretch of rounds with one config."""
        spans = [(key, len(list(same))) for key, same in groupby(map(dumps, self.configs))]
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
