"""A study: a ledger in a store, with a name. Begin or open one, look at it, run it, or ask it what to train and tell it.

`tune` (tuning.py) does all of it in one call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from shoestring import policies
from shoestring.core.books import Trial
from shoestring.core.continuing import amendment, check
from shoestring.core.entries import Amended, Direction, Entry, Note, Opened, Order
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget, Prices, duration_s
from shoestring.core.policy import Policy
from shoestring.core.space import Config, Space
from shoestring.core.strict_json import dumps
from shoestring.errors import Conflict, Leased, PolicyError, StudyError, did_you_mean
from shoestring.runners.runner import Runner
from shoestring.stores.store import Store
from shoestring.study.ask import next_order, next_receipt, overdue
from shoestring.study.loop import Outcome
from shoestring.study.spending import Observe, Spending

if TYPE_CHECKING:
    import pandas

E = TypeVar("E", bound=Entry)


@dataclass(frozen=True)
class Best:
    """The best value that was bought, and what it takes to have it again."""

    config: Config
    value: float
    trial: int
    step: int
    checkpoint: Path | None  # of exactly this step, when the training code can save


class Study:
    """A ledger in a store, with a name."""

    def __init__(
        self, store: Store, name: str, ledger: Ledger, checkpoints: Path | None = None, policy: Policy | None = None
    ) -> None:
        self.store, self.name, self._ledger, self._policy_given = store, name, ledger, policy
        self.checkpoints = checkpoints or checkpoint_root(store, name)
        self.outcome: Outcome | None = None

    # opening ---------------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, name: str | None = None, store: str | Store = "sqlite:///shoestring.db") -> Study:
        """An existing study; without a name, the only one in the store."""
        from shoestring.stores.opening import open_store

        opened = open_store(store, must_exist=True)
        names = opened.studies()
        if name is None:
            if len(names) != 1:
                told = f"it holds {len(names)}: {', '.join(names)}" if names else "it holds none"
                raise StudyError(f"which study of {opened.where}? {told}; name one with --study NAME")
            name = names[0]
        ledger = opened.load(name)
        if ledger is None:
            raise StudyError(f"there is no study {name!r} in {opened.where}. {did_you_mean(name, names)}")
        return cls(opened, name, ledger)

    @classmethod
    def begin(
        cls,
        space: Space | Mapping[str, Any],
        budget: str | Budget,
        *,
        name: str = "study",
        store: str | Store | None = None,
        max_steps: int = 1,
        direction: Direction = "min",
        policy: str | Policy = policies.DEFAULT,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        workers: int = 1,
        prices: Prices | None = None,
        initial: Sequence[Config] = (),
        target: Mapping[str, Any] | None = None,
    ) -> Study:
        """A new study, or the one of that name going on: a changed budget, policy or number of workers is amended."""
        from shoestring.stores.opening import open_store

        if not isinstance(policy, Policy):
            policy = policies.make(policy, settings)
        elif settings:
            raise PolicyError(
                f"settings={settings!r} are given beside the policy {policy!r}: give them to the policy itself"
            )
        wanted = Opened(
            space=space if isinstance(space, Space) else Space.from_dict(space),
            budget=Budget(budget),
            policy=policy.name,
            settings=policies.settings_of(policy),
            seed=int.from_bytes(os.urandom(4)) if seed is None else seed,
            direction=direction,
            max_steps=max_steps,
            prices=prices or Prices(),
            workers=workers,
            target=target or {},
        )
        check(wanted)
        configs = [wanted.space.validate(config) for config in initial]
        opened = open_store(store)
        while True:
            ledger = opened.load(name)
            entries: list[Entry] = [wanted, *_queued(configs)]
            if ledger is not None:
                change = amendment(ledger, name, wanted, seed_given=seed is not None)
                known = ledger.books.used | {dumps(config) for config in ledger.queue}
                entries = [*([change] if change else []), *_queued([c for c in configs if dumps(c) not in known])]
            try:
                # A change is not made under the feet of somebody who runs the study: that says who it is.
                alone = opened.lease(name) if any(isinstance(entry, Amended) for entry in entries) else nullcontext()
                with alone:
                    ledger = opened.append(name, ledger, *entries)
                return cls(opened, name, ledger, policy=policy)
            except Conflict:  # somebody began or changed it at this very moment
                continue

    # what it holds -----------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    @property
    def trials(self) -> Sequence[Trial]:
        return self._ledger.trials

    @property
    def spent(self) -> float:
        return self._ledger.spent

    @property
    def best(self) -> Best | None:
        """The best value that was bought, None before the first one."""
        trial = self._ledger.best
        if trial is None:
            return None
        value = trial.values[trial.best_step - 1]
        assert value is not None
        from shoestring.runners.checkpoints import Checkpoints

        assert trial.best_config is not None
        path = Checkpoints(self.checkpoints).of_step(trial.number, trial.best_step, newest=trial.saved)
        return Best(trial.best_config, value, trial.number, trial.best_step, path)

    def explain(self, number: int) -> Order:
        """The order of that number: what was decided, and in `why` what it was decided on."""
        orders = self._ledger.orders
        if not 0 <= number < len(orders):
            known = f"orders 0 to {len(orders) - 1}" if orders else "no orders yet"
            raise StudyError(f"there is no order {number}: the study {self.name!r} has {known}")
        return orders[number]

    def to_frame(self) -> pandas.DataFrame:
        """One row a finished step."""
        try:
            import pandas
        except ImportError:
            from shoestring.errors import MissingExtra

            raise MissingExtra("Study.to_frame", "pandas", "frames") from None
        from shoestring.reports.export import step_rows

        return pandas.DataFrame(list(step_rows(self._ledger)))

    # going on ----------------------------------------------------------------------------------------------------------

    def amend(self, change: Amended) -> None:
        with self.store.lease(self.name):
            self._append(lambda ledger: [change])

    def enqueue(self, config: Config) -> None:
        """Have this config tried before the policy's own."""
        queued = _queued([self._ledger.space.validate(config)])
        self._append(lambda ledger: queued)

    def run(
        self,
        runner: Runner,
        *,
        deadline: str | float | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        observe: Observe = lambda ledger, entry: None,
    ) -> Outcome:
        """Spend what is left. Only one process at a time may do that; a step that a crash cut off is charged now."""
        seconds = duration_s(deadline, "deadline") if isinstance(deadline, str) else deadline
        with self.store.lease(self.name) as lease:
            self._ledger = self.store.refresh(self.name, self._ledger)
            spending = Spending(self.store, self.name, lease, self._ledger, keep=self._keep)
            self.outcome = spending.spend(self._policy(), runner, seconds, should_stop, observe)
        if lease.lost:
            raise Leased(f"the study {self.name!r} was taken over by another process: this one has stopped")
        return self.outcome

    def _keep(self, ledger: Ledger) -> None:
        self._ledger = ledger

    # for people who own their loop -------------------------------------------------------------------------------------

    def ask(self, give_up_after: str | float | None = None) -> Order | None:
        """What to train next, or None: for ever if no order is open, else until somebody has told about one.

        Orders may be asked for and told about on several machines: the budget holds all the same. An order that nobody
        told about for `give_up_after` is released.
        """
        patience_s = duration_s(give_up_after) if isinstance(give_up_after, str) else give_up_after
        self._append(lambda ledger: overdue(ledger, patience_s))
        return next(iter(self._append(lambda ledger: _listed(next_order(ledger, self._policy())))), None)

    def tell(
        self, order: Order, value: float | None = None, cost_s: float | None = None, *, failed: str | None = None
    ) -> None:
        """The next step of an asked order is done: its value (and seconds, else the clock's), or the text of its failure."""
        self._append(lambda ledger: [next_receipt(ledger, order, value, cost_s, failed)])

    def _policy(self) -> Policy:
        """The study's policy: the very object it was begun with, unless it has been changed since."""
        given, books = self._policy_given, self._ledger.books
        if given is None or (given.name, dumps(policies.settings_of(given))) != (books.policy, dumps(books.settings)):
            return policies.make(books.policy, books.settings)
        return given

    def _append(self, entries_for: Callable[[Ledger], Sequence[E]]) -> Sequence[E]:
        """Append what the newest ledger calls for; when somebody else was quicker, ask for it again."""
        while True:
            self._ledger = self.store.refresh(self.name, self._ledger)
            entries = entries_for(self._ledger)
            try:
                if entries:
                    self._ledger = self.store.append(self.name, self._ledger, *entries)
                return entries
            except Conflict:
                continue


def checkpoint_root(store: Store, name: str) -> Path:
    """Beside the database of the store, else in the present folder; nothing is made before code that can save is run."""
    beside = getattr(store, "path", None)  # a database file
    folder = Path(f"{beside}.checkpoints") if beside else Path("shoestring.checkpoints")
    plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
    # Names that look alike as files, studies of one name on several servers, studies in memory: told apart by a tail.
    tail = "" if plain == name else blake2b(name.encode(), digest_size=4).hexdigest()
    if beside is None:
        tail = getattr(store, "token", "") or blake2b(f"{store.where} {name}".encode(), digest_size=4).hexdigest()
    return folder / (f"{plain}-{tail}" if tail else plain)


def _listed(order: Order | None) -> list[Order]:
    return [] if order is None else [order]


def _queued(configs: Sequence[Config]) -> list[Note]:
    return [Note(topic="enqueue", facts={"config": config}) for config in configs]
