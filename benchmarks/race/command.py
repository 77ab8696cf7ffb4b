"""What can be typed after `python -m benchmarks race`."""

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
        "keep": keep,
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
        say("stopped; the same command goes on")
        return 130


def parser_of(name: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"python -m benchmarks race {name}", description=about)


def run(arguments: Sequence[str]) -> int:
    parser = parser_of("run", "Race methods on problems; one line of JSON for each run, added to a file.")
    parser.add_argument("--suite", nargs="+", default=["tables"], choices=problems.SUITES)
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[problems.SHIPPED], help="folders of (folders of) tables"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="problems whose source/table has one of these"
    )
    parser.add_argument("--tables", type=int, default=3, help="at most so many of each source; 0: all")
    parser.add_argument("--methods", nargs="+", default=["ours"], metavar="NAME", help="see `race methods`")
    parser.add_argument("--budgets", type=_numbers, default=[1, 2, 5, 10, 20], help="in full curves, as 1,2,5")
    parser.add_argument("--unit", nargs="+", default=["curves"], choices=["curves", "seconds"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--lanes", type=int, default=1, help="on a real clock: so many runs at once, each on cores of its own (Linux)"
    )
    parser.add_argument("--steps", type=int, default=50, help="curves are thinned to at most so many")
    parser.add_argument("--pool", type=int, help="configs drawn for each seed (default: 200, of plain tables 1000)")
    parser.add_argument("--patience", type=float, default=running.PATIENCE_S, help="seconds for one run")
    parser.add_argument("--retry", action="store_true", help="do runs again that ended in an error")
    parser.add_argument(
        "--quick", action="store_true", help="the quick policies, one table a source, 1 and 2 curves, a seed"
    )
    parser.add_argument("-o", "--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.methods, chosen.tables, chosen.budgets, chosen.seeds = ["quick"], 1, [1, 2], 1
    entrants = [
        entrant
        for suite in chosen.suite
        for entrant in problems.entrants(
            suite,
            chosen.data,
            per_source=chosen.tables or None,
            steps=chosen.steps,
            pool=chosen.pool,
            only=chosen.only,
        )
    ]
    if not entrants:
        parser.error(f"there is no problem for --suite {' '.join(chosen.suite)} in {' '.join(map(str, chosen.data))}")
    names = {suite: methods.named(chosen.methods, suite) for suite in chosen.suite}
    wanted = running.plan(entrants, names, chosen.budgets, chosen.unit, chosen.seeds)
    left = running.missing(wanted, running.read(chosen.out), retry=chosen.retry)
    say(
        f"{len(entrants)} problems of {len({e.source for e in entrants})} sources, {len(left)} of {len(wanted)} runs to do"
    )
    absent: dict[str, str] = {}
    failed = 0
    for number, line in enumerate(running.race(left, chosen.out, chosen.jobs, chosen.patience, chosen.lanes), 1):
        if "absent" in line:
            absent.setdefault(line["method"], line["absent"])
        failed += bool(line.get("error"))
        if number % 100 == 0 or number == len(left):
            say(f"{number} of {len(left)} runs done, {failed} with an error")
    for method, why in absent.items():
        say(f"not counted: {method} ({why})")
    print(
        json.dumps(
            {"name": "race", "runs": len(left), "errors": failed, "not_counted": absent, "file": str(chosen.out)}
        )
    )
    return 0


def report(arguments: Sequence[str]) -> int:
    from benchmarks.race import digest, page, statistics

    parser = parser_of("report", "Tables and pictures of the runs in these files, as one HTML page.")
    _add_files(parser)
    parser.add_argument("-o", "--out", type=Path, help="the page")
    parser.add_argument("--json", action="store_true", help="the numbers on standard output")
    parser.add_argument("--reference", help="the method that others are compared with (default: our default policy)")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument(
        "--figure", type=Path, help="the first suite's regret against money in a few rows, as an SVG file"
    )
    parser.add_argument("--markdown", choices=["few", "all"], help="the same few rows, or everything, as Markdown")
    parser.add_argument("--into", type=Path, help="put the Markdown between the two marks of this file")
    chosen = parser.parse_args(arguments)
    if chosen.into and not chosen.markdown:
        parser.error(f"--into {chosen.into} has nothing to put there: add --markdown few, or all")
    runs, costs = _read_files(parser, chosen)
    facts = statistics.summary(runs, reference=chosen.reference, resamples=chosen.resamples)
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(page.html(facts, costs), encoding="utf-8")
        say(f"written: {chosen.out}")
    if chosen.figure:
        chosen.figure.write_text(digest.picture(facts), encoding="utf-8")
    if chosen.markdown:
        text = digest.few(facts) if chosen.markdown == "few" else digest.everything(facts, costs)
        if chosen.into:
            digest.put_into(chosen.into, text)
        else:
            print(text, end="")
    if chosen.json or not (chosen.out or chosen.figure or chosen.markdown):
        print(json.dumps({**facts, "cost": costs}, allow_nan=False))
    return 0


def keep(arguments: Sequence[str]) -> int:
    from benchmarks.race import results

    parser = parser_of("keep", "All these runs in one small file, of which `race report` makes the same page.")
    _add_files(parser)
    parser.add_argument("-o", "--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    results.write(results.keep(*_read_files(parser, chosen)), chosen.out)
    return 0


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", help="files of `race run`, or .json files of `race keep`")
    parser.add_argument("--cost", type=Path, nargs="*", default=[], help="files of `race cost`")


def _read_files(
    parser: argparse.ArgumentParser, chosen: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Runs and costs, each once, the last one told; a file that was kept may hold both."""
    from benchmarks.race import results, trained

    runs: dict[Any, dict[str, Any]] = {}
    costs: list[dict[str, Any]] = []
    for path in chosen.runs:
        if path.suffix == ".json":
            kept = json.loads(path.read_text("utf-8"))
            costs += kept["cost"]
            found = results.runs_of(kept)
        else:
            found = [trained.rescaled(line) for line in running.read(path)]
        runs |= {running.key_of(line): line for line in found}
    if not runs:
        parser.error(f"{' '.join(map(str, chosen.runs))} holds no runs: make some with `race run`")
    costs += [json.loads(line) for path in chosen.cost for line in path.read_text("utf-8").splitlines()]
    once = {(line["method"], line["arms"]): line for line in costs}
    return list(runs.values()), list(once.values())


def cost(arguments: Sequence[str]) -> int:
    from benchmarks.race import cost as measuring

    return measuring.main(arguments)


def lowest(arguments: Sequence[str]) -> int:
    from benchmarks.race import trained

    parser = parser_of(
        "lowest", "Of each trained task the best that any of these runs reached: what regrets are counted from."
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("-o", "--out", type=Path, default=trained.LOWEST_FILE)
    chosen = parser.parse_args(arguments)
    found = trained.lowest(line for path in chosen.runs for line in running.read(path))
    lacking = sorted(set(trained.SPACES) - set(found))
    if lacking:
        parser.error(f"there is no run of {', '.join(lacking)}: race --suite trained first")
    chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def peers(arguments: Sequence[str]) -> int:
    from benchmarks.race.peers import environments

    parser = parser_of("peers", f"Make an environment for each tool in {environments.FOLDER} (or RACE_PEERS).")
    parser.add_argument("tools", nargs="*", choices=[[], *environments.TOOLS], metavar="TOOL")
    chosen = parser.parse_args(arguments)
    failures = environments.make(chosen.tools or list(environments.TOOLS))
    for tool, why in failures.items():
        say(f"{tool} cannot be installed, it is left out of the race: {why}")
    return 1 if failures else 0


def list_methods(arguments: Sequence[str]) -> int:
    parser_of("methods", "Who can race, and who is absent for what reason.").parse_args(arguments)
    for name in (*methods.ours(), methods.ORACLE, *methods.peers()):
        facts = methods.describe(name)
        absent = f"absent: {facts['absent']}" if facts["absent"] else ""
        print(f"{name:<28} {facts['tool']:<17} {absent or facts['note'] or ''}".rstrip())
    return 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be numbers, as 1,2,5") from None
