"""Beginning a study: from what a user says to its first entry, or to what changes about a study that is there already."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from shoestring import policies
from shoestring.core.continuing import find_amendment, require_possible
from shoestring.core.entries import Amended, Direction, Entry, Note, Opened
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget, Prices
from shoestring.core.policy import Policy
from shoestring.core.space import Config, Space
from shoestring.core.strict_json import dumps
from shoestring.core.texts import rule_of_name
from shoestring.errors import Conflict, PolicyError, StudyError
from shoestring.stores.store import Store
from shoestring.study.journal import Journal


def make_opened(
    space: Space | Mapping[str, Any],
    budget: str | Budget,
    policy: Policy,
    *,
    seed: int | None,
    direction: Direction,
    max_steps: int,
    prices: Prices | None,
    workers: int,
    target: Mapping[str, Any] | None,
) -> Opened:
    """The entry that opens such a study; an error if no such study is possible."""
    opened = Opened(
        space=space if isinstance(space, Space) else Space.from_dict(space),
        budget=Budget(budget),
        policy=policy.name,
        settings=_storable(policies.settings_of(policy), policy.name),
        seed=int.from_bytes(os.urandom(4)) if seed is None else seed,
        direction=direction,
        max_steps=max_steps,
        prices=prices or Prices(),
        workers=workers,
        target=target or {},
    )
    require_possible(opened)
    return opened


@dataclass(frozen=True)
class Unsaid:
    """What the user left open about a study: one that is there already keeps its own."""

    seed: bool = False
    workers: bool = False
    policy: bool = False
    settings: Mapping[str, Any] | None = None  # given without the name of a policy: for the one that the study has

    def fill_in(self, wanted: Opened, ledger: Ledger | None) -> Opened:
        """`wanted`, with the study's own where nothing was said."""
        books = None if ledger is None else ledger.books
        if books is not None and self.workers:
            wanted = replace(wanted, workers=books.workers)
        if books is not None and self.policy and not self.settings:
            return replace(wanted, policy=books.policy, settings=books.settings)
        if not (self.policy and self.settings):
            return wanted
        name, own = (policies.DEFAULT, {}) if books is None else (books.policy, books.settings)
        chosen = policies.make(name, {**own, **self.settings})
        return replace(wanted, policy=name, settings=_storable(policies.settings_of(chosen), name))


def begin(store: Store, name: str, wanted: Opened, first_configs: Sequence[Config], unsaid: Unsaid) -> Journal:
    """A new study, or the one of that name with what `wanted` changes about it; the journal tells what that is."""
    if problem := rule_of_name(name):
        raise StudyError(f"{problem}: give it another")
    configs = [wanted.space.validate(config) for config in first_configs]
    while True:
        ledger = store.load(name)
        filled_in = unsaid.fill_in(wanted, ledger)
        entries: list[Entry] = [filled_in, *queue_notes(configs)]
        if ledger is not None:
            entries = _list_changes(ledger, name, filled_in, configs, seed_given=not unsaid.seed)
        change = next((entry for entry in entries if isinstance(entry, Amended)), None)
        try:
            # An amendment is not made while somebody runs the study: taking the lease would say who does.
            with nullcontext() if change is None else store.lease(name):
                return Journal(store, name, store.append(name, ledger, *entries), change)
        except Conflict:  # somebody began or changed it at this very moment
            continue


def queue_notes(configs: Sequence[Config]) -> list[Note]:
    """The entries that have these configs tried before the policy's own."""
    return [Note(topic="enqueue", facts={"config": config}) for config in configs]


def _storable(settings: dict[str, Any], policy: str) -> dict[str, Any]:
    """The settings, if the ledger can keep them."""
    for name, value in settings.items():
        try:
            dumps(value)
        except (TypeError, ValueError) as error:
            raise PolicyError(
                f"the setting {name!r} of the policy {policy} cannot be kept in the ledger: {error}"
            ) from None
    return settings


def _list_changes(
    ledger: Ledger, name: str, wanted: Opened, configs: Sequence[Config], *, seed_given: bool
) -> list[Entry]:
    change = find_amendment(ledger, name, wanted, seed_given=seed_given)
    known = ledger.books.used | {dumps(config) for config in ledger.queue}
    new_configs = [config for config in configs if dumps(config) not in known]
    return [*([change] if change else []), *queue_notes(new_configs)]
