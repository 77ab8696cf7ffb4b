"""The commands of `python -m benchmarks race`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.race import methods, problems, running


def main(arguments: Sequence[str]) -> int:
    commands = {
        "run": run,
        "report": report,
        "store": store,
        "cost": cost,
        "lowest": lowest,
        "peers": peers,
        "methods": list_methods,
    }
    arguments = list(arguments)
    name = arguments.pop(0) if arguments and arguments[0] in commands else "run"
    try:
        return commands[name](arguments)
    except KeyboardInterrupt:
        log("stopped; the same command continues the race")
        return 130


def parser_of(name: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"python -m benchmarks race {name}", description=about)


def run(arguments: Sequence[str]) -> int:
    parser = parser_of("run", "Run methods on problems; append one line of JSON per run to a file.")
    parser.add_argument("--suite", nargs="+", default=["tables"], choices=problems.SUITES)
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[problems.SHIPPED], help="folders of tables, or folders of such folders"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="only problems whose source/table contains one of these"
    )
    parser.add_argument("--tables", type=int, default=3, help="maximum number per source; 0: all")
    parser.add_argument("--skip-tables", type=int, default=0, help="number of tables of each source to leave out first")
    parser.add_argument("--methods", nargs="+", default=["ours"], metavar="NAME", help="see `race methods`")
    parser.add_argument("--budgets", type=_numbers, default=[1, 2, 5, 10, 20], help="in full curves, for example 1,2,5")
    parser.add_argument("--unit", nargs="+", default=["curves"], choices=["curves", "seconds"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--lanes", type=int, default=1, help="on a real clock: number of runs at once, each on its own cores (Linux)"
    )
    parser.add_argument("--steps", type=int, default=50, help="maximum number of steps; longer curves are thinned")
    parser.add_argument("--pool", type=int, help="configurations drawn per seed (default: 200, for plain tables 1000)")
    parser.add_argument("--patience", type=float, default=running.PATIENCE_S, help="maximum number of seconds per run")
    parser.add_argument("--retry", action="store_true", help="repeat runs that ended with an error")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the quick policies, one table per source, budgets of 1 and 2 curves, one seed",
    )
    parser.add_argument("-o", "--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.methods, chosen.tables, chosen.budgets, chosen.seeds = ["quick"], 1, [1, 2], 1
    specs = [
        spec
        for suite in chosen.suite
        for spec in problems.find_problems(
            suite,
            chosen.data,
            per_source=chosen.tables or None,
            skipped=chosen.skip_tables,
            steps=chosen.steps,
            pool=chosen.pool,
            only=chosen.only,
        )
    ]
    if not specs:
        parser.error(f"there is no problem for --suite {' '.join(chosen.suite)} in {' '.join(map(str, chosen.data))}")
    names = {suite: methods.expand_names(chosen.methods, suite) for suite in chosen.suite}
    wanted = running.plan(specs, names, chosen.budgets, chosen.unit, chosen.seeds)
    left = running.missing_runs(wanted, running.read(chosen.out), retry=chosen.retry)
    log(
        f"{len(specs)} problems of {len({spec.source for spec in specs})} sources, "
        f"{len(left)} of {len(wanted)} runs to do"
    )
    absent: dict[str, str] = {}
    failed = 0
    for number, line in enumerate(running.race(left, chosen.out, chosen.jobs, chosen.patience, chosen.lanes), 1):
        if "absent" in line:
            absent.setdefault(line["method"], line["absent"])
        failed += bool(line.get("error"))
        if number % 100 == 0 or number == len(left):
            log(f"{number} of {len(left)} runs done, {failed} with an error")
    for method, reason in absent.items():
        log(f"not counted: {method} ({reason})")
    print(
        json.dumps(
            {"name": "race", "runs": len(left), "errors": failed, "not_counted": absent, "file": str(chosen.out)}
        )
    )
    return 0


def report(arguments: Sequence[str]) -> int:
    from benchmarks.race import digest, page, statistics

    parser = parser_of("report", "Write tables and figures of the runs in these files as one HTML page.")
    _add_files(parser)
    parser.add_argument("-o", "--out", type=Path, help="file of the page")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument(
        "--reference", help="the method that others are compared with (default: the one that we recommend per suite)"
    )
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument(
        "--figure", type=Path, help="SVG file for regret against budget of the first suite, selected methods only"
    )
    parser.add_argument(
        "--markdown", choices=["few", "all"], help="print Markdown: the selected methods only, or the whole report"
    )
    parser.add_argument("--into", type=Path, help="insert the Markdown between the two marks of this file")
    chosen = parser.parse_args(arguments)
    if chosen.into and not chosen.markdown:
        parser.error(f"--into {chosen.into} needs --markdown few or --markdown all")
    runs, costs = _read_files(parser, chosen)
    facts = statistics.summary(runs, reference=chosen.reference, resamples=chosen.resamples)
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(page.html(facts, costs), encoding="utf-8")
        log(f"written: {chosen.out}")
    if chosen.figure:
        chosen.figure.write_text(digest.picture(facts), encoding="utf-8")
    if chosen.markdown:
        text = digest.short_report(facts) if chosen.markdown == "few" else digest.full_report(facts, costs)
        if chosen.into:
            digest.insert_report(chosen.into, text)
        else:
            print(text, end="")
    if chosen.json or not (chosen.out or chosen.figure or chosen.markdown):
        print(json.dumps({**facts, "cost": costs}, allow_nan=False))
    return 0


def store(arguments: Sequence[str]) -> int:
    from benchmarks.race import results

    parser = parser_of("store", "Store these runs in one small file, from which `race report` makes the same page.")
    _add_files(parser)
    parser.add_argument("-o", "--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    results.write(results.pack(*_read_files(parser, chosen)), chosen.out)
    return 0


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", help="files of `race run`, or .json files of `race store`")
    parser.add_argument("--cost", type=Path, nargs="*", default=[], help="files of `race cost`")


def _read_files(
    parser: argparse.ArgumentParser, chosen: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return runs and costs, the last of each; a file of `race store` may contain both."""
    from benchmarks.race import results, trained

    runs: dict[Any, dict[str, Any]] = {}
    costs: list[dict[str, Any]] = []
    for path in chosen.runs:
        if path.suffix == ".json":
            contents = json.loads(path.read_text("utf-8"))
            costs += contents["cost"]
            found = results.unpack(contents)
        else:
            found = [trained.rescale_regret(line) for line in running.read(path)]
        runs |= {running.key_of(line): line for line in found}
    if not runs:
        parser.error(f"{' '.join(map(str, chosen.runs))} contains no runs: execute some with `race run`")
    costs += [json.loads(line) for path in chosen.cost for line in path.read_text("utf-8").splitlines()]
    newest = {(line["method"], line["arms"]): line for line in costs}
    return list(runs.values()), list(newest.values())


