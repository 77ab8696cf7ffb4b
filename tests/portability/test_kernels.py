"""Golden numbers and traces with the routines of OpenBLAS and NumPy for other processors.

`make test` tests one of them; `make test-heavy` tests every kernel that this processor can run, with one and two threads.
`benchmarks/portability.py` finds out which kernels it can run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.portability import KERNELS, list_dispatched, list_kernels
from thoroughness import Thoroughness, repetitions

ROOT = Path(__file__).parents[2]
PRINT_KERNELS = (
    "import json, numpy, scipy.linalg, threadpoolctl;"
    "print(json.dumps([pool.get('architecture') for pool in threadpoolctl.threadpool_info() if pool['user_api'] == 'blas']))"
)
OTHER_NAMES = {"Prescott": "Katmai", "Zen": "Haswell"}  # where two processors share one set of routines
VARIANTS = [{"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": str(n)} for kernel in list_kernels() for n in (1, 2)]
if dispatched := list_dispatched():
    VARIANTS.append({"NPY_DISABLE_CPU_FEATURES": " ".join(dispatched)})


def run_child(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=inherited | environment, text=True, capture_output=True, check=False
    )


@pytest.mark.repeated
@pytest.mark.parametrize(
    "variant", VARIANTS[: repetitions(1, thorough=len(VARIANTS))], ids=lambda v: " ".join(v.values())
)
def test_golden_tests_pass_with_other_kernels(variant: dict[str, str]) -> None:
    which = [] if Thoroughness.is_thorough else ["-m", "not slow"]
    done = run_child("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/golden", *which, **variant)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout.splitlines()[-1]


@pytest.mark.repeated
@pytest.mark.parametrize("kernel", list_kernels()[: repetitions(1, thorough=len(KERNELS))])
def test_the_kernel_is_used(kernel: str) -> None:
    plain = json.loads(run_child("-c", PRINT_KERNELS).stdout)
    if None in plain or not plain:
        pytest.skip("NumPy and SciPy do not use OpenBLAS here")
    used = json.loads(run_child("-c", PRINT_KERNELS, OPENBLAS_CORETYPE=kernel).stdout)
    assert set(used) <= {kernel, OTHER_NAMES.get(kernel)}
