"""Prioritised replay: transitions are drawn in proportion to the last error of the network on them.

Schaul, Quan, Antonoglou, Silver, "Prioritized Experience Replay", ICLR 2016, arXiv:1511.05952, the proportional variant. The
priorities are in a binary tree of sums, an array in which node i has the children 2i and 2i + 1: a draw walks down from the
root, a change of a priority walks up. Both are done for the whole batch at once, one level of the tree at a time.

    paper   here          meaning
    p_i     priorities    |error of transition i| + SMALLEST
    alpha   alpha         0: uniform, 1: in proportion to the error
    beta    beta          how much of the resulting bias is corrected by weights, 1: all of it
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Places = NDArray[np.int64]
SMALLEST = 1e-3  # so that every transition can be drawn again


class PrioritisedReplay:
    def __init__(self, capacity: int, n_observed: int, alpha: float, rng: np.random.Generator) -> None:
        self.capacity, self.alpha, self.rng = capacity, alpha, rng
        self.depth = int(np.ceil(np.log2(capacity)))
        self.first_leaf = 2**self.depth
        self.sums = np.zeros(2 * self.first_leaf)
        self.largest = 1.0  # priority of a new transition, so that each is drawn soon
        self.size = self.next = 0
        self.observed = np.zeros((capacity, n_observed), dtype=np.float32)
        self.observed_after = np.zeros((capacity, n_observed), dtype=np.float32)
        self.actions = np.zeros(capacity, dtype=np.int64)
        self.rewards = np.zeros(capacity, dtype=np.float32)
        self.is_last = np.zeros(capacity, dtype=np.float32)

    def add(self, observed: Floats, action: int, reward: float, after: Floats, is_last: bool) -> None:
        place = self.next
        self.observed[place], self.observed_after[place] = observed, after
        self.actions[place], self.rewards[place], self.is_last[place] = action, reward, is_last
        node = place + self.first_leaf
        change = self.largest - self.sums[node]
        while node:
            self.sums[node] += change
            node >>= 1
        self.next = (place + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def draw(self, count: int, beta: float) -> tuple[Places, Floats]:
        """Return the places of `count` transitions, one from each of `count` equal slices of the sum, and their weights."""
        total = self.sums[1]
        left = (np.arange(count) + self.rng.random(count)) * (total / count)
        node = np.ones(count, dtype=np.int64)
        for _ in range(self.depth):
            node *= 2
            below = self.sums[node]
            goes_right = left > below
            left -= below * goes_right
            node += goes_right
        places = np.minimum(node - self.first_leaf, self.size - 1)  # rounding may end one leaf too far
        weights = (self.size * self.sums[places + self.first_leaf] / total) ** -beta
        return places, (weights / weights.max()).astype(np.float32)

    def update(self, places: Places, errors: Floats) -> None:
        """Set the priorities of these transitions from the network's present errors."""
        priorities = (np.abs(errors) + SMALLEST) ** self.alpha
        self.largest = max(self.largest, float(priorities.max()))
        node = places + self.first_leaf
        self.sums[node] = priorities  # a place that was drawn twice gets one of its two equal values
        for _ in range(self.depth):
            node = node >> 1
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]
