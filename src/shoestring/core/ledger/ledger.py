"""The ledger: the whole past of a study as a list of entries, and everything that follows from these entries.

Entries are only added, never changed. What follows from them (the study's state, and other tables called views) is updated with
each new entry instead of being computed again from all entries.

`append` consumes the ledger: it hands entries, state and views over to the successor that it returns, and updates them in
place. Reading the state of the old ledger afterwards raises `StaleLedger`. Its entries can still be read, and `fork`
makes an independent ledger of them. So `ledger = ledger.append(entry)` is the way to use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from shoestring.core.deciding.decision import Memo
from shoestring.core.ledger.accounting import StudyStateView
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Order, StudyDefinition, from_stored
from shoestring.core.ledger.lazy_list import LazyList
from shoestring.core.ledger.state import OpenOrder, StudyState, Trial
from shoestring.core.ledger.views import LossesAt, View
from shoestring.core.space.space import Config, Space
from shoestring.core.values.randomness import stream
from shoestring.errors import StaleLedger, StudyError

S = TypeVar("S")
_STATE_VIEW = StudyStateView()


class Ledger:
    """All entries of a study up to now, and what follows from them.

    Parameters
    ----------
    entries : iterable of Entry
        The entries of the study in order. The first one is `StudyDefinition`.

    Attributes
    ----------
    definition : StudyDefinition
        The first entry.
    is_consumed : bool
        Whether an entry was appended to this ledger. Then only its entries can be read.

    Raises
    ------
    StudyError
        If the first entry is not `StudyDefinition`.
    """

    __slots__ = ("_count", "_entries", "_proposal", "_state", "_views", "definition", "is_consumed")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: list[Entry] | LazyList[Entry] = list(entries)
        self._count = len(self._entries)
        self._views: dict[Any, tuple[Any, int]] = {}
        self._proposal: tuple[Entry, Ledger] | None = None  # an entry that was proposed, and the ledger that holds it
        self.is_consumed = False
        # The state is read dozens of times per decision, so it is not looked up among the views.
        self._state: StudyState | None = None
        first = self._entries[0] if self._entries else None
        if not isinstance(first, StudyDefinition):
            raise StudyError("a ledger begins with an `opened` entry")
        self.definition = first

    @classmethod
    def restore(
        cls, definition: StudyDefinition, state: StudyState, count: int, load: Callable[[], list[Entry]]
    ) -> Ledger:
        """Return a ledger whose state is known, and whose entries are read only when one of them is needed.

        Parameters
        ----------
        definition : StudyDefinition
            The first entry.
        state : StudyState
            The state of the study after all entries.
        count : int
            Number of entries.
        load : callable
            Reads the entries.

        Returns
        -------
        Ledger
            The ledger.
        """
        ledger = cls([definition])
        ledger._entries, ledger._count = LazyList(count, load), count
        ledger._views[_STATE_VIEW] = (state, count)
        return ledger

    # entries ---------------------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> Ledger:
        """Return the ledger with one more entry; this one is consumed.

        Parameters
        ----------
        entry : Entry
            The entry to add.

        Returns
        -------
        Ledger
            The successor.

        Raises
        ------
        StaleLedger
            If an entry was appended to this ledger before.
        DecisionError, StudyError
            If the entry breaks a rule. Then this ledger is not consumed.
        """
        successor = self.propose(entry)
        self.consume()
        return successor

    def consume(self) -> None:
        """Mark this ledger as consumed. It is called when the entry that was proposed has been stored.

        From then on only the entries of this ledger can be read; use the ledger that `propose` returned.
        """
        self._proposal, self.is_consumed = None, True

    def propose(self, entry: Entry) -> Ledger:
        """Return the ledger with one more entry, before the entry is stored; this ledger is not consumed yet.

        When the entry is stored, call `consume`. If it is never stored, this ledger can be used as before. But its state and
        its views were handed over to the successor, so they are computed again from all entries when they are next read.

        Parameters
        ----------
        entry : Entry
            The entry that may be appended.

        Returns
        -------
        Ledger
            The successor. A second call with the same object, also through `append`, returns the same successor.

        Raises
        ------
        StaleLedger, DecisionError, StudyError
            As for `append`.
        """
        if self._proposal is None or self._proposal[0] is not entry:
            if self.is_consumed:
                self._raise_stale()
            self._proposal = entry, self._make_successor(entry)
        return self._proposal[1]

    def _make_successor(self, entry: Entry) -> Ledger:
        successor = object.__new__(Ledger)
        successor.definition = self.definition
        # The list is shared with the successor. If an earlier proposal was dropped, the next successor gets its own copy.
        entries: list[Entry] | LazyList[Entry]
        entries = self._entries if len(self._entries) == self._count else self._entries[: self._count]
        entries.append(entry)
        successor._entries, successor._count = entries, self._count + 1
        successor._views, self._views = self._views, {}
        successor._state = self._state = successor._proposal = None
        successor.is_consumed = False
        try:  # an entry that breaks a rule is refused here, before anything is stored
            successor._state = successor.view(_STATE_VIEW)
        except Exception:
            entries.pop()
            raise
        return successor

    def _raise_stale(self) -> NoReturn:
        raise StaleLedger(
            f"an entry was appended to this ledger of {self._count} entries: use the ledger that `append` returned, "
            "or `fork()` of this one"
        )

    def fork(self, count: int | None = None) -> Ledger:
        """Return an independent ledger of the first `count` entries, for example to replay a part of the study.

        Parameters
        ----------
        count : int, optional
            Number of entries; without it, or if it is larger than the ledger, all of them.

        Returns
        -------
        Ledger
            A ledger that shares entries with this one, but no state and no views.
        """
        return Ledger(self._entries[: self._count if count is None else min(count, self._count)])

    def __len__(self) -> int:
        return self._count

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the bodies of all entries; state and views are computed again when it is loaded."""
        return _from_bodies, ([(entry.kind, entry.body()) for entry in self.entries()],)

    def entries(self, start: int = 0) -> list[Entry]:
        """Return the entries from number `start` on.

        Parameters
        ----------
        start : int
            Number of the first entry to return; entries are numbered from 0.

        Returns
        -------
        list of Entry
            A new list.
        """
        return self._entries[start : self._count]

    def view(self, view: View[S]) -> S:
        """Return a table that is computed from all entries, such as the losses of all trials after one step.

        The table is kept, so the next call only adds the entries that are new.

        Parameters
        ----------
        view : View
            Describes what is computed; see `View`.

        Returns
        -------
        S
            The table, which is called the state of the view. It belongs to the ledger: read it, never change it.

        Raises
        ------
        StaleLedger
            If an entry was appended to this ledger.
        """
        if self.is_consumed:
            self._raise_stale()
        found = self._views.get(view)
        state, done = found if found is not None else (view.start(self.definition), 1)
        if done < self._count:
            absorb = view.absorb
            for i in range(done, self._count):
                state = absorb(state, self._entries[i])
            self._views[view] = (state, self._count)
        elif found is None:
            self._views[view] = (state, done)
        return state

    # what the study is -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> StudyState:
        """The trials, the orders and the totals of the study; see `StudyState`."""
        if self._state is None:
            self._state = self.view(_STATE_VIEW)
        return self._state

    @property
    def space(self) -> Space:
        """The search space."""
        return self.definition.space

    @property
    def max_steps(self) -> int:
        """The number of steps of a full training."""
        return self.definition.max_steps

    @property
    def budget(self) -> Budget:
        """The budget of the whole study, as last amended."""
        return self.state.budget

    @property
    def workers(self) -> int:
        """The number of workers, as last amended."""
        return self.state.workers

    # what happened ---------------------------------------------------------------------------------------------------

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials, in the order of their numbers."""
        return self.state.trials

    @property
    def orders(self) -> Sequence[Order]:
        """All orders, in the order of their numbers."""
        return self.state.orders

    @property
    def open_orders(self) -> dict[int, OpenOrder]:
        """The orders whose last step has not been reported yet, by number."""
        return self.state.open_orders

    @property
    def best(self) -> Trial | None:
        """The trial with the best value so far; None before the first value.

        The value is that of its step `best_step`. If several trials have this value, it is the one that reported it first.
        """
        state = self.state
        return None if state.best_trial is None else state.trials[state.best_trial]

    @property
    def memo(self) -> Memo:
        """The memo of the newest order that the current policy decided; empty if it has decided none."""
        state = self.state
        return state.orders[-1].memo if len(state.orders) > state.first_own_order else {}

    def former_configs(self, trial: int) -> list[Config]:
        """Return the config of each finished step of a trial.

        Steps whose trained state was lost are trained again with these configs.

        Parameters
        ----------
        trial : int
            Number of the trial.

        Returns
        -------
        list of Config
            One config for each finished step. The list is empty if the config of this trial never changed.
        """
        state = self.state
        past = state.trials[trial]
        return [state.orders[number].config for number in past.step_orders] if past.is_retuned else []

    def losses_at(self, step: int) -> list[tuple[float, int]]:
        """Return the losses of all trials that were validated at exactly this step.

        Parameters
        ----------
        step : int
            The step.

        Returns
        -------
        list of (float, int)
            Pairs (loss, trial), best first.
        """
        return self.view(LossesAt(step))[1]

    # the budget ------------------------------------------------------------------------------------------------------

    @property
    def spent(self) -> float:
        """What was charged so far, in the budget's unit."""
        return self.state.spent

    @property
    def reserved(self) -> float:
        """What the open orders may still cost, in the budget's unit."""
        return self.state.reserved

    @property
    def left(self) -> float:
        """What a new order may cost: the part of the budget that is neither spent nor reserved."""
        return max(0.0, self.budget.total - self.spent - self.reserved)

    def step_price(self, trial: int | None = None) -> float:
        """Return the mean price of one more step in the budget's unit, overhead included.

        In a budget of time or money, the cost of decisions and repeated steps is spread evenly over all steps so far.

        Parameters
        ----------
        trial : int, optional
            A trial whose own step costs are used if it has any. Without it the mean is over all trials.

        Returns
        -------
        float
            The price; NaN before the first step.
        """
        state = self.state
        if state.budget.unit == "epochs":
            return 1.0 + self.definition.prices.validate_epochs
        rate = state.budget.per_second(state.workers)
        if not state.step_costs:
            return math.nan
        price = state.seconds / len(state.step_costs) * rate
        if trial is not None and trial < len(state.trials) and (own := state.trials[trial].step_costs):
            mean = state.step_seconds / len(state.step_costs)
            return price * (math.fsum(own) / len(own) / mean) if mean > 0 else price
        return price

    # randomness ------------------------------------------------------------------------------------------------------

    def rng(self, name: str, *numbers: int) -> np.random.Generator:
        """Return the random generator of this name, for numbers that are drawn once in a study.

        Parameters
        ----------
        name : str
            Name of the stream.
        *numbers : int
            Further parts of the name.

        Returns
        -------
        numpy.random.Generator
            A new generator; the same study, name and numbers always give the same one.
        """
        return stream(self.definition.seed, name, *numbers)

    def decision_rng(self) -> np.random.Generator:
        """Return the random generator of the next decision.

        Returns
        -------
        numpy.random.Generator
            A new generator. It depends only on the study's seed and the number of orders so far.
        """
        return stream(self.definition.seed, "decide", len(self.orders))

    # configs ---------------------------------------------------------------------------------------------------------

    @property
    def queue(self) -> Sequence[Config]:
        """Configs that the user queued, to be tried before those of the policy."""
        return self.state.queue


def _from_bodies(bodies: list[tuple[str, dict[str, Any]]]) -> Ledger:
    return Ledger(from_stored(kind, body) for kind, body in bodies)