def cost(arguments: Sequence[str]) -> int:
    from benchmarks.race import cost as measuring

    return measuring.main(arguments)


def lowest(arguments: Sequence[str]) -> int:
    from benchmarks.race import trained

    parser = parser_of(
        "lowest", "Store the lowest loss per trained task that any of these runs reached; regrets count from it."
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("-o", "--out", type=Path, default=trained.LOWEST_FILE)
    chosen = parser.parse_args(arguments)
    found = trained.lowest_losses(line for path in chosen.runs for line in running.read(path))
    missing = sorted(set(trained.SPACES) - set(found))
    if missing:
        parser.error(f"there is no run of {', '.join(missing)}: execute some with `race run --suite trained`")
    chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def peers(arguments: Sequence[str]) -> int:
    from benchmarks.race.peers import environments

    parser = parser_of("peers", f"Create an environment per tool in {environments.FOLDER} (or in $RACE_PEERS).")
    parser.add_argument("tools", nargs="*", choices=[[], *environments.TOOLS], metavar="TOOL")
    chosen = parser.parse_args(arguments)
    failures = environments.make(chosen.tools or list(environments.TOOLS))
    for tool, reason in failures.items():
        log(f"{tool} cannot be installed and is left out of the race: {reason}")
    return 1 if failures else 0


def list_methods(arguments: Sequence[str]) -> int:
    parser_of("methods", "List all methods, and for absent ones the reason.").parse_args(arguments)
    for name in (*methods.ours(), methods.ORACLE, *methods.peers()):
        facts = methods.describe(name)
        absent = f"absent: {facts['absent']}" if facts["absent"] else ""
        print(f"{name:<28} {facts['tool']:<17} {absent or facts['note'] or ''}".rstrip())
    return 0


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be numbers such as 1,2,5") from None
