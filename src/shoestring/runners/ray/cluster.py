"""Which Ray cluster to train on, and what of it: settings only, so that whoever does not use Ray need not load more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from shoestring.errors import RunnerError


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """Which Ray cluster to train on, and what each worker, called a seat, takes of it: `tune(…, runner=RayCluster(gpus=1))`."""

    address: str | None = None  # "auto", or host:port; None: RAY_ADDRESS, a cluster on this machine, else a new one
    cpus: float = 1.0  # of each seat
    gpus: float = 0.0  # of each seat; a part, as 0.5, shares one
    resources: Mapping[str, float] = field(default_factory=dict)  # custom ones of the cluster, of each seat
    prices: Mapping[str, float] = field(default_factory=dict)  # of nodes, times the budget's rate: see `price_of`
    runtime_env: Mapping[str, Any] | None = None  # for Ray: working_dir, pip, env_vars of the seats
    silent_after_s: float = 10.0  # a node that says nothing for so long is given up
    start_within_s: float = 600.0  # how long to wait for room for the first seat

    def __post_init__(self) -> None:
        if self.address is not None and self.address.startswith("ray://"):
            raise RunnerError(
                f"the address {self.address!r} is one for Ray clients, gone when their connection breaks: run on a node of the "
                "cluster with address 'auto', or hand the command over with: ray job submit -- shoestring run …"
            )
        amounts = {"cpus": self.cpus, "gpus": self.gpus, **self.resources}
        for name, amount in amounts.items():
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < float("inf"):
                raise RunnerError(f"{name}={amount!r} of a seat must be a number, 0 or more")
        for name, factor in self.prices.items():
            if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < float("inf"):
                raise RunnerError(
                    f"the price {name}={factor!r} must be a number above 0: what a second there costs, times the budget's rate"
                )
        for name, seconds in (("silent_after_s", self.silent_after_s), ("start_within_s", self.start_within_s)):
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
                raise RunnerError(f"{name}={seconds!r} must be seconds above 0")

    def price_of(self, words: Collection[str]) -> float:
        """Of a node with these labels and resources (see `ray_actors.describe_node`): the first price that names one, else 1."""
        return next((float(factor) for name, factor in self.prices.items() if name in words), 1.0)

    @property
    def needs(self) -> dict[str, float]:
        """What a seat takes, by the names that Ray gives it."""
        amounts = {"CPU": self.cpus, "GPU": self.gpus, **self.resources}
        return {name: amount for name, amount in amounts.items() if amount > 0}
