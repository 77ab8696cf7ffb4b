"""One trial with a process of its own: what it is asked, what it answered, and the receipt that comes of it.

A resume check trains the next step twice: first a copy from the checkpoint, in a process of its own, then the trial
itself, which does not notice.

The trials that are alive in processes: those being trained, and the frozen ones, as many as are to be kept.

A process is bound to its device for life. So a trial that is alive goes on when a worker on that device is free; one that
is safe on disk may also go on in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoestring.core.ledger.entries import Cost, Lost, Order
from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.trial_logs import CHECK, STDERR, STDOUT
from shoestring.runners.devices import Slots
from shoestring.runners.process.spare_workers import STOP_GRACE_S, Crew
from shoestring.runners.process.worker import Worker, stop
from shoestring.runners.runner import LIVE_UNMEASURED, News, bought_value, config_at, write_receipt
from shoestring.runners.training.code import StepResult
from shoestring.runners.training.resume_check import note_check, note_unfinished_check


@dataclass(eq=False, slots=True)
class LiveProcess:
    """A trial that is alive in `worker`, at `step`."""

    trial: int
    worker: Worker
    checkpoints: Checkpoints
    now: Callable[[], float]  # the runner's clock
    step: int
    thawed_at: int  # the step that its process began from
    order: Order | None = None  # None: frozen
    former: Sequence[Config] = ()  # of steps that may have to be run again for this order
    slot: int = 0  # the worker that its order has
    since: float = 0.0  # when its present step began
    asked_at: float = 0.0  # when its process was last asked for something
    setup_s: float = 0.0  # of that step: waiting for imports
    can_save: bool | None = None
    is_exact: bool = True  # what its code says about resuming
    unsaved_s: float = 0.0  # spent on what would go with its process
    result: StepResult | None = None  # of a finished step whose checkpoint is being written
    check_since: float | None = None  # when a resume check began that is under way
    copy: Worker | None = None  # tries resuming out, while the trial itself rests
    resumed: tuple[float | None, float] | None = None  # what that gave, and the seconds of the check

    @property
    def saved(self) -> int:
        """The newest step on disk, 0 if none."""
        return self.checkpoints.newest(self.trial, up_to=self.step)

    @property
    def workers(self) -> list[Worker]:
        return [self.worker] if self.copy is None else [self.worker, self.copy]

    # steps -------------------------------------------------------------------------------------------------------------

    def take_order(self, order: Order, former: Sequence[Config], slot: int) -> None:
        self.order, self.former, self.slot = order, former, slot
        self.since = self.now()

    def ask_for_step(self) -> None:
        self._ask_for_step(self.worker, validate=self._present_order().validates(self.step + 1))

    def take_result(self, message: Mapping[str, Any]) -> None:
        setup, train, validate = message["cost"]
        self.step += 1
        cost = Cost(setup=setup + self.setup_s, train=train, validate=validate)
        value = bought_value(self._present_order(), self.step, message["value"])
        self.result = StepResult(value, cost, message["cost_reported"], message["metrics"])
        self.unsaved_s += self.now() - self.asked_at
        self.setup_s = 0.0
        self.can_save, self.is_exact = message["can_save"], message["is_exact"]

    def pay(self, worker: str) -> list[News]:
        """The receipt of the step that is done, behind the resume check that its order may have paid for."""
        order, result, now = self._present_order(), self.result, self.now()
        assert result is not None
        # The worker was ours all the time, also while a message was on its way and while we had other things to do.
        unseen_s = max(0.0, now - self.since - result.cost.total - (self.resumed[1] if self.resumed else 0.0))
        cost = result.cost if result.cost_reported else replace(result.cost, setup=result.cost.setup + unseen_s)
        paid = write_receipt(
            order, self.step, result.value, cost, at=now, saved=self.saved, worker=worker, metrics=result.metrics
        )
        news: list[News] = [paid]
        if self.resumed is not None:
            news.insert(0, note_check(order, self.step, result.value, *self.resumed, exact=self.is_exact))
        self.result = self.resumed = None
        self.since = now
        if paid.status == "diverged" or self.step == order.until:
            self.order = None
        return news

    # checkpoints -------------------------------------------------------------------------------------------------------

    @property
    def is_checkpoint_due(self) -> bool:
        assert self.result is not None
        is_last = self.step == self._present_order().until
        due = self.checkpoints.is_due(self.trial, self.step, self.result.value, last=is_last, unsaved_s=self.unsaved_s)
        return bool(self.can_save) and due

    def ask_to_save(self) -> None:
        self.asked_at = self.now()
        self.worker.send("save", path=str(self.checkpoints.partial_path(self.trial, self.step)))

    def keep_checkpoint(self, message: Mapping[str, Any] | None) -> None:
        """Put what was written into its place; the time that took is the step's."""
        if message is not None and message["is"] == "saved":
            seconds = self.checkpoints.keep(self.trial, self.step, message["seconds"])
            self.unsaved_s = 0.0
            if self.result is not None:
                cost = self.result.cost
                self.result = replace(self.result, cost=replace(cost, setup=cost.setup + seconds))

    # the resume check --------------------------------------------------------------------------------------------------

    @property
    def can_check_resuming(self) -> bool:
        """Whether its order pays for a check and the next step can be one: a trial just thawed is a copy itself."""
        order = self._present_order()
        is_paid = order.check and order.validates(self.step + 1)
        return is_paid and bool(self.can_save) and self.step != self.thawed_at

    def begin_check(self) -> bool:
        """From here on the time is the check's. Whether a copy can start at once; else the trial is being saved first."""
        self.check_since = self.now()
        if self.saved == self.step:
            return True
        self.ask_to_save()
        return False

    def try_on_copy(self, copy: Worker) -> None:
        self.copy = copy
        self._ask_for_step(copy, validate=True)

    def take_check(self, message: Mapping[str, Any]) -> Worker:
        """What the copy made of the next step; its process is not needed any more."""
        assert self.check_since is not None
        has_stepped = message["is"] == "stepped"  # or the copy could not go on at all
        self.resumed = (message["value"] if has_stepped else None, max(0.0, self.now() - self.check_since))
        copy, self.copy, self.check_since = self.copy, None, None
        assert copy is not None
        return copy

    def give_up_check(self, at: float) -> list[News]:
        """The step that was to be compared comes to no end: what the check took until then is still the check's."""
        if self.check_since is None and self.resumed is None:
            return []
        seconds = self.resumed[1] if self.resumed is not None else max(0.0, at - (self.check_since or 0.0))
        self.since += seconds
        self.check_since = self.resumed = None
        return [note_unfinished_check(self._present_order(), self.step + (self.result is None), seconds)]

    def _ask_for_step(self, worker: Worker, *, validate: bool) -> None:
        order = self._present_order()
        self.asked_at = self.now()
        config = config_at(self.step + 1, order, self.former)
        worker.send("step", config=config, until=order.until, validate=validate)

    def _present_order(self) -> Order:
        assert self.order is not None
        return self.order


