"""`Study`: a named ledger in a store. Begin or open a study, read its results, run it, or use ask and tell.

`tune` begins and runs a study in one call. `Journal` holds the ledger, `StudyRun` runs the study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget, Prices, read_duration_s
from shoestring.core.ledger.entries import Amendment, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config, Space
from shoestring.core.values import checks
from shoestring.core.values.checks import is_whole, to_plain
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import count
from shoestring.errors import MissingExtra, StudyError, did_you_mean, one_line, show_argument
from shoestring.reports.facts import format_config
from shoestring.runners.make import count_steps
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner, is_runner
from shoestring.stores.addresses import DEFAULT_STORE, open_store
from shoestring.stores.ledger_store import LedgerStore
from shoestring.study.ask import OrderTimes, StepReport, ask, tell
from shoestring.study.begin import GivenDirection, StudyRequest, begin, queue_notes, require_change, require_same_policy
from shoestring.study.best import Best, TrialsWithObjects, make_best
from shoestring.study.decide import Thinking
from shoestring.study.journal import Journal, locate_checkpoints
from shoestring.study.loop import Ending
from shoestring.study.run_study import Callback, RunOptions, run_study

if TYPE_CHECKING:
    import pandas

    from shoestring.reports.figures.configs import Importance
    from shoestring.reports.figures.plot import Plot, PlotKind
    from shoestring.study.retrain import RetrainResult
    from shoestring.study.run_study import StudyRun


class Study:
    """A hyperparameter search with its whole history: the budget, all trials, and why each was trained.

    `tune` returns a study; `Study.open` reads one from a store, and `Study.begin` begins one without training.

    A study can be pickled. The pickle of a stored study holds the address of its store (with the password, if the address
    has one) and reads the study again where it is unpickled. The pickle of a study in memory, or in a temporary file, holds a
    copy of all entries.

    Parameters
    ----------
    journal : Journal
        The ledger and its store. The constructor is for internal use: call `tune`, `Study.open` or `Study.begin` instead.
    policy : Policy, optional
        The policy object, if the user gave one.
    space : Space, optional
        The search space, if the user gave one: its options may be objects, of which the ledger has only the texts.

    Attributes
    ----------
    name : str
        The name of the study in its store.
    ledger : Ledger
        All entries of the study, in order. Everything else is computed from them.
    trials : sequence of Trial
        One trial for each configuration that was trained, in the order of their numbers. Options that are objects are in
        `trial.config` as you gave them. `Study.open` does not have them: there they are texts, unless they are tuples, lists,
        dicts, sets or bytes.
    spent : float
        What was spent, in the unit of the budget: epochs, seconds or dollars.
    best : Best or None
        The step with the best value of all trials; None before the first value. See `Best` for which steps have a value.
    best_checkpoint : Path or str or None
        Where the checkpoint of the best step is stored, the same as `best.checkpoint`; None if there is none.
    policy : Policy
        The policy that decides what is trained next.
    checkpoints : Path or str
        The folder, or the address, under which the checkpoints of this study are stored.
    ending : Ending or None
        Why the last run in this process ended.
    store : LedgerStore
        The store that holds the ledger.

    Examples
    --------
    >>> from shoestring import Float, Space, Study
    >>> space = Space({"lr": Float(0.001, 1.0, log=True)})
    >>> study = Study.begin(space, "6 epochs", policy="random_search", seed=0)
    >>> while (order := study.ask()) is not None:
    ...     study.tell(order, value=(order.config["lr"] - 0.1) ** 2)
    >>> study.spent, len(study.trials)
    (6.0, 6)
    >>> study.best.value == min((trial.config["lr"] - 0.1) ** 2 for trial in study.trials)
    True
    """

    def __init__(self, journal: Journal, policy: Policy | None = None, space: Space | None = None) -> None:
        self.journal, self.given_policy = journal, policy
        self.given_space = journal.ledger.space if space is None else space  # with the options that are objects
        self.name, self.store = journal.name, journal.store
        place = journal.ledger.definition.target.get("checkpoints")
        self.checkpoints = locate_checkpoints(journal.store, journal.name, place)
        self.ending: Ending | None = None
        self.present_run: StudyRun | None = None  # the run that `stop` ends
        self._thinking: Thinking | None = None  # made by the first `ask`
        self._order_times: OrderTimes | None = None  # made by the first `ask` or `tell`
        self.adapt_code: Callable[[Any], Any] | None = None  # makes training code from what the user calls so

    def __repr__(self) -> str:
        state, best = self.ledger.state, self.ledger.best
        result = (
            "no result yet" if best is None else f"best {best.best_value:.6g} with {format_config(best.best_config)}"
        )
        spent = f"{state.budget.show(state.spent)} of {state.budget.show(state.budget.total)} spent"
        return one_line(
            f"<Study {self.name!r}: {state.policy}, {spent}, {count(len(state.trials), 'trial')}, {result}>"
        )

    def _repr_html_(self) -> str:
        from shoestring.reports.notebook import study_html

        return study_html(self.name, self.ledger, self.best_checkpoint)

    def __reduce__(self) -> tuple[Any, ...]:
        from shoestring.study.pickling import reduce_study

        return reduce_study(self)

    # opening ---------------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls, name: str | None = None, store: str | LedgerStore = DEFAULT_STORE, *, policy: Policy | None = None
    ) -> Study:
        """Open an existing study without changing it.

        Parameters
        ----------
        name : str, optional
            The name of the study. It may be left out if the store holds only one.
        store : str or LedgerStore, optional
            The store, as for `tune`.
        policy : Policy, optional
            The policy object of the study, if it was begun with one that is not registered.

        Returns
        -------
        Study
            The study of that name.

        Raises
        ------
        StudyError
            If there is no such study, or several and no name was given.
        PolicyError
            If `policy` is not the policy of the study.
        """
        opened_store = open_store(store, must_exist=True)
        names = opened_store.studies()
        if name is None:
            if len(names) != 1:
                has = f"has {len(names)} studies, {', '.join(names)}: name one of them, with {show_argument('name')}"
                has_none = f"has no study: name another store, with {show_argument('store')}"
                raise StudyError(f"{opened_store.where} {has if names else has_none}")
            name = names[0]
        ledger = opened_store.load(checks.check_study_name(name))
        if ledger is None:
            raise StudyError(f"there is no study {name!r} in {opened_store.where}. {did_you_mean(name, names)}")
        given = None if policy is None else policies.make(policy)
        if given is not None:
            require_same_policy(given, ledger, name)
        return cls(Journal(opened_store, name, ledger), given)

    @classmethod
    def begin(
        cls,
        space: Space | Mapping[str, Any],
        budget: str | Budget,
        *,
        name: str = "study",
        store: str | LedgerStore | None = None,
        max_steps: int = 1,
        direction: GivenDirection = "min",
        policy: str | Policy | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        workers: int | None = None,
        prices: Prices | None = None,
        initial: Sequence[Config] = (),
        target: Mapping[str, Any] | None = None,
        metric: str | None = None,
        like: Any = (),
        like_rename: Mapping[str, str] | None = None,
    ) -> Study:
        """Begin a study without training, or open the study of that name and change it.

        In an existing study, the budget, the policy, its settings and the number of workers may change. What else is given,
        `max_steps`, `direction` and `prices` included, must be as it was. Without `policy`, `settings`, `seed`, `workers`,
        `target` or `metric`, an existing study keeps its own.

        Parameters
        ----------
        space : Space or mapping
            The parameters and their ranges.
        budget : str or Budget
            The total of the study: "400 epochs", "2h" of worker time, or "$20 at 2.50/h" for each worker; "20 trials" if each
            trial has one step.
        name : str, optional
            The name of the study in its store.
        store : str or LedgerStore, optional
            Where the study is stored: "file.db", "sqlite:///file.db" or "postgresql://…". None or ":memory:": only in memory.
        max_steps : int, optional
            The number of steps of a full training.
        direction : {"min", "max", "minimize", "maximize"}, optional
            Whether smaller or larger values are better.
        policy : str or Policy, optional
            What decides which trial is trained next. None: the policy of the existing study; in a new study, the default.
        settings : mapping, optional
            Settings of the policy by name. Without `policy`, they change settings of the existing study's policy.
        seed : int, optional
            The seed of all random choices. None: the seed of the existing study; in a new study, a random one.
        workers : int, optional
            The number of trials that are trained at the same time. None: as in the existing study; in a new study, 1.
        prices : Prices, optional
            Prices beside that of a step, for a budget in epochs. None: only steps are charged.
        initial : sequence of mapping, optional
            Configurations to try before those of the policy. Those that the study knows already are left out.
        target : mapping, optional
            Facts about the training code, stored with the study as plain values that can be written as JSON; most users leave
            it out. The entry "checkpoints" is a folder or an address such as "s3://bucket/runs", in which a folder with the
            name of the study gets its checkpoints. Without this entry it is a folder beside the store.
        metric : str, optional
            What the values are, such as "validation error". Figures, `status` and reports show this name.
        like : str or Path or Study or list of these, optional
            Earlier studies to learn from, when a study begins: the name of a study in this store, "FILE.db#NAME",
            "optuna:STORAGE#NAME", a table ("FILE.csv#COLUMN", "FILE.jsonl#COLUMN"), or a `Study`. What they found is copied into
            the new study. Policies choose its first configurations by it, and forget it if it proves wrong.
        like_rename : mapping, optional
            Parameters of earlier studies that have another name here: `{"learning_rate": "lr"}`.

        Returns
        -------
        Study
            The new study, or the existing one with its changes.

        Raises
        ------
        SpaceError, BudgetError, PolicyError
            If an argument is wrong.
        StudyError
            If an argument is wrong, or if the existing study has another space, direction, `max_steps`, unit of the budget,
            prices, seed or place for checkpoints.
        StudyInUse
            If the study would change while another process runs it.
        """
        request = StudyRequest(
            space=space,
            budget=budget,
            max_steps=max_steps,
            direction=direction,
            policy=policy,
            settings=settings,
            seed=seed,
            workers=workers,
            prices=prices,
            initial=initial,
            target=target,
            metric=metric,
            like=like,
            like_rename=like_rename,
        )
        return cls(begin(open_store(store), name, request), request.policy_object, request.new_study.space)

    # results ---------------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """All entries of the study, in order."""
        return self.journal.ledger

    @property
    def trials(self) -> Sequence[Trial]:
        """The trials, in the order of their numbers."""
        if not self.given_space.has_objects:
            return self.ledger.trials
        return TrialsWithObjects(self.ledger.trials, self.given_space)

    @property
    def spent(self) -> float:
        """What was spent, in the unit of the budget."""
        return self.ledger.spent

    @property
    def best(self) -> Best | None:
        """The step with the best value of all trials; None before the first value."""
        trial = self.ledger.best
        if trial is None:
            return None
        digest = self.ledger.state.find_digest(trial.number, trial.best_step) or ""
        return make_best(trial, self.best_checkpoint, self.ledger.max_steps, self.given_space, digest)

    @property
    def best_checkpoint(self) -> Path | str | None:
        """The path or the address of the best step's checkpoint; None if there is none. `best` checks that it is unchanged."""
        from shoestring.runners.checkpoints.checkpoints import Checkpoints

        best = self.ledger.best
        if best is None or self.ledger.state.find_digest(best.number, best.best_step) is None:
            return None
        return Checkpoints(self.checkpoints).find_step(best.number, best.best_step, newest=best.saved_step)

    @property
    def policy(self) -> Policy:
        """The policy that decides what is trained next, with its settings."""
        given, state = self.given_policy, self.ledger.state
        if given is None or (given.name, dumps(policies.settings_of(given))) != (state.policy, dumps(state.settings)):
            return policies.restore(state.policy, state.settings)
        return given

    def explain(self, number: int) -> Order:
        """Return an order: what was decided, and the numbers behind the decision in `why`.

        Parameters
        ----------
        number : int
            The number of the order, from 0.

        Returns
        -------
        Order
            The order of that number.

        Raises
        ------
        StudyError
            If there is no order of that number.
        """
        orders, index = self.ledger.orders, to_plain(number)
        if not is_whole(index) or not 0 <= index < len(orders):
            known = f"orders 0 to {len(orders) - 1}" if orders else "no orders yet"
            raise StudyError(f"there is no order {number}: the study {self.name!r} has {known}")
        return self._with_objects(orders[int(index)])

    def _with_objects(self, order: Order) -> Order:
        space = self.given_space
        return replace(order, config=space.with_objects(order.config)) if space.has_objects else order

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with one row for each finished step.

        Returns
        -------
        pandas.DataFrame
            The rows of `shoestring export --format csv`.

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise MissingExtra("Study.to_frame", "pandas", "frames") from None
        from shoestring.reports.export import step_rows

        return pandas.DataFrame(list(step_rows(self.ledger)))

    def importances(self) -> dict[str, Importance]:
        """Return how much each parameter mattered for the values, the most important first.

        The best third of the trials is compared with all trials, at a step that many of them reached: how differently are
        they spread along the parameter? `plot_importances` draws the same numbers.

        Returns
        -------
        dict of str to Importance
            By parameter: its importance, what chance alone gives, and whether it `is_clear`. Of more than 200 parameters, the
            first 200.

        Raises
        ------
        StudyError
            If there are too few trials to compare.

        Examples
        --------
        >>> from shoestring import Float, Space, tune
        >>> space = Space({"x": Float(-1.0, 1.0), "idle": Float(0.0, 1.0)})
        >>> study = tune(lambda config: config["x"] ** 2, space, "60 epochs", policy="random_search", seed=0)
        >>> {name: one.is_clear for name, one in study.importances().items()}
        {'x': True, 'idle': False}
        """
        from shoestring.reports.figures.plot import measure_importances

        return measure_importances(self.name, self.ledger)

    def plot_best(self) -> Plot:
        """Draw the best value so far against the budget spent.

        Returns
        -------
        Plot
            The figure, which a notebook shows.

        Raises
        ------
        StudyError
            If no step has a value yet.
        """
        return self._plot("best")

    def plot_curves(self) -> Plot:
        """Draw all learning curves: how far each trial was trained, where it was paused, and what it cost.

        Returns
        -------
        Plot
            The figure, which a notebook shows.

        Raises
        ------
        StudyError
            If no trial has two steps.
        """
        return self._plot("curves")

    def plot_importances(self) -> Plot:
        """Draw how much each parameter mattered, and what chance alone gives.

        Returns
        -------
        Plot
            The figure, which a notebook shows.

        Raises
        ------
        StudyError
            If there are too few trials to compare.
        """
        return self._plot("importances")

    def plot_parallel(self) -> Plot:
        """Draw each configuration as a line across its parameters, ending at its value.

        Returns
        -------
        Plot
            The figure, which a notebook shows.

        Raises
        ------
        StudyError
            If there are too few trials to compare.
        """
        return self._plot("parallel")

    def _plot(self, kind: PlotKind) -> Plot:
        from shoestring.reports.figures.plot import plot_study

        return plot_study(self.name, self.ledger, kind)

    # continuing ------------------------------------------------------------------------------------------------------

    def amend(self, change: Amendment) -> None:
        """Change the budget, the policy or the number of workers.

        Parameters
        ----------
        change : Amendment
            The new values; a value that is None does not change.

        Raises
        ------
        StudyError, BudgetError, PolicyError
            If the change is wrong, such as a budget below what was spent.
        StudyInUse
            If another process runs the study.
        """
        require_change(change)
        with self.store.lease(self.name):
            self.journal.append_newest(lambda ledger: [change])

    def enqueue(self, config: Config) -> None:
        """Put a configuration in the queue; it is tried before those of the policy.

        Parameters
        ----------
        config : mapping
            A value for each parameter of the space.

        Raises
        ------
        SpaceError
            If the configuration does not belong to the space.
        """
        queued = queue_notes([self.given_space.validate(config)])
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
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> Ending:
        """Train until the rest of the budget is spent. Only one process at a time can run a study.

        If the last process was killed during a step, the time that this step had used is now charged to a budget of time or
        money.

        Parameters
        ----------
        train : callable or Runner
            Training code, as for `tune`. It may also be a runner: then no progress is shown, no `TrainingFailed` is raised,
            and `workers`, `runner`, `devices`, `live` and `checkpoints_at_most` are ignored.
        workers : int, optional
            A new number of workers. None: the number of the stored study.
        runner, devices, live, checkpoints_at_most, deadline, callbacks, progress
            As for `tune`.
        should_stop : callable, optional
            Called without arguments several times a second. When it returns True, the run ends and trials are paused.

        Returns
        -------
        Ending
            Why the run ended: `reason` is "budget" (it is spent), "policy" (nothing is left to train), "deadline", "stopped"
            (by Ctrl-C, `stop` or `should_stop`) or "failing" (the same failure came again and again).

        Raises
        ------
        TrainingFailed
            If no step of the training code ever worked, unless a runner was given.
        StudyInUse
            If another process runs the study.
        RunnerError
            If the training code or an option does not fit the runner.
        KeyboardInterrupt
            At the second Ctrl-C. The first one ends the run as `stop` does, if nothing else in this process handles Ctrl-C.
        """
        options = RunOptions(
            workers=workers,
            runner=runner,
            devices=devices,
            live=live,
            checkpoints_at_most=checkpoints_at_most,
            deadline=deadline,
            should_stop=should_stop,
            callbacks=callbacks,
            progress=progress,
        )
        if not is_runner(train):
            count_steps(train, self.ledger.max_steps)
        return run_study(self, train, options)

    def stop(self) -> None:
        """Ask the present run of this study to end; any thread may call this. Without a run, nothing happens.

        A step that is trained in this process is finished first; in other processes it is interrupted. Then trials are paused,
        and `tune` or `run` returns with `ending.reason == "stopped"`. A later `run` continues the study.
        """
        if (run := self.present_run) is not None:
            run.stop()

    def retrain_cost(self) -> str:
        """Return the cost of `retrain_best` in the unit of the budget, estimated from the recorded steps.

        Returns
        -------
        str
            The cost with its unit, such as "20 epochs" or "3m 30s".

        Raises
        ------
        StudyError
            If the study has no best trial.
        """
        from shoestring.study.retrain import estimate_cost

        return estimate_cost(self)

    def retrain_best(
        self,
        train: Callable[..., Any] | None = None,
        *,
        runner: str | Runner | RayCluster | None = None,
        on_step: Callable[[int, float | None], Any] | None = None,
    ) -> RetrainResult:
        """Train the best trial once more, up to its best step, and charge nothing to this study.

        Use this to obtain the trained model when the training code cannot save checkpoints.

        Parameters
        ----------
        train : callable, optional
            The training code. It may be left out if the command line began the study.
        runner : str or Runner or RayCluster, optional
            As for `tune`.
        on_step : callable, optional
            Called as `on_step(step, value)` after each step.

        Returns
        -------
        RetrainResult
            The value, whether it is the recorded one, the cost, and the trained object.

        Raises
        ------
        StudyError
            If the study has no best trial, or the training code ends before the best step.
        """
        from shoestring.study.retrain import retrain

        if train is not None and self.adapt_code is not None:
            train = self.adapt_code(train)
        return retrain(self, train, runner=runner, on_step=on_step)

    # ask and tell ----------------------------------------------------------------------------------------------------

    def ask(self, give_up_after: str | float | None = None) -> Order | None:
        """Return what to train next, for users who train in their own loop.

        It never waits. Several machines that share a store may ask and tell at the same time; together they stay within the
        budget.

        Parameters
        ----------
        give_up_after : str or float, optional
            First cancel every open order, of any machine, that has had no `tell` for this long: for example "10m" or a
            number of seconds. Steps that were not reported are not charged, not even to a budget of time. None: orders are
            never cancelled.

        Returns
        -------
        Order or None
            Train `order.config` as trial `order.trial` up to step `order.until` (this step included), and call `tell` after
            each step. A trial that was trained before continues after its step `study.trials[order.trial].steps`. None:
            nothing can be trained now. If `study.ledger.open_orders` is empty the study is over; if not, ask again when
            their results have been reported.
        """
        patience_s = read_duration_s(give_up_after, "give_up_after")
        self._thinking, self._order_times = self._thinking or Thinking(), self._order_times or OrderTimes()
        order = ask(self.journal, lambda: self.policy, self._thinking, self._order_times, patience_s)
        return None if order is None else self._with_objects(order)

    def tell(
        self, order: Order, value: float | None = None, cost_s: float | None = None, *, failed: str | None = None
    ) -> None:
        """Report that the next step of an order is finished, or that it failed.

        Parameters
        ----------
        order : Order
            The order that `ask` returned.
        value : float, optional
            The value of the step; None if it was not validated.
        cost_s : float, optional
            Seconds that the step took; None: the time since the step before, or since `ask`.
        failed : str, optional
            The text of the failure, if the step failed.

        Raises
        ------
        StudyError
            If the order is not open any more, or an argument is wrong.
        """
        self._order_times = self._order_times or OrderTimes()
        tell(self.journal, order, StepReport.read(value, cost_s, failed), self._order_times)
