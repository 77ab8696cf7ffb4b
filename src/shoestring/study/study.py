"""A study: a ledger in a store, with a name. Begin or open one, look at it, run it, or ask it what to train and tell it.

`tune` does all of it in one call. The ledger itself is held by a `Journal`, and one run of it is a `Loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget, Prices, read_duration_s
from shoestring.core.ledger.entries import Amended, Direction, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config, Space
from shoestring.core.values import checks as arguments
from shoestring.core.values.checks import is_whole, to_plain
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import count
from shoestring.errors import Leased, MissingExtra, StudyError, did_you_mean, one_line
from shoestring.reports.facts import say_config
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner, is_runner
from shoestring.stores.addresses import DEFAULT_STORE, open_store
from shoestring.stores.store import Store
from shoestring.study.ask import Told, ask, tell
from shoestring.study.begin import Unsaid, begin, make_opened, queue_notes, require_change, require_same_policy
from shoestring.study.best import Best
from shoestring.study.checkpoint_place import checkpoint_place
from shoestring.study.decide import Thinking
from shoestring.study.journal import Journal
from shoestring.study.loop import Ending, Loop, Observe

if TYPE_CHECKING:
    import pandas

    from shoestring.study.retrain import Retrained


class Study:
    """A ledger in a store, with a name.

    It can be pickled. A study in a database goes by the address of its store, a password in it included, and is read
    anew where it is unpickled; one in memory takes its entries along and is a copy from then on.
    """

    def __init__(self, journal: Journal, policy: Policy | None = None) -> None:
        self.journal, self.given_policy = journal, policy
        self.name, self.store = journal.name, journal.store
        place = journal.ledger.opened.target.get("checkpoints")
        self.checkpoints = checkpoint_place(journal.store, journal.name, place)
        self.ending: Ending | None = None  # of the last run in this process
        self._thinking: Thinking | None = None  # of `ask`, made when it is first needed

    def __repr__(self) -> str:
        books, best = self.ledger.books, self.ledger.best
        found = "no result yet" if best is None else f"best {best.best_value:.6g} with {say_config(best.best_config)}"
        spent = f"{books.budget.show(books.spent)} of {books.budget.show(books.budget.total)} spent"
        return one_line(f"<Study {self.name!r}: {books.policy}, {spent}, {count(len(books.trials), 'trial')}, {found}>")

    def _repr_html_(self) -> str:
        from shoestring.reports.notebook import study_html

        return study_html(self.name, self.ledger, self.best_checkpoint)

    def __reduce__(self) -> tuple[Any, ...]:
        from shoestring.study.pickling import pickled

        return pickled(self)

    # opening ---------------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls, name: str | None = None, store: str | Store = DEFAULT_STORE, *, policy: Policy | None = None
    ) -> Study:
        """An existing study; without a name, the only one in the store. A policy that is not registered is passed again."""
        found_store = open_store(store, must_exist=True)
        names = found_store.studies()
        if name is None:
            if len(names) != 1:
                held = f"it holds {len(names)}: {', '.join(names)}" if names else "it holds none"
                raise StudyError(f"which study of {found_store.where}? {held}; name one with --study NAME")
            name = names[0]
        ledger = found_store.load(arguments.study_name(name))
        if ledger is None:
            raise StudyError(f"there is no study {name!r} in {found_store.where}. {did_you_mean(name, names)}")
        given = None if policy is None else policies.make(policy)
        if given is not None:
            require_same_policy(given, ledger, name)
        return cls(Journal(found_store, name, ledger), given)

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
        policy: str | Policy | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        workers: int | None = None,
        prices: Prices | None = None,
        initial: Sequence[Config] = (),
        target: Mapping[str, Any] | None = None,
    ) -> Study:
        """A new study, or the one of that name going on: a changed budget, policy or number of workers is amended.

        Policy and workers that are not given stay as they are; settings without a policy are for the study's own.
        """
        of_its_own = policy is None and isinstance(settings, Mapping)  # settings of a policy that is not known yet
        chosen = policies.make(policies.DEFAULT if policy is None else policy, None if of_its_own else settings)
        wanted = make_opened(
            space,
            budget,
            chosen,
            seed=seed,
            direction=direction,
            max_steps=max_steps,
            prices=prices,
            workers=1 if workers is None else workers,
            target=target,
        )
        unsaid = Unsaid(seed is None, workers is None, policy is None, settings)
        journal = begin(open_store(store), name, wanted, initial, unsaid)
        return cls(journal, None if policy is None else chosen)

    # what it holds ---------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        return self.journal.ledger

    @property
    def trials(self) -> Sequence[Trial]:
        return self.ledger.trials

    @property
    def spent(self) -> float:
        return self.ledger.spent

    @property
    def best(self) -> Best | None:
        """The best value that was bought, None before the first one."""
        trial = self.ledger.best
        if trial is None:
            return None
        value = trial.best_value
        assert value is not None
        return Best.of(trial, value, self.best_checkpoint, self.ledger.max_steps)

    @property
    def best_checkpoint(self) -> Path | str | None:
        """Where the best step is kept, if it is."""
        from shoestring.runners.checkpoints.checkpoints import Checkpoints

        best = self.ledger.best
        if best is None:
            return None
        return Checkpoints(self.checkpoints).find_step(best.number, best.best_step, newest=best.saved)

    @property
    def policy(self) -> Policy:
        """The object that the study was begun with, or one made anew where there is none or the ledger has another."""
        given, books = self.given_policy, self.ledger.books
        if given is None or (given.name, dumps(policies.settings_of(given))) != (books.policy, dumps(books.settings)):
            return policies.restore(books.policy, books.settings)
        return given

    def explain(self, number: int) -> Order:
        """The order of that number: what was decided, and in `why` what it was decided on."""
        orders, index = self.ledger.orders, to_plain(number)
        if not is_whole(index) or not 0 <= index < len(orders):
            known = f"orders 0 to {len(orders) - 1}" if orders else "no orders yet"
            raise StudyError(f"there is no order {number}: the study {self.name!r} has {known}")
        return orders[int(index)]

    def to_frame(self) -> pandas.DataFrame:
        """One row per finished step."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("Study.to_frame", "pandas", "frames") from None
        from shoestring.reports.export import step_rows

        return pandas.DataFrame(list(step_rows(self.ledger)))

    # going on --------------------------------------------------------------------------------------------------------

    def amend(self, change: Amended) -> None:
        """Record a change of budget, policy or number of workers; not while somebody runs the study."""
        require_change(change)
        with self.store.lease(self.name):
            self.journal.append_newest(lambda ledger: [change])

    def enqueue(self, config: Config) -> None:
        """Have this config tried before the policy's own."""
        queued = queue_notes([self.ledger.space.validate(config)])
        self.journal.append_newest(lambda ledger: queued)

    def run(
        self,
        train: Runner | Callable[..., Any],
        *,
        workers: int | None = None,
        runner: str | Runner | RayCluster | None = None,
        devices: str | Sequence[int] | None = None,
        live: int | None = None,
        checkpoints_at_most: str | None = None,
        deadline: str | float | None = None,
        should_stop: Callable[[], bool] | None = None,
        observe: Observe | None = None,
        progress: bool | None = None,
    ) -> Ending:
        """Spend what is left. Only one process at a time may do that; a step that a crash cut off is charged now.

        With training code it is what `tune` does after the beginning, with the same arguments (`workers=None`: as before).
        A runner may be given in its place; then nothing is shown, and how it ended is in the `Ending` alone.
        """
        if not is_runner(train):
            from shoestring.study.run_code import run_code

            return run_code(
                self,
                train,
                workers=workers,
                runner=runner,
                devices=devices,
                live=live,
                checkpoints_at_most=checkpoints_at_most,
                deadline=deadline,
                should_stop=should_stop,
                observe=observe,
                progress=progress,
            )
        watch: dict[str, Any] = {"should_stop": should_stop, "observe": observe}
        watch = {name: function for name, function in watch.items() if function is not None}
        seconds = read_duration_s(deadline, "deadline")
        with self.store.lease(self.name) as lease:
            self.journal.refresh()
            self.ending = Loop(self.journal, lease, self.policy, train, deadline_s=seconds, **watch).run()
        if lease.lost:
            raise Leased(f"the study {self.name!r} was taken over by another process: this one has stopped")
        return self.ending

    def retrain_cost(self) -> str:
        """What `retrain_best` would cost, in the budget's unit, as far as the recorded steps tell."""
        from shoestring.study.retrain import say_cost

        return say_cost(self)

    def retrain_best(
        self,
        train: Callable[..., Any] | None = None,
        *,
        runner: str | Runner | RayCluster | None = None,
        on_step: Callable[[int, float | None], Any] | None = None,
    ) -> Retrained:
        """Train the winner once more, up to its best step: for code that cannot save. Nothing is charged to this study.

        `train` may be left out where the command line began the study. `on_step(step, value)` is called after each step.
        """
        from shoestring.study.retrain import retrain

        return retrain(self, train, runner=runner, on_step=on_step)

    # for people who own their loop -----------------------------------------------------------------------------------

    def ask(self, give_up_after: str | float | None = None) -> Order | None:
        """What to train next; None if nothing can be bought: for good if no order is open, else until somebody reports.

        Orders may be asked for and told about on several machines: the budget holds all the same. An order that nobody
        told about for `give_up_after` is released.
        """
        patience_s = read_duration_s(give_up_after, "give_up_after")
        self._thinking = self._thinking or Thinking()
        return ask(self.journal, lambda: self.policy, self._thinking, patience_s)

    def tell(
        self, order: Order, value: float | None = None, cost_s: float | None = None, *, failed: str | None = None
    ) -> None:
        """The next step of an asked order is done: its value (and seconds, else the clock's), or the text of its failure."""
        tell(self.journal, order, Told.read(value, cost_s, failed))
