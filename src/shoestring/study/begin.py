"""Begin a study: turn the request of a user into the first entry of a new study, or into changes to an existing one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.amendments import find_amendment, require_possible
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Amendment, Direction, Entry, Note, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import QueuedConfig, list_earlier_studies
from shoestring.core.space.space import Config, Space
from shoestring.core.values import checks
from shoestring.core.values.strict_json import dumps
from shoestring.errors import BudgetError, Conflict, PolicyError, StudyError
from shoestring.stores.ledger_store import LedgerStore
from shoestring.study.journal import ConflictLimit, Journal

GivenDirection = Literal["min", "max", "minimize", "maximize"]
_LONG_DIRECTIONS = {"minimize": "min", "maximize": "max"}  # the words of other tuners


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """What a user asks of a study.

    Policy, settings, seed, workers and target may be None: an existing study then keeps its own, a new one gets the defaults.
    """

    space: Space | Mapping[str, Any]
    budget: str | Budget
    max_steps: int = 1
    direction: GivenDirection = "min"
    policy: str | Policy | None = None
    settings: Mapping[str, Any] | None = None  # without a policy: changes to the settings of the study's own policy
    seed: int | None = None
    workers: int | None = None
    prices: Prices | None = None
    initial: Sequence[Config] = ()  # configurations to try before the policy's own
    target: Mapping[str, Any] | None = None  # what is trained, and where its checkpoints are stored
    metric: str | None = None  # what the values are, for reports
    like: Any = ()  # earlier studies to learn from: a source, or a list of them; see `study/earlier.py`
    like_rename: Mapping[str, str] | None = None  # old names of their parameters, and the names here

    @cached_property
    def sources(self) -> list[Any]:
        """The earlier studies to learn from."""
        if self.like is None:
            return []
        return list(self.like) if isinstance(self.like, list | tuple) else [self.like]

    @cached_property
    def policy_object(self) -> Policy | None:
        """The policy with its settings; None if the user names no policy."""
        return None if self.policy is None else policies.make(self.policy, self.settings)

    @cached_property
    def new_study(self) -> StudyDefinition:
        """The first entry of a new study with this request. Reading it raises an error if no such study is possible."""
        if not isinstance(self.prices, Prices | None):
            raise BudgetError(f"prices={self.prices!r} must be Prices(…), as Prices(validate_epochs=0.5)")
        policy = self.policy_object
        if policy is None:  # the settings may be those of an existing study's policy, so they are not checked here
            policy = policies.make(policies.DEFAULT, None if isinstance(self.settings, Mapping) else self.settings)
        definition = StudyDefinition(
            space=self.space if isinstance(self.space, Space) else Space.from_dict(self.space),
            budget=Budget(self.budget),
            policy=policy.name,
            settings=_require_storable(policies.settings_of(policy), "setting", f"the policy {policy.name}"),
            seed=int.from_bytes(os.urandom(4)) if self.seed is None else checks.check_whole("seed", self.seed, 0),
            direction=_read_direction(self.direction),
            max_steps=checks.check_whole("max_steps", self.max_steps, 1, "the steps of a full training"),
            prices=Prices() if self.prices is None else self.prices,
            workers=1 if self.workers is None else checks.check_whole("workers", self.workers, 1),
            target=_require_storable(
                checks.check_mapping("target", self.target, "{'name': 'train'}"), "part", "the target"
            ),
            metric="" if self.metric is None else checks.check_metric_name(self.metric),
        )
        require_possible(definition)
        return definition

    def complete(self, ledger: Ledger | None) -> StudyDefinition:
        """Return the first entry, with policy, settings and workers of the existing study where the user gave none."""
        definition = self.new_study
        state = None if ledger is None else ledger.state
        if state is not None and self.workers is None:
            definition = replace(definition, workers=state.workers)
        if state is not None and self.policy is None and not self.settings:
            return replace(definition, policy=state.policy, settings=state.settings)
        if self.policy is not None or not self.settings:
            return definition
        name, own = (policies.DEFAULT, definition.settings) if state is None else (state.policy, state.settings)
        settings = policies.change_settings(name, own, self.settings)
        return replace(definition, policy=name, settings=_require_storable(settings, "setting", f"the policy {name}"))


def _read_direction(given: GivenDirection) -> Direction:
    short = _LONG_DIRECTIONS.get(given, given) if isinstance(given, str) else given
    return cast(Direction, checks.check_word("direction", short, ("min", "max")))


def begin(store: LedgerStore, name: str, request: StudyRequest) -> Journal:
    """Return the journal of a new study, or of the existing study of that name after the requested changes."""
    checks.check_study_name(name)
    space = request.new_study.space
    configs = [space.validate(config) for config in checks.check_configs("initial", request.initial)]
    conflicts = ConflictLimit(store, name)
    while True:
        ledger = store.load(name)
        definition = request.complete(ledger)
        entries: list[Entry]
        if ledger is None:
            entries = [definition, *queue_notes(configs), *_copy_earlier_studies(request, definition, store)]
        else:
            _require_same_sources(request, ledger, name)
            entries = _list_changes(ledger, name, definition, configs, seed_given=request.seed is not None)
        change = next((entry for entry in entries if isinstance(entry, Amendment)), None)
        try:
            # An amendment needs the lease, so that no study changes while another process runs it.
            with nullcontext() if change is None else store.lease(name):
                return Journal(store, name, store.append(name, ledger, *entries), change)
        except Conflict:  # another process began or changed the study at this moment
            conflicts.add(len(ledger) if ledger is not None else 0)


def queue_notes(configs: Sequence[Config]) -> list[Note]:
    """Return entries that put these configs into the queue; they are tried before those of the policy."""
    return [QueuedConfig(config=config).to_note() for config in configs]


def _copy_earlier_studies(request: StudyRequest, definition: StudyDefinition, store: LedgerStore) -> list[Note]:
    """Return the entries that hold what the earlier studies found."""
    if not request.sources:
        if request.like_rename:
            raise StudyError(
                f"like_rename={request.like_rename!r} needs like: the earlier studies whose names have changed"
            )
        return []
    from shoestring.study.earlier import read_earlier_studies  # most studies have no earlier ones

    renames = checks.check_mapping("like_rename", request.like_rename, "{'learning_rate': 'lr'}")
    found = read_earlier_studies(request.sources, renames, definition.space, definition.direction, store)
    return [facts.to_note() for facts in found]


def _require_same_sources(request: StudyRequest, ledger: Ledger, name: str) -> None:
    """Raise an error if a source is new: a study learns from earlier ones when it begins, and only then."""
    if not request.sources:
        return
    from shoestring.study.earlier import describe_source

    known = {facts.source for facts in list_earlier_studies(ledger.entries())}
    for source in map(describe_source, request.sources):
        if source not in known:
            raise StudyError(
                f"the study {name!r} exists and did not begin with the earlier study {source!r}: earlier studies are read when a "
                "study begins. Leave it out, or begin a study of another name."
            )


def _require_storable(body: Mapping[str, Any], part: str, owner: str) -> Mapping[str, Any]:
    """Return `body` unchanged; raise an error if the ledger cannot store it."""
    for name, value in body.items():
        try:
            dumps({name: value})
        except (TypeError, ValueError, RecursionError) as error:
            raise PolicyError(f"the {part} {name!r} of {owner} cannot be stored in the ledger: {error}") from None
    return body


def _list_changes(
    ledger: Ledger, name: str, wanted: StudyDefinition, configs: Sequence[Config], *, seed_given: bool
) -> list[Entry]:
    change = find_amendment(ledger, name, wanted, seed_given=seed_given)
    known = ledger.state.used | {dumps(config) for config in ledger.queue}
    new_configs = [config for config in configs if dumps(config) not in known]
    return [*([change] if change else []), *queue_notes(new_configs)]


def require_same_policy(policy: Policy, ledger: Ledger, name: str) -> None:
    """Raise an error unless this policy, passed to `Study.open`, is the policy of the study: opening changes nothing."""
    given, stored = policies.settings_of(policy), dict(ledger.state.settings)
    if policy.name != ledger.state.policy or dumps(given) != dumps(stored):
        raise PolicyError(
            f"the study {name!r} has the policy {ledger.state.policy} with the settings {stored}, not {policy.name} with "
            f"{given}: pass the study's own policy, or change it with Study.begin(…, policy=…)"
        )


def require_change(change: Amendment) -> None:
    """Check the types of an amendment. Appending it checks whether the study allows it."""
    if not isinstance(change, Amendment) or not isinstance(change.budget, Budget | None):
        raise StudyError(
            f"{change!r} must be Amendment(…) with a Budget as its budget, as in Amendment(budget=Budget('2h'))"
        )
    if change.workers is not None:
        checks.check_whole("workers", change.workers, 1)
    if change.policy is not None:
        policies.restore(change.policy, checks.check_mapping("settings", change.settings, "{'reduction_factor': 3}"))
    elif change.settings is not None:
        raise StudyError(f"the settings {change.settings!r} are given without a policy: name it, as in policy='asha'")
