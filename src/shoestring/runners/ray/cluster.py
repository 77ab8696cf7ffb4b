"""Which Ray cluster to train on. This module has only settings, so that users without Ray import nothing more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from shoestring.errors import RunnerError


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """Which Ray cluster to train on, and what each worker needs: `tune(…, runner=RayCluster(gpus=1))`.

    Parameters
    ----------
    address : str, optional
        `"auto"`, or `host:port`. By default the address in RAY_ADDRESS, a cluster on this machine, or a new one.
    cpus : float
        CPUs of each worker.
    gpus : float
        GPUs of each worker; with a fraction such as 0.5, workers share a GPU.
    resources : mapping of str to float
        Custom resources of the cluster that each worker needs.
    prices : mapping of str to float
        Price factors of nodes, relative to the rate of the budget, by a label or resource that names the nodes.
    runtime_env : mapping, optional
        Ray's runtime environment of the workers: working_dir, pip, env_vars.
    silent_after_s : float
        After how many silent seconds a node is given up.
    start_within_s : float
        How long to wait for room for the first worker.

    Raises
    ------
    RunnerError
        If the address is one of a Ray client, or a number is out of range.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] | None = None
    silent_after_s: float = 10.0
    start_within_s: float = 600.0

    def __post_init__(self) -> None:
        if self.address is not None and self.address.startswith("ray://"):
            raise RunnerError(
                f"the address {self.address!r} is for Ray clients, which are lost when their connection breaks: run on a "
                "node of the cluster with address 'auto', or submit the command with: ray job submit -- shoestring run …"
            )
        amounts = {"cpus": self.cpus, "gpus": self.gpus, **self.resources}
        for name, amount in amounts.items():
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < float("inf"):
                raise RunnerError(f"{name}={amount!r} of a worker must be a number, 0 or more")
        for name, factor in self.prices.items():
            if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < float("inf"):
                raise RunnerError(
                    f"the price {name}={factor!r} must be a number above 0: what a second there costs, relative to the "
                    "budget's rate"
                )
        for name, seconds in (("silent_after_s", self.silent_after_s), ("start_within_s", self.start_within_s)):
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
                raise RunnerError(f"{name}={seconds!r} must be seconds above 0")

    def price_of(self, words: Collection[str]) -> float:
        """Return the price factor of a node: the first price that names one of its labels or resources, else 1.

        Parameters
        ----------
        words : collection of str
            The labels and resources of the node.

        Returns
        -------
        float
            The cost of a second on this node, relative to the rate of the budget.
        """
        return next((float(factor) for name, factor in self.prices.items() if name in words), 1.0)

    @property
    def needs(self) -> dict[str, float]:
        """The resources that a worker needs, by Ray's names."""
        amounts = {"CPU": self.cpus, "GPU": self.gpus, **self.resources}
        return {name: amount for name, amount in amounts.items() if amount > 0}
