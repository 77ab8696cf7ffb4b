"""The seats that a study has on a Ray cluster: asked for, greeted, listened to, watched, and given up.

Seats are asked for until there are as many as wanted; those for which the cluster has no room wait there until a node comes.
Each node with a seat has a sentry, which is asked every two seconds. Silence is counted only while we listen ourselves: a
driver that was busy, or stopped, must not take its nodes for dead.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shoestring.errors import RunnerError, one_line, warn
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.ray.actors import count_room, describe_node, import_ray, make_seat, make_sentry, say_resources
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.ray.remote_trial import SeatedTrial

_LOOK_S = 0.5
_MORE_SEATS_S = 30.0  # how long the others are waited for when the first seat is ready
_ASK_S = 2.0  # between an answer of a sentry and the next question
_SUSPECT_S = 3.0  # how long a node whose seat died is waited for before another seat is asked for
_AVOIDED_S = 60.0  # a dead node counts as alive for so long
_FIRST_WORD_S = 60.0  # a sentry has to be started first, on a node that may be busy
_LISTENED_S = 1.0  # at most so much silence is counted from one look to the next
_MOST_DEATHS = 3  # of seats in a row before they could be used: then it is not the nodes
_LONGEST_PAUSE_S = 30.0  # before another seat is asked for, when they keep dying


@dataclass(eq=False, slots=True)
class NodeWatch:
    """A node, and the sentry on it."""

    node: str
    sentry: Any
    next_ask: float = 0.0
    call: Any = None  # a question that was not answered yet
    silent_s: float = 0.0
    has_spoken: bool = False
    is_given_up: bool = False
    suspect_until: float = 0.0

    def suspect(self, now: float) -> None:
        """A seat died: a sentry that is alive says so at once when it is asked."""
        self.suspect_until, self.next_ask = now + _SUSPECT_S, now

    def has_been_silent_for(self, limit_s: float) -> bool:
        return self.silent_s >= (limit_s if self.has_spoken else max(limit_s, _FIRST_WORD_S))


class SeatPool:
    """Seats by the calls that they have to answer; see the module."""

    def __init__(
        self, cluster: RayCluster, code: bytes, checkpoints: Checkpoints, now: Callable[[], float], wanted: int
    ) -> None:
        self.wanted = wanted
        self._cluster, self._code, self._checkpoints, self._now = cluster, code, checkpoints, now
        self._max_steps = 1
        self._seats: list[SeatedTrial] = []
        self._calls: dict[Any, SeatedTrial | NodeWatch] = {}
        self._watches: dict[str, NodeWatch] = {}
        self._mark = secrets.token_hex(6)
        self._looked_at = time.monotonic()
        self._deaths = 0  # of seats in a row that were never ready
        self._fill_at = 0.0
        self._avoided: dict[str, float] = {}  # nodes, and until when
        self.last_death = ""

    def __iter__(self) -> Iterator[SeatedTrial]:
        return iter(list(self._seats))

    @property
    def ready(self) -> list[SeatedTrial]:
        return [seat for seat in self._seats if seat.name]

    @property
    def busy(self) -> list[SeatedTrial]:
        return [seat for seat in self._seats if seat.order is not None]

    @property
    def free(self) -> list[SeatedTrial]:
        return [seat for seat in self._seats if seat.name and seat.order is None]

    def spare(self, trial: int) -> SeatedTrial:
        """Of the free seats the one to be spared for this trial: an empty one, else of those that are safe the longest unused."""
        for stale in self.free:
            if stale.trial == trial:
                stale.empty()
        return min(self.free, key=lambda seat: (seat.trial is not None, not seat.is_safe, seat.since))

    def open(self, max_steps: int, *, is_storage_needed: bool) -> None:
        self._max_steps = max_steps
        if is_storage_needed:
            self._checkpoints.storage.mark(self._mark)
        self.fill()

    def fill(self) -> None:
        """Ask for the seats that are missing."""
        now = time.monotonic()
        if any(watch.suspect_until > now for watch in self._watches.values()):
            return  # whether a seat died alone or with its node is known in a moment
        self._avoided = {node: until for node, until in self._avoided.items() if until > now}
        bad = {watch.node for watch in self._watches.values() if watch.is_given_up} | self._avoided.keys()
        while len(self._seats) < self.wanted and now >= self._fill_at:
            taken = {seat.number for seat in self._seats}
            number = next(n for n in itertools.count(1) if n not in taken)
            actor = make_seat(self._cluster, self._code, self._checkpoints.storage, self._mark, sorted(bad))
            seat = SeatedTrial(actor, number, self._checkpoints, self._now, self._max_steps)
            self._seats.append(seat)
            self.expect(seat, actor.hello.remote())

    def wait_until_ready(self) -> None:
        """For one seat, and for the others that there is room for."""
        began, room = time.monotonic(), count_room(self._cluster)
        if not room:
            warn(f"no node of the Ray cluster has room: {say_resources(self._cluster)}; waiting for one")
        while not self.ready or len(self.ready) < min(self.wanted, room):
            waited_s = time.monotonic() - began
            if self.ready and waited_s > _MORE_SEATS_S:
                return  # others are using the cluster, too
            if self._deaths >= _MOST_DEATHS:
                raise RunnerError(f"seats on the Ray cluster die before they can be used: {self.last_death}")
            if waited_s > self._cluster.start_within_s:
                raise RunnerError(
                    f"the Ray cluster had no room for {waited_s:.0f} s: {say_resources(self._cluster)}; ask for less of "
                    "it, or wait longer with RayCluster(start_within_s=…)"
                )
            for seat, _ in self.listen(_LOOK_S):  # nobody has a trial yet: it died
                self.drop(seat)
            self.fill()

    def expect(self, seat: SeatedTrial, call: Any) -> None:
        self._calls[call] = seat

    def listen(self, within_s: float) -> Iterator[tuple[SeatedTrial, Mapping[str, Any] | None]]:
        """Answers of seats that have a trial, as they come; None instead of one: the seat has died."""
        ray = import_ray()
        if not self._calls:
            time.sleep(min(within_s, 0.05))
            return
        ready, _ = ray.wait(list(self._calls), num_returns=1, timeout=within_s)
        if ready:  # what came at the same time is taken along
            ready, _ = ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        for call in ready:
            asked = self._calls.pop(call, None)
            if asked is None:  # given up because of what another one said a moment ago
                continue
            answer = self._read(call)
            if isinstance(asked, NodeWatch):
                self._hear_sentry(asked, answer)
            elif answer is None and asked.node in self._watches:
                self._watches[asked.node].suspect(time.monotonic())
                yield asked, None
            elif answer is not None and not asked.name:
                self._greet(asked, answer)
            else:
                yield asked, answer

    def find_silent(self) -> list[tuple[SeatedTrial, str]]:
        """Seats that are to be given up, and why; nodes are asked how they are."""
        now = time.monotonic()
        listened_s, self._looked_at = min(now - self._looked_at, _LISTENED_S), now
        limit_s = self._cluster.silent_after_s
        for seat in self.ready:
            if seat.node not in self._watches:
                self._watches[seat.node] = NodeWatch(seat.node, make_sentry(seat.node))
        for watch in self._watches.values():
            if watch.call is not None:
                watch.silent_s += listened_s
            elif now >= watch.next_ask:
                watch.call = watch.sentry.look.remote([seat.pid for seat in self.ready if seat.node == watch.node])
                self._calls[watch.call] = watch
            watch.is_given_up = watch.has_been_silent_for(limit_s)
        silent = {watch.node for watch in self._watches.values() if watch.is_given_up}
        told = f"nothing was heard of its node for {limit_s:g} s"
        stopped = [
            (seat, f"its process was stopped for {limit_s:g} s") for seat in self.ready if seat.stopped_s >= limit_s
        ]
        return [(seat, told) for seat in self.ready if seat.node in silent] + stopped

    def drop(self, seat: SeatedTrial) -> None:
        """End a seat now, or have it ended as soon as it can be reached; what it says is not heard any more."""
        self._forget(seat)
        _end(seat.actor)

    def wait_for(self, seats: list[SeatedTrial], within_s: float) -> dict[SeatedTrial, Mapping[str, Any]]:
        """What these seats answer in that time."""
        calls = {call: seat for call, seat in self._calls.items() if seat in seats}
        answers: dict[SeatedTrial, Mapping[str, Any]] = {}
        if calls:
            done, _ = import_ray().wait(list(calls), num_returns=len(calls), timeout=within_s)
            for call in done:
                answer = self._read(call)
                del self._calls[call]
                if answer is not None:
                    answers[calls[call]] = answer
        return answers

    def close(self) -> None:
        for actor in [*(seat.actor for seat in self._seats), *(watch.sentry for watch in self._watches.values())]:
            _end(actor)
        self._seats.clear()
        self._calls.clear()
        self._watches.clear()
        with contextlib.suppress(Exception):  # a place that is gone by now holds no mark either
            self._checkpoints.storage.unmark(self._mark)

    def _read(self, call: Any) -> Mapping[str, Any] | None:
        ray = import_ray()
        try:
            answer: Mapping[str, Any] = ray.get(call)
            return answer
        except ray.exceptions.RayTaskError as error:  # our side of it raised: a storage that is full, or gone
            return {"is": "failed", "text": str(error.cause)}
        except ray.exceptions.RayError as error:
            self.last_death = one_line(str(error))[:300]
            return None

    def _greet(self, seat: SeatedTrial, answer: Mapping[str, Any]) -> None:
        if answer["is"] != "ready":
            raise RunnerError(
                f"the training code cannot be had on a node of the cluster: {answer['text']}: put it where every node finds it, "
                "or give RayCluster(runtime_env={'working_dir': …})"
            )
        self._deaths = 0
        seat.name, seat.node, seat.pid = f"{answer['host']}:{seat.number}", answer["node"], answer["pid"]
        seat.reaches, seat.can_save = answer["reaches"], answer["can_save"]
        seat.is_plain = answer["is_plain"]
        if self._cluster.prices:
            seat.price_factor = self._cluster.price_of(describe_node(seat.node))

    def _forget(self, seat: SeatedTrial) -> None:
        self._seats = [other for other in self._seats if other is not seat]
        self._calls = {call: asked for call, asked in self._calls.items() if asked is not seat}
        if not seat.name:
            self._deaths += 1
            self._fill_at = time.monotonic() + min(_LONGEST_PAUSE_S, 2.0 ** (self._deaths - 1))

    def _hear_sentry(self, watch: NodeWatch, answer: Any) -> None:
        watch.call = None
        if not isinstance(answer, list):  # it died, and most likely its node with it: no new seats there for a while
            self._watches.pop(watch.node, None)
            self._avoided[watch.node] = time.monotonic() + _AVOIDED_S
            return
        heard = time.monotonic()
        since_s = heard - (watch.next_ask - _ASK_S) if watch.has_spoken else 0.0
        watch.silent_s, watch.has_spoken, watch.next_ask, watch.suspect_until = 0.0, True, heard + _ASK_S, 0.0
        for seat in self.ready:
            if seat.node == watch.node:
                seat.stopped_s = seat.stopped_s + min(since_s, 2 * _ASK_S) if seat.pid in answer else 0.0


def _end(actor: Any) -> None:
    ray = import_ray()
    with contextlib.suppress(ray.exceptions.RayError, ValueError):
        ray.kill(actor, no_restart=True)