class LiveProcesses:
    """Live trials by number, the least recently used first."""

    def __init__(self, crew: Crew, checkpoints: Checkpoints, now: Callable[[], float], slots: Slots) -> None:
        self._crew, self._checkpoints, self._now, self._slots = crew, checkpoints, now, slots
        self._by_trial: dict[int, LiveProcess] = {}
        self.max_steps = 1  # of a full training; the runner's start knows it

    def __iter__(self) -> Iterator[LiveProcess]:
        return iter(list(self._by_trial.values()))

    @property
    def busy(self) -> list[LiveProcess]:
        return [live for live in self if live.order is not None]

    def find_owner(self, worker: Worker) -> LiveProcess | None:
        return next((live for live in self if worker in live.workers), None)

    # beginning ---------------------------------------------------------------------------------------------------------

    def find_slot(self, trial: int, held: int) -> int | None:
        """A free worker that can go on with this trial from step `held`; None: it has to wait for one."""
        live = self._by_trial.get(trial)
        if live is not None and (live.step != held or not live.worker.alive):
            self.drop(live)
        elif live is not None:
            slot = self._slots.find_free(live.worker.device)
            if slot is not None or not _is_safe(live):
                return slot
            self._give_away(live)
        return self._slots.find_free(prefer=self._crew.ready_devices)

    def begin(self, order: Order, held: int, former: Sequence[Config], slot: int) -> tuple[LiveProcess, list[News]]:
        """Give the order to the trial's process, or to a new one that goes on from the newest checkpoint up to `held`."""
        news: list[News] = []
        live = self._by_trial.pop(order.trial, None)
        if live is None:
            step = self._checkpoints.newest(order.trial, up_to=held)
            if step != held:
                news.append(Lost(trial=order.trial, held=step, why="its process or checkpoint is gone"))
            device = self._slots.devices[slot]
            if device not in self._crew.ready_devices:
                self._make_room(device)
            worker = self._start(device, order.trial, step, config_at(step + 1, order, former), (STDOUT, STDERR))
            live = LiveProcess(order.trial, worker, self._checkpoints, self._now, step, thawed_at=step)
        self._by_trial[order.trial] = live
        self._slots.take(slot)
        live.take_order(order, former, slot)
        return live, news

    def start_copy(self, live: LiveProcess) -> None:
        """A process for the resume check: it goes on from the checkpoint that the trial has just written."""
        assert live.order is not None
        config, device = config_at(live.step + 1, live.order, live.former), live.worker.device
        live.try_on_copy(self._start(device, live.trial, live.step, config, (CHECK, CHECK)))

    def _start(self, device: str, trial: int, step: int, config: Config, logs: Sequence[str]) -> Worker:
        checkpoint, folder = self._checkpoints.path_to_thaw(trial, step), self._checkpoints.folder(trial)
        return self._crew.take(
            device,
            config=config,
            step=step,
            max_steps=self.max_steps,
            checkpoint=str(checkpoint) if checkpoint else None,
            logs=[str(folder / log) for log in logs],
        )

    def _make_room(self, device: str) -> None:
        """A frozen trial that is safe on disk gives its process away: that is quicker than waiting for imports."""
        for old in self:
            if old.order is None and old.worker.device == device and _is_safe(old):
                self._give_away(old)
                return

    # ending ------------------------------------------------------------------------------------------------------------

    def rest(self, live: LiveProcess, limit: int | None, can_save: bool | None) -> list[News]:
        """Frozen: keep to the number of live frozen trials; one that is not saved is lost."""
        self._by_trial[live.trial] = self._by_trial.pop(live.trial)
        if live.worker.reusable:  # a plain function keeps nothing alive: the next trial may have its process
            self._give_away(live)
        limit = limit or (len(self._slots.devices) if can_save else LIVE_UNMEASURED)
        frozen = [live for live in self if live.order is None]
        news: list[News] = []
        for old in frozen[: max(0, len(frozen) - limit)]:
            self._give_away(old)
            if old.saved != old.step:
                news.append(Lost(trial=old.trial, held=old.saved, why=f"more than {limit} trials were alive"))
        return news + self._checkpoints.drop_over_limit(keep=set(self._by_trial))

    def drop(self, live: LiveProcess) -> None:
        """End a trial's process now."""
        del self._by_trial[live.trial]
        if live.order is not None:
            self._slots.give_back(live.slot)
        stop(live.workers, STOP_GRACE_S)

    def clear(self) -> None:
        for live in self.busy:
            self._slots.give_back(live.slot)
        self._by_trial.clear()

    def _give_away(self, live: LiveProcess) -> None:
        del self._by_trial[live.trial]
        self._crew.take_back(live.worker)


def _is_safe(live: LiveProcess) -> bool:
    return bool(live.can_save) and live.saved == live.step
