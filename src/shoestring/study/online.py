"""Online tuning: one training run whose configuration changes from round to round, in the user's own loop.

    tuner = OnlineTuner(space, rounds=100, direction="max", store="run.db", validate_at_most="20%")
    while (config := tuner.next()) is not None:
        train_one_round(model, config)
        if tuner.should_validate:
            tuner.tell(accuracy(model))

The run is stored in the ledger of a study. A round is one order of trial 0. Its receipt has the time of the round and, if the
round was validated, the value.

When a job was killed, start it again and pass the number of rounds that your checkpoint contains: `OnlineTuner(…,
done_rounds=40)`. If the study has recorded 43 rounds, `next` returns the configurations of rounds 41 to 43 again, and these
rounds are not validated. Then the run continues as if it had not been interrupted. Save a checkpoint after `tell`, never before
it.

A value that is not a finite number ends the run, because the only model has diverged. `tell` then warns and says how to
continue.

The time of a round is measured: its training ends when `should_validate` is read (the last time, if it is read more than once),
and its validation ends when `tell` is called.

A `Schedule` has the configurations of all rounds. It can be used for other runs, which then need no validation.
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
from shoestring.core.ledger.entries import Cost, Entry, Order, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.core.values import checks
from shoestring.core.values.checks import is_whole
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import Conflict, PolicyError, StudyError, warn
from shoestring.policies.online.online_run import RUN, RunView
from shoestring.private_files import write_file
from shoestring.runners.runner import write_receipt
from shoestring.stores.addresses import DEFAULT_STORE
from shoestring.stores.ledger_store import LedgerStore
from shoestring.study.ask import read_seconds, read_value
from shoestring.study.begin import GivenDirection
from shoestring.study.decide import Thinking, decide
from shoestring.study.study import Study

_ROUNDS = RunView()
_ONLINE, _FIXED = "shoestring.policies.online.", "shoestring.policies.plain.replay_fixed:"


class OnlineTuner:
    """Tune the configuration of one training run while it trains, and decide when to validate.

    In each round, call `next` for the configuration, train with it, and if `should_validate` is true call `tell` with the
    validated value. `schedule` returns the configurations of all rounds when the run is over. The time and the value of each
    round are recorded in a study.

    When the job was killed, pass the number of rounds that your checkpoint contains, for example `done_rounds=40`. If the study
    has recorded 43 rounds, `next` returns the configurations of rounds 41 to 43 again, and these rounds are not validated
    (`is_replaying` is true). Then the run continues.

    Parameters
    ----------
    space : Space or mapping
        The parameters and their ranges, as for `tune`.
    rounds : int
        The number of rounds of the run. A round is the part of the training after which the configuration may change.
    policy : str or Policy, optional
        The policy, one of those for online tuning; the default is "ce_gp_ucb". `shoestring policies` lists the others.
    settings : mapping, optional
        Settings of the policy by name.
    direction : {"min", "max", "minimize", "maximize"}, optional
        Whether smaller or larger values are better.
    store : str, LedgerStore or None, optional
        Where the study is stored; by default, unlike in `tune`, in the file shoestring.db in the current folder. None: in
        memory only, so an interrupted run cannot continue.
    name : str, optional
        The name of the study in its store.
    done_rounds : int, optional
        The number of rounds that your checkpoint contains, when an interrupted run continues.
    budget : str or Budget, optional
        The budget of the study. None: enough epochs for all rounds and for a validation pass in each of them.
    validate_at_most : str, optional
        The limit on validation: "20%" of the budget, "30 passes", or "10m". None: that of the policy's settings.
    prices : Prices, optional
        The price of a validation pass in an epoch budget.
    initial : sequence of mapping, optional
        Configurations for the first rounds.
    seed : int, optional
        The seed of all random choices. None: a random seed is drawn and stored.
    clock : callable, optional
        Returns the current time in seconds; the rounds are measured with it.

    Attributes
    ----------
    round : int
        The number of the current round: 0 before the first `next`, which begins round 1. `tell` does not change it.
    should_validate : bool
        Whether the current round must be validated. Read it when the training of the round is done.
    is_replaying : bool
        Whether the current round was recorded before the run was interrupted, and is trained again.
    why : mapping
        The numbers behind the newest decision.
    study : Study
        The study that records the run.

    Raises
    ------
    PolicyError
        If the policy is not an online policy.
    StudyError
        If an argument is wrong, or the study does not have as many rounds as `done_rounds` says.

    Examples
    --------
    >>> from shoestring import Float, OnlineTuner, Space
    >>> tuner = OnlineTuner(Space({"lr": Float(0.01, 1.0, log=True)}), rounds=5, store=None, seed=0)
    >>> weight = 1.0
    >>> while (config := tuner.next()) is not None:
    ...     weight -= config["lr"] * weight
    ...     if tuner.should_validate:
    ...         tuner.tell(weight**2)
    >>> len(tuner.schedule())
    5
    """

    def __init__(
        self,
        space: Space | Mapping[str, Any],
        rounds: int,
        *,
        policy: str | Policy = "ce_gp_ucb",
        settings: Mapping[str, Any] | None = None,
        direction: GivenDirection = "min",
        store: str | LedgerStore | None = DEFAULT_STORE,
        name: str = "online",
        done_rounds: int = 0,
        budget: str | Budget | None = None,
        validate_at_most: str | None = None,
        prices: Prices | None = None,
        initial: Sequence[Config] = (),
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _require_online(policy)
        rounds = checks.check_whole("rounds", rounds, 1)
        given = checks.check_mapping("settings", settings, "{'kappa': 0.8}")
        checks.check_function("clock", clock, "time.monotonic")
        limit = {} if validate_at_most is None else {"validate_at_most": validate_at_most}
        passes = prices.validate_epochs if isinstance(prices, Prices) else 0.0
        self._study = Study.begin(
            space,
            budget if budget is not None else f"{math.ceil(rounds * (1 + passes))} epochs",
            name=name,
            store=store,
            max_steps=rounds,
            direction=direction,
            policy=policy,
            settings={**given, **limit},
            seed=seed,
            prices=prices,
            initial=initial,
        )
        self._policy = self._study.policy
        self._clock = clock
        self._zero = clock() - self._study.ledger.state.clock
        self._thinking = Thinking(clock)
        self._done = done_rounds  # rounds that the user's model was trained for
        self._is_round_open = False  # a round was returned by `next` and is not recorded yet
        self._setup_s = 0.0  # seconds between the end of the previous round and the start of this one
        # The end of the previous round, the start of this one, and the end of its training.
        self._ended = self._began = self._trained = clock()
        self._continue(done_rounds)

    # the loop --------------------------------------------------------------------------------------------------------

    def next(self) -> dict[str, Any] | None:
        """End the current round, and return the configuration of the next one.

        Returns
        -------
        dict or None
            The configuration to train the next round with; None if the run or its budget has ended.

        Raises
        ------
        StudyError
            If `should_validate` is true and `tell` was not called.
        """
        if self._is_round_open:
            if self._needs_value():
                raise StudyError(
                    f"round {self.round} has should_validate=True, but no value was reported: call tell(value) before next()"
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
        self._is_round_open = True
        self._began = self._trained = self._clock()
        return self._study.given_space.with_objects(config)

    @property
    def round(self) -> int:
        """The number of the current round, from 1; between two rounds, the one that has just ended."""
        return self._done + self._is_round_open

    @property
    def should_validate(self) -> bool:
        """Whether the current round must be validated. Reading it marks the end of the round's training."""
        self._trained = self._clock()
        return self._needs_value()

    def tell(self, value: float, *, validate_s: float | None = None) -> None:
        """Report the value of the current round.

        Parameters
        ----------
        value : float
            The value of the validation.
        validate_s : float, optional
            Seconds that the validation took; None: the time since `should_validate` was read.

        Raises
        ------
        StudyError
            If `should_validate` is false, or an argument is wrong.

        Warns
        -----
        UserWarning
            If the value is not a finite number: the run has diverged and ends.
        """
        if not self._needs_value():
            raise StudyError(
                f"round {self.round} is not to be validated: call tell(value) only if should_validate is true, "
                "and once, after training the round"
            )
        number, now = read_value(value), self._clock()
        if number is None:
            raise StudyError(f"round {self.round} was validated: its value must be a number, not None")
        given_s = read_seconds(validate_s, "validate_s")
        validate_s = now - self._trained if given_s is None else given_s
        self._record(number, max(0.0, now - self._began - validate_s), validate_s)
        if not math.isfinite(number):
            warn(
                f"the value of round {self.round} is {number}: the run has diverged and ends here; to continue, report a bad but "
                f"finite number instead, or begin again under another name from a checkpoint before round {self.round}"
            )

    # results ---------------------------------------------------------------------------------------------------------

    @property
    def study(self) -> Study:
        """The study that records the run."""
        return self._study

    @property
    def is_replaying(self) -> bool:
        """Whether the current round was recorded before the run was interrupted, and is trained again."""
        return self._is_round_open and self._done < self._steps

    @property
    def why(self) -> Mapping[str, Any]:
        """The numbers behind the newest decision; empty before the first decision."""
        orders = self._study.ledger.orders
        return orders[-1].why if orders else {}

    def schedule(self) -> Schedule:
        """Return the configurations of all rounds trained so far.

        Returns
        -------
        Schedule
            One configuration for each round.
        """
        return Schedule.of(self._study.ledger)

    # the ledger ------------------------------------------------------------------------------------------------------

    @property
    def _steps(self) -> int:
        return self._study.ledger.trials[RUN].steps if self._study.ledger.trials else 0

    def _open_order(self) -> Order | None:
        number = self._study.ledger.trials[RUN].open_order if self._study.ledger.trials else None
        return None if number is None else self._study.ledger.open_orders[number].order

    def _needs_value(self) -> bool:
        order = self._open_order()
        return (
            self._is_round_open and order is not None and self._done == self._steps and order.validates(self._done + 1)
        )

    def _continue(self, done: int) -> None:
        """Continue from a checkpoint after `done` rounds."""
        order = self._open_order()
        furthest = self._steps + (order is not None)
        if not (is_whole(done) and 0 <= done <= furthest):
            raise StudyError(
                f"done_rounds={done!r}: the study {self._study.name!r} has rounds 1 to {furthest}; "
                "load the checkpoint of this run, or give the new run another name"
            )
        if not self._study.ledger.trials:
            return
        resumable_step = min(done, self._steps)
        if resumable_step != self._study.ledger.trials[RUN].resumable_step:
            self._append(
                StateLoss(
                    trial=RUN, resumable_step=resumable_step, why=f"the run continues after round {resumable_step}"
                )
            )
        if done > self._steps:  # the newest round was trained and saved, but not recorded
            self._done, self._is_round_open = done - 1, True

    def _decide(self) -> Order | None:
        """Record and return the order of the next round; None if the policy orders no further round."""
        self._thinking.start_over()
        _, order = decide(self._study.ledger, self._policy, self._thinking, self._now)
        if order is not None:
            if order.trial != RUN:
                raise StudyError(
                    f"the policy {self._policy.name} began trial {order.trial}, but an online run has only trial 0"
                )
            self._append(order)
        return order

    def _now(self) -> float:
        """Return the time on the study's clock, which stops between two jobs."""
        return self._clock() - self._zero

    def _record(self, value: float | None, train_s: float, validate_s: float) -> None:
        order, step = self._open_order(), self._done + 1
        if order is not None:  # a repeated round of a finished run has no order and needs no receipt
            cost, at = Cost(setup=self._setup_s, train=train_s, validate=validate_s), self._now()
            self._append(write_receipt(order, step, value, cost, at=at, saved_step=step))  # the user saves the state
        self._done, self._is_round_open, self._ended = step, False, self._clock()

    def _append(self, entry: Entry) -> None:
        try:
            self._study.journal.append(entry)
        except Conflict:
            raise StudyError(
                f"another job is training the run {self._study.name!r}: stop one of them, or give each its own name"
            ) from None


