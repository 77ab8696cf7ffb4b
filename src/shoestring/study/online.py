"""Online tuning for people who own their training loop: one run that changes its config from round to round.

    tuner = OnlineTuner(space, rounds=100, direction="max", store="run.db", validate_at_most="20%")
    while (config := tuner.next()) is not None:
        train_one_round(model, config)
        if tuner.should_validate:
            tuner.tell(accuracy(model))

Everything is kept in a study's ledger: a round is one order of trial 0, its receipt carries what it took and, where a
validation pass was bought, the value. A job that was killed begins again with the rounds that its checkpoint holds,
`OnlineTuner(…, done_rounds=40)`: recorded rounds after those are handed out again with the configs they had and without
validation, and then the run goes on as if it had never been cut. Save a checkpoint after `tell`, never before it.

A value that is no finite number ends the run: the model has diverged, and there is only one. `tell` warns and says how to
go on.

What a round took is measured: training ends where `should_validate` is read last, validation where `tell` is called.
The schedule that was found can be exported and replayed on another run, which needs no validation at all.

The schedule that an online run has found: a config for each round, to be replayed on runs that need no validation.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Cost, Direction, Entry, Lost, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.core.values import checks as arguments
from shoestring.core.values.checks import is_whole
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import Conflict, PolicyError, StudyError, warn
from shoestring.policies.online.online_run import RUN, RunView
from shoestring.runners.runner import write_receipt
from shoestring.stores.addresses import DEFAULT_STORE
from shoestring.stores.store import Store
from shoestring.study.ask import read_seconds, read_value
from shoestring.study.decide import Thinking, decide
from shoestring.study.study import Study

_ROUNDS = RunView()
_ONLINE, _FIXED = "shoestring.policies.online.", "shoestring.policies.plain.replay_fixed:"


class OnlineTuner:
    """Asks the policy before each round, records what the round gave. `next` returns None when the run is over."""

    def __init__(
        self,
        space: Space | Mapping[str, Any],
        rounds: int,
        *,
        policy: str | Policy = "ce_gp_ucb",
        settings: Mapping[str, Any] | None = None,
        direction: Direction = "min",
        store: str | Store | None = DEFAULT_STORE,
        name: str = "online",
        done_rounds: int = 0,
        budget: str | Budget | None = None,
        validate_at_most: str | None = None,
        prices: Prices | None = None,
        initial: Sequence[Config] = (),
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`budget` (None: as many epochs as rounds) is that of a study; `initial` are configs to act with first."""
        _require_online(policy)
        rounds = arguments.whole("rounds", rounds, 1)
        told = arguments.mapping("settings", settings, "{'kappa': 0.8}")
        arguments.function("clock", clock, "time.monotonic")
        capped = {} if validate_at_most is None else {"validate_at_most": validate_at_most}
        passes = prices.validate_epochs if isinstance(prices, Prices) else 0.0
        self._study = Study.begin(
            space,
            budget if budget is not None else f"{math.ceil(rounds * (1 + passes))} epochs",
            name=name,
            store=store,
            max_steps=rounds,
            direction=direction,
            policy=policy,
            settings={**told, **capped},
            seed=seed,
            prices=prices,
            initial=initial,
        )
        self._policy = self._study.policy
        self._clock = clock
        self._zero = clock() - self._study.ledger.books.clock
        self._thinking = Thinking(clock)
        self._done = done_rounds  # rounds that the caller's model has behind it
        self._is_out = False  # a round was handed out and is not recorded yet
        self._setup_s = 0.0  # from the end of the round before to the hand-out of this one
        self._ended = self._began = self._asked = clock()  # the last round, this one, its training
        self._take_up(done_rounds)

    # the loop ----------------------------------------------------------------------------------------------------------

    def next(self) -> dict[str, Any] | None:
        """The config to train the coming round with; None when the run or its budget is at its end.

        Calling it says that the round before is over.
        """
        if self._is_out:
            if self._owes_value():
                raise StudyError(
                    f"round {self.round} was handed out with should_validate=True, but no value was told: "
                    "call tell(value) before next()"
                )
            self._record(None, self._clock() - self._began, 0.0)
        self._setup_s = self._clock() - self._ended
        order = self._open_order() or self._decide()
        recorded = self._study.ledger.view(_ROUNDS).configs
        if self._done < len(recorded):
            config: Config = recorded[self._done]
        elif order is not None:
            config = order.config
        else:
            return None
        self._is_out = True
        self._began = self._asked = self._clock()
        return dict(config)

    @property
    def round(self) -> int:
        """The round being trained, from 1; between rounds, the last one."""
        return self._done + self._is_out

    @property
    def should_validate(self) -> bool:
        """Whether a validation pass of this round is worth its price. Read it when the round's training is done."""
        self._asked = self._clock()
        return self._owes_value()

    def tell(self, value: float, *, validate_s: float | None = None) -> None:
        """The value of this round's validation, and its seconds unless they were measured (see the module's text)."""
        if not self._owes_value():
            raise StudyError(
                f"round {self.round} buys no validation: call tell(value) only when should_validate is true, "
                "once, after training the round"
            )
        told, now = read_value(value), self._clock()
        if told is None:
            raise StudyError(f"round {self.round} was validated: tell its value, a number, not None")
        given_s = read_seconds(validate_s, "validate_s")
        validate_s = now - self._asked if given_s is None else given_s
        self._record(told, max(0.0, now - self._began - validate_s), validate_s)
        if not math.isfinite(told):
            warn(
                f"the value of round {self.round} is {told}: the run has diverged and ends here; to go on, tell a finite "
                f"number that is bad enough, or begin again under another name from a checkpoint before round {self.round}"
            )

    # what it knows -------------------------------------------------------------------------------------------------------

    @property
    def study(self) -> Study:
        """The study that holds the run, for reports."""
        return self._study

    @property
    def is_replaying(self) -> bool:
        """Whether the round being trained was recorded before, by the job that was killed."""
        return self._is_out and self._done < self._steps

    @property
    def why(self) -> Mapping[str, Any]:
        """The numbers behind the newest decision."""
        orders = self._study.ledger.orders
        return orders[-1].why if orders else {}

    def schedule(self) -> Schedule:
        """The configs of all rounds trained so far."""
        return Schedule.of(self._study.ledger)

    # the ledger ----------------------------------------------------------------------------------------------------------

    @property
    def _steps(self) -> int:
        return self._study.ledger.trials[RUN].steps if self._study.ledger.trials else 0

    def _open_order(self) -> Order | None:
        number = self._study.ledger.trials[RUN].open_order if self._study.ledger.trials else None
        return None if number is None else self._study.ledger.open_orders[number].order

    def _owes_value(self) -> bool:
        order = self._open_order()
        return self._is_out and order is not None and self._done == self._steps and order.validates(self._done + 1)

    def _take_up(self, done: int) -> None:
        """Go on from a checkpoint that holds `done` rounds."""
        order = self._open_order()
        furthest = self._steps + (order is not None)
        if not (is_whole(done) and 0 <= done <= furthest):
            raise StudyError(
                f"done_rounds={done!r}: the study {self._study.name!r} knows rounds 1 to {furthest}; "
                "load the checkpoint of this run, or give the new run another name"
            )
        if not self._study.ledger.trials:
            return
        held = min(done, self._steps)
        if held != self._study.ledger.trials[RUN].held:
            self._append(Lost(trial=RUN, held=held, why=f"the run was taken up again after round {held}"))
        if done > self._steps:  # trained and saved, but cut off before it was recorded
            self._done, self._is_out = done - 1, True

    def _decide(self) -> Order | None:
        """Record what the next round buys; None when there is none."""
        self._thinking.start_over()
        _, order = decide(self._study.ledger, self._policy, self._thinking, self._now)
        if order is not None:
            if order.trial != RUN:
                raise StudyError(f"the policy {self._policy.name} began trial {order.trial}, and there is one run")
            self._append(order)
        return order

    def _now(self) -> float:
        """On the study's clock, which stands still between a stop and the next start."""
        return self._clock() - self._zero

    def _record(self, value: float | None, train_s: float, validate_s: float) -> None:
        order, step = self._open_order(), self._done + 1
        if order is not None:  # a recorded round of a finished run has no order and needs no receipt
            cost, at = Cost(setup=self._setup_s, train=train_s, validate=validate_s), self._now()
            self._append(
                write_receipt(order, step, value, cost, at=at, saved=step)
            )  # the state is the caller's: it survives
        self._done, self._is_out, self._ended = step, False, self._clock()

    def _append(self, entry: Entry) -> None:
        try:
            self._study.journal.append(entry)
        except Conflict:
            raise StudyError(
                f"another job is at work on the run {self._study.name!r}: stop one of them, or give each a name"
            ) from None


def _require_online(policy: str | Policy) -> None:
    """A policy that races many trials makes no sense of one run. Policies of other people may know what they do."""
    where = policies.REGISTRY.get(str(policy if isinstance(policy, str) else getattr(policy, "name", "")))
    if where is not None and not where.startswith((_ONLINE, _FIXED)):
        ours = ", ".join(name for name, place in policies.REGISTRY.items() if place.startswith(_ONLINE))
        raise PolicyError(f"policy={policy!r} races several trials, and here there is one run: choose one of {ours}")


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
