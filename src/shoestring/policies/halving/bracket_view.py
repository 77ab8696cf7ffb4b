"""Which brackets are under way, who is in them, and which of them want to be looked at.

A bracket belongs to the trials that were opened while it was the newest; each of its rungs above the first begins with an
order whose memo lists the arms that are kept (see `rounds`). With many workers there are many brackets under way, nearly all
of them waiting for one long training, so a decision looks only at those in which something has happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shoestring.core.decision import Memo
from shoestring.core.entries import Amended, Entry, Lost, Note, Opened, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.policies.halving.rounds import Round, read_round


@dataclass(slots=True)
class Brackets:
    """All brackets that are not through."""

    newest: int = 0
    rounds: dict[int, Round] = field(default_factory=dict)  # bracket -> its present rung
    bracket_of: dict[int, int] = field(default_factory=dict)  # by trial
    open_orders: dict[int, Order] = field(default_factory=dict)
    under_way: dict[int, set[int]] = field(default_factory=dict)  # bracket -> numbers of its open orders
    stirred: set[int] = field(default_factory=set)  # brackets in which an order was closed, or may have been
    trials: int = 0  # opened in the whole study

    def look_at(self) -> list[int]:
        """Brackets in which something may be bought, the oldest first."""
        return sorted(self.stirred)

    def waits(self, bracket: int, ledger: Ledger) -> bool:
        """Whether an arm of it is being trained."""
        return any(number in ledger.open_orders for number in self.under_way.get(bracket, ()))

    def enter(self, order: Order) -> None:
        for number in order.memo.get("through", ()):
            self._forget(int(number))
        if "arms" in order.memo:
            now = read_round(order, self.trials)
            self.newest = max(self.newest, int(now.facts[0]))
            self.rounds[int(now.facts[0])] = now
        if order.trial == self.trials:
            self.trials += 1
            self.bracket_of[order.trial] = self.newest
            self.rounds.setdefault(self.newest, Round((self.newest, 0))).arms.append(order.trial)
        bracket = self.bracket_of.get(order.trial, -1)
        if bracket not in self.rounds:
            return
        now = self.rounds[bracket]
        now.move_cursor(order.trial)
        self.open_orders[order.number] = order
        self.under_way.setdefault(bracket, set()).add(order.number)
        self.stirred.discard(bracket)
        if now.cursor < now.listed:
            self.stirred.add(bracket)

    def close(self, number: int) -> None:
        order = self.open_orders.pop(number, None)
        if order is not None:
            bracket = self.bracket_of[order.trial]
            self.under_way[bracket].discard(number)
            self.stirred.add(bracket)

    def _forget(self, bracket: int) -> None:
        self.rounds.pop(bracket, None)
        self.under_way.pop(bracket, None)
        self.stirred.discard(bracket)


@dataclass(frozen=True, slots=True)
class BracketsView:
    """The brackets of the policy at work; a change of policy forgets them."""

    def start(self, opened: Opened) -> Brackets:
        return Brackets()

    def absorb(self, state: Brackets, entry: Entry) -> Brackets:
        if isinstance(entry, Receipt):
            order = state.open_orders.get(entry.order)
            if order is not None and (entry.status != "ok" or entry.step == order.until):
                state.close(entry.order)
        elif isinstance(entry, Order):
            state.enter(entry)
        elif isinstance(entry, Note) and entry.topic in ("ended", "released"):
            state.close(entry.facts["order"])
        elif isinstance(entry, Lost) and entry.death and entry.trial in state.bracket_of:
            state.stirred.add(state.bracket_of[entry.trial])  # the third death of a trial closes its order
        elif isinstance(entry, Amended) and entry.policy is not None:
            state = Brackets(trials=state.trials)
        return state


BRACKETS_VIEW = BracketsView()


def note_through(memo: Memo, brackets: Iterable[int]) -> Memo:
    """The memo of an order before which these brackets were found to be through."""
    through = [float(number) for number in brackets]
    return {**memo, "through": through} if through else memo
