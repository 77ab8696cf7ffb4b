"""Cases of `cost_aware_ei`: six dimensions, compared with the Gaussian processes of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import cast

import numpy as np

from benchmarks.cost_aware.functions import HARTMANN6, hartmann6
from benchmarks.cost_aware.peers import Decide, Grid, botorch_gp, optuna_gp, sklearn_gp
from benchmarks.speed.measure import DECISIONS, Case, Peer, begin_study, carry_out
from shoestring import policies
from shoestring.core.ledger.entries import Cost, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.runners.simulated.simulated_runner import StepOutcome

PEER_DECISIONS = 5
COMPARED_PEERS = ("Optuna GPSampler", "BoTorch SingleTaskGP, LogEI")


@dataclass(frozen=True)
class HartmannWithCosts:
    """Hartmann's six-dimensional function, with prices that differ by a factor of 150."""

    def step(self, config: Config, step: int) -> StepOutcome:
        u = np.array([config[f"x{j}"] for j in range(6)])
        return StepOutcome(hartmann6(u), Cost(train=float(np.exp(3 * u[0] + 2 * u[5]))))


def cases() -> list[Case]:
    """Return the cases: about 30, 100 and 200 finished trials in six dimensions; 5 decisions of each installed peer."""
    space, source, policy = HARTMANN6.space, HartmannWithCosts(), policies.make("cost_aware_ei")
    known = {"scikit-learn GP, EI": (sklearn_gp, "sklearn"), COMPARED_PEERS[0]: (optuna_gp, "torch")}
    known[COMPARED_PEERS[1]] = (botorch_gp, "botorch")
    installed = {name: make for name, (make, needs) in known.items() if find_spec(needs)}

    def begin(trials: int) -> Callable[[], Ledger]:
        def open_ledger() -> Ledger:
            ledger, rng = begin_study(policy, space, "1e9s"), np.random.default_rng(0)
            for number in range(trials - DECISIONS // 2 - 1):
                order = Order(number=number, trial=number, config=space.from_cube(rng.random(6)), until=1)
                ledger = carry_out(ledger, order, source)
            return ledger

        return open_ledger

    def peer(make: Callable[[Grid, int], Decide], trials: int) -> Peer:
        def prepare() -> Callable[[], None]:
            x = np.random.default_rng(0).random((trials + PEER_DECISIONS, 6))
            y = np.array([cast(float, source.step({f"x{j}": v for j, v in enumerate(row)}, 1).value) for row in x])
            decide = make(Grid.box(6), 0)
            # Do the imports, and find an optimum to start from, as a running study has.
            decide(x[: trials - 1], y[: trials - 1])

            def work() -> None:
                for n in range(trials, trials + PEER_DECISIONS):
                    decide(x[:n], y[:n])

            return work

        return Peer(prepare, PEER_DECISIONS)

    def peers(trials: int) -> dict[str, Peer]:
        return {name: peer(make, trials) for name, make in installed.items()}

    return [
        Case("cost_aware_ei_30", policy, begin(30), source, 50.0, peers(30)),
        Case("cost_aware_ei_100", policy, begin(100), source, 50.0, peers(100), 2.0, COMPARED_PEERS),
        Case("cost_aware_ei_200", policy, begin(200), source, 150.0, peers(200)),
    ]
