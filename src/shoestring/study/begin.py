"""Beginning a study: from what a user says to its first entry, or to what changes about a study that is there already."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.amendments import find_amendment, require_possible
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Amended, Direction, Entry, Note, Opened
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config, Space
from shoestring.core.values import checks as arguments
from shoestring.core.values.strict_json import dumps
from shoestring.errors import BudgetError, Conflict, PolicyError, StudyError
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
    if not isinstance(prices, Prices | None):
        raise BudgetError(f"prices={prices!r} must be Prices(…), as Prices(validate_epochs=0.5)")
    arguments.word("direction", direction, ("min", "max"))
    opened = Opened(
        space=space if isinstance(space, Space) else Space.from_dict(space),
        budget=Budget(budget),
        policy=policy.name,
        settings=_storable(policies.settings_of(policy), "setting", f"the policy {policy.name}"),
        seed=int.from_bytes(os.urandom(4)) if seed is None else arguments.whole("seed", seed, 0),
        direction=direction,
        max_steps=arguments.whole("max_steps", max_steps, 1, "the steps of a full training"),
        prices=Prices() if prices is None else prices,
        workers=arguments.whole("workers", workers, 1),
        target=_storable(arguments.mapping("target", target, "{'name': 'train'}"), "part", "the target"),
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
        return replace(
            wanted, policy=name, settings=_storable(policies.settings_of(chosen), "setting", f"the policy {name}")
        )


def begin(store: Store, name: str, wanted: Opened, first_configs: Sequence[Config], unsaid: Unsaid) -> Journal:
    """A new study, or the one of that name with what `wanted` changes about it; the journal tells what that is."""
    arguments.study_name(name)
    configs = [wanted.space.validate(config) for config in arguments.configs("initial", first_configs)]
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


def _storable(body: Mapping[str, Any], part: str, owner: str) -> Mapping[str, Any]:
    """These settings, or whatever they are, if the ledger can keep them."""
    for name, value in body.items():
        try:
            dumps({name: value})
        except (TypeError, ValueError, RecursionError) as error:
            raise PolicyError(f"the {part} {name!r} of {owner} cannot be kept in the ledger: {error}") from None
    return body


def _list_changes(
    ledger: Ledger, name: str, wanted: Opened, configs: Sequence[Config], *, seed_given: bool
) -> list[Entry]:
    change = find_amendment(ledger, name, wanted, seed_given=seed_given)
    known = ledger.books.used | {dumps(config) for config in ledger.queue}
    new_configs = [config for config in configs if dumps(config) not in known]
    return [*([change] if change else []), *queue_notes(new_configs)]


def require_same_policy(policy: Policy, ledger: Ledger, name: str) -> None:
    """A policy that is passed when a study is opened must be the study's own: opening changes nothing."""
    given, stored = policies.settings_of(policy), dict(ledger.books.settings)
    if policy.name != ledger.books.policy or dumps(given) != dumps(stored):
        raise PolicyError(
            f"the study {name!r} has the policy {ledger.books.policy} with the settings {stored}, not {policy.name} with "
            f"{given}: pass that one, or change it with Study.begin(…, policy=…)"
        )


def require_change(change: Amended) -> None:
    """Whether an amendment can be one; whether it is allowed, the books decide."""
    if not isinstance(change, Amended) or not isinstance(change.budget, Budget | None):
        raise StudyError(f"{change!r} must be Amended(…), its budget a Budget, as Amended(budget=Budget('2h'))")
    if change.workers is not None:
        arguments.whole("workers", change.workers, 1)
    if change.policy is not None:
        policies.restore(change.policy, arguments.mapping("settings", change.settings, "{'reduction_factor': 3}"))
    elif change.settings is not None:
        raise StudyError(f"the settings {change.settings!r} come without their policy: name it, as policy='asha'")
