"""The trials that are alive in processes: those being trained, and the frozen ones, as many as are to be kept.

A process is bound to its device for life. So a trial that is alive goes on when a worker on that device is free; one that
is safe on disk may also go on in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shoestring.core.entries import Lost, Order
from shoestring.core.space import Config
from shoestring.runners.checkpoints import Checkpoints
from shoestring.runners.crew import STOP_GRACE_S, Crew
from shoestring.runners.live_process import LiveProcess
from shoestring.runners.logs import CHECK, STDERR, STDOUT
from shoestring.runners.runner import LIVE_UNMEASURED, News, config_at
from shoestring.runners.slots import Slots
from shoestring.runners.worker import Worker, stop


class LiveProcesses:
    """Live trials by number, the least recently used first."""

    def __init__(self, crew: Crew, checkpoints: Checkpoints, now: Callable[[], float], slots: Slots) -> None:
        self._crew, self._checkpoints, self._now, self._slots = crew, checkpoints, now, slots
        self._by_trial: dict[int, LiveProcess] = {}

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
