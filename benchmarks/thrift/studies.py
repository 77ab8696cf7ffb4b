"""Run the studies of the protocol in the harness of the race: one line of JSON each, in the format of the race, resumable."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.race import running
from benchmarks.race.problems import stable_hash
from benchmarks.thrift.protocol import Study
from shoestring import __version__, policies
from shoestring.core.deciding.policy import Policy
from shoestring.models.thrift.network import Network, read
from shoestring.policies.thrift.thrift import Thrift


def with_weights(networks: tuple[Any, ...], settings: dict[str, Any] | None = None) -> Policy:
    """Return the policy with other weights than the shipped ones."""

    class WithWeights(Thrift):
        def _networks(self) -> tuple[Network, ...]:
            return networks

    return WithWeights(**(settings or {}))


class NetworkOnDevice:
    """A network on an accelerator, for many studies: the same numbers to 1e-3, several times as fast."""

    def __init__(self, path: Path, device: str) -> None:
        import torch
        from training.export import restore

        self._torch, self._device = torch, torch.device(device)
        self._network = restore(path)[0].to(self._device).eval()

    def log_odds(self, f: Any, context: Any) -> Any:
        torch = self._torch
        with torch.inference_mode():
            trained = torch.zeros(1, len(f), dtype=torch.bool)
            trained[0, torch.from_numpy(context)] = True
            odds = self._network(torch.from_numpy(f)[None].to(self._device), trained.to(self._device))
            return odds[0].float().cpu().numpy()


@lru_cache(maxsize=8)
def _read(path: Path, device: str | None) -> tuple[Any, ...]:
    return read(path) if device is None else (NetworkOnDevice(path, device),)


def key_of(study: Study) -> dict[str, Any]:
    return running.Run(study.spec, study.method, study.budget, study.unit, study.seed).key


def do(
    study: Study, weights: Path, settings: dict[str, Any] | None = None, device: str | None = None, workers: int = 1
) -> dict[str, Any]:
    """Run one study and return its line."""
    problem = running.draw_problem(study.spec, study.seed)
    if study.training is None:
        policy = policies.make(study.method)
    else:
        policy = with_weights(_read(study.weights(weights), device), settings)
    # The same new trials in the same order for the base rule and for every training, so that only the decisions differ.
    seed = stable_hash(study.spec.name, f"{study.budget:g}", study.unit, study.seed)
    began = time.perf_counter()
    outcome = running.run_study(problem, policy, curves=study.budget, unit=study.unit, seed=seed, workers=workers)
    result = running.result_fields(problem, outcome, study.budget, study.unit, f"shoestring {__version__}", began)
    return {**key_of(study), "at": datetime.now(UTC).isoformat(timespec="seconds"), **result}


def run(
    studies: Sequence[Study],
    weights: Path,
    out: Path,
    jobs: int,
    settings: dict[str, Any] | None = None,
    device: str | None = None,
    workers: int = 1,
) -> Iterator[dict[str, Any]]:
    """Run the studies that the file does not have yet, and write each when it is done."""
    out.parent.mkdir(parents=True, exist_ok=True)
    running.remove_torn_line(out)
    done = {running.key_of(line) for line in running.read(out)}
    remaining = [study for study in studies if running.key_of(key_of(study)) not in done]
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=running.use_one_thread)
    try:
        with out.open("a", encoding="utf-8") as file:
            for future in [pool.submit(do, study, weights, settings, device, workers) for study in remaining]:
                line = future.result()
                file.write(json.dumps(line, allow_nan=False) + "\n")
                file.flush()
                yield line
    finally:
        pool.shutdown(cancel_futures=True)
