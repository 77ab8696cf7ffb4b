"""Create and find an environment per tool, so that their versions cannot conflict.

    python -m benchmarks race peers                      create all of them, in .venvs/race
    python -m benchmarks race peers syne_tune smac       only these

A tool that cannot be installed is reported and left out of the race. So is a method whose additional files are not there. Only
Optuna is also used from the environment of the race itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(os.environ.get("RACE_PEERS", Path(__file__).parents[3] / ".venvs" / "race"))
TORCH = "torch==2.13.0"  # as in benchmarks/constraints.txt; it runs without a graphics card


@dataclass(frozen=True)
class Tool:
    requirements: tuple[str, ...]
    methods: tuple[str, ...]
    plain_methods: tuple[str, ...] = ()  # these train to the end only, and race where a trial has one value
    trained_methods: tuple[str, ...] = ()  # these copy trainings, and race where models are really trained
    without_dependencies: tuple[str, ...] = ()  # installed last, with --no-deps
    # {method: code that downloads files into the folder sys.argv[1]}
    downloads: Mapping[str, str] = field(default_factory=dict)


TOOLS = {
    "optuna": Tool(
        ("optuna>=4.0", "scipy", TORCH),
        ("tpe_hyperband", "tpe_halving", "tpe_median", "random_hyperband"),
        ("tpe", "gp"),
    ),
    "syne_tune": Tool(  # 0.13 is the last version with model-based methods
        ("syne-tune[gpsearchers,kde]==0.13",),
        ("asha", "hyperband", "bohb", "sync_bohb", "mobster", "hypertune", "dyhpo"),
    ),
    "syne_tune_newest": Tool(("syne-tune[basic]>=0.15",), ("asha", "bohb")),
    "smac": Tool(("smac>=2.3",), ("multi_fidelity",), ("forest", "gp")),
    "dehb": Tool(("dehb>=0.1.2",), ("default",)),
    "ray": Tool(("ray[tune]>=2.40",), ("asha", "median"), trained_methods=("pbt",)),
    "neps": Tool(  # installed without dependencies; it imports all of these
        (
            *(TORCH, "botorch==0.12.0", "ConfigSpace", "pandas", "pyyaml", "portalocker", "more-itertools", "seqlog"),
            *("networkx", "nltk", "matplotlib", "seaborn", "tensorboard", "scikit-learn", "submitit"),
        ),
        ("asha", "hyperband", "ifbo"),
        without_dependencies=("neural-pipeline-search==0.17.0", "ifBO==0.4.1"),
        downloads={
            "ifbo": "import ifbo, pathlib, sys; folder = pathlib.Path(sys.argv[1], '.model'); folder.mkdir(parents=True); "
            "ifbo.FTPFN(target_path=folder)"
        },
    ),
    "hebo": Tool(  # it requires outdated versions of its dependencies, so newer ones that work are listed here
        (TORCH, "gpytorch", "pymoo==0.6.1.5", "scikit-learn", "pandas", "disjoint-set"),
        (),
        ("default",),
        without_dependencies=("HEBO==0.3.6",),
    ),
    "botorch": Tool((TORCH, "botorch>=0.12"), (), ("logei", "ei_per_cost")),
}

NOTES = {  # on methods that may be absent although the tool is installed
    "neps_ifbo": "its weights are not in a package, they are downloaded from figshare.com",
    "ray_pbt": "it copies trainings, which recorded curves do not support: it races on the real clock only",
}


def find_python(tool: str) -> Path | None:
    """Return the Python that has this tool, or None if it is not installed."""
    own = FOLDER / tool / "bin" / "python"
    if own.exists():
        return own
    return Path(sys.executable) if tool == "optuna" and find_spec("optuna") else None


def lacks_files(tool: str, method: str) -> bool:
    """Return whether a method needs files that were not downloaded yet."""
    return method in TOOLS[tool].downloads and not any(path.is_file() for path in _folder(tool, method).rglob("*"))


def _folder(tool: str, method: str) -> Path:
    """Return the folder of downloaded files; drivers find it below `sys.prefix`."""
    return FOLDER / tool / method


def make(tools: Sequence[str]) -> dict[str, str]:
    """Install tools; return {tool or method: reason} for those that failed."""
    failures = {}
    for tool in tools:
        place = FOLDER / tool
        print(f"{tool}: {' '.join(TOOLS[tool].requirements)}", file=sys.stderr, flush=True)
        python = str(place / "bin" / "python")
        pip = [python, "-m", "pip", "-q", "install"]
        last = TOOLS[tool].without_dependencies
        why = _first_failure(
            [sys.executable, "-m", "venv", "--clear", str(place)],
            [*pip, *TOOLS[tool].requirements],
            *([[*pip, "--no-deps", *last]] if last else []),
        )
        if why:
            failures[tool] = why
            continue
        for method, code in TOOLS[tool].downloads.items():
            folder = _folder(tool, method)
            if why := _first_failure([python, "-c", code, str(folder)]):
                shutil.rmtree(folder, ignore_errors=True)  # an incomplete download is useless
                failures[f"{tool}_{method}"] = f"{NOTES[f'{tool}_{method}']}; {why}"
    return failures


def _first_failure(*commands: list[str]) -> str | None:
    """Run commands until one fails; return its error, or None."""
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            errors = [line for line in lines if "error" in line.lower()] or lines  # pip prints many warnings
            return errors[-1] if errors else f"exit {done.returncode}"
    return None