def _require_online(policy: str | Policy) -> None:
    """Raise an error for a registered policy that trains several trials; policies of other authors are not checked."""
    where = policies.REGISTRY.get(str(policy if isinstance(policy, str) else getattr(policy, "name", "")))
    if where is not None and not where.startswith((_ONLINE, _FIXED)):
        ours = ", ".join(name for name, place in policies.REGISTRY.items() if place.startswith(_ONLINE))
        raise PolicyError(
            f"policy={policy!r} trains several trials, but an online run has only one: choose one of {ours}"
        )


@dataclass(frozen=True)
class Schedule:
    """One configuration for each round of a run, found by online tuning, to be used in other runs.

    Iterating over it yields the configuration of each round; `len` is the number of rounds.

    Attributes
    ----------
    configs : tuple of mapping
        The configuration of each round.

    Examples
    --------
    >>> from shoestring import Schedule
    >>> [config["lr"] for config in Schedule(({"lr": 0.1}, {"lr": 0.1}, {"lr": 0.01}))]
    [0.1, 0.1, 0.01]
    """

    configs: tuple[Config, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(config, Mapping) for config in checks.check_configs("configs", self.configs)):
            raise StudyError(f"configs={self.configs!r} must be dicts of parameters, one for each round")

    @classmethod
    def of(cls, ledger: Ledger) -> Schedule:
        """Return the configurations of the recorded rounds of an online run.

        Parameters
        ----------
        ledger : Ledger
            The ledger of the run's study: `study.ledger`.

        Returns
        -------
        Schedule
            One configuration for each recorded round.
        """
        return cls(tuple(ledger.view(RunView()).configs))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(config) for config in self.configs)

    def __len__(self) -> int:
        return len(self.configs)

    def config(self, round: int) -> dict[str, Any]:
        """Return the configuration of one round.

        Parameters
        ----------
        round : int
            The number of the round, from 1. After the last round, its configuration is returned.

        Returns
        -------
        dict
            The configuration.

        Raises
        ------
        StudyError
            If the schedule has no rounds, or the number is wrong.
        """
        round = checks.check_whole("round", round, 1, f"rounds of this schedule are counted from 1 to {len(self)}")
        if not self.configs:
            raise StudyError(f"there is no round {round}: the schedule has no rounds; train the run first")
        return dict(self.configs[min(round, len(self)) - 1])

    def save(self, path: str | Path) -> None:
        """Write the schedule as JSON, one entry for each span of rounds with the same configuration.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        StudyError
            If a configuration cannot be written as JSON.
        """
        try:
            spans = [(key, len(list(same))) for key, same in groupby(map(dumps, self.configs))]
        except (TypeError, ValueError, RecursionError) as error:
            raise StudyError(f"the schedule cannot be written: {error}") from None
        body = {"shoestring_schedule": 1, "spans": [{"rounds": n, "config": json.loads(key)} for key, n in spans]}
        write_file(Path(path), (json.dumps(body, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Schedule:
        """Read a schedule that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Schedule
            The schedule.

        Raises
        ------
        StudyError
            If the file is not a schedule.
        """
        try:
            body = loads(Path(path).read_text(encoding="utf-8"))
            if body["shoestring_schedule"] != 1:
                raise ValueError(f"its version is {body['shoestring_schedule']!r}, not 1")
            return cls(tuple(span["config"] for span in body["spans"] for _ in range(span["rounds"])))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StudyError(f"{str(path)!r} is not a schedule: {error}; write one with Schedule.save(path)") from None
