"""The race: our policies and other tools on the same problems with the same money.

    python -m benchmarks race [run] --suite tables --methods ours optuna --budgets 1,2,5 --seeds 3 -o out/race/runs.jsonl
    python -m benchmarks race report out/race/runs.jsonl -o out/race/index.html
    python -m benchmarks race cost -o out/race/cost.jsonl         time and memory of a decision
    python -m benchmarks race keep out/race/runs.jsonl -o race.json        all runs in one small file, for `report`
    python -m benchmarks race lowest out/race/runs.jsonl          what regrets on the real clock count from
    python -m benchmarks race peers [TOOL …]                      make the environments of other tools
    python -m benchmarks race methods                             who is there

`problems` says what is raced on, `methods` who races, `running` does it, `statistics` and `page` tell what came of
it, `digest` in a few rows, and `results` keeps it.
"""

from benchmarks.race.command import main

__all__ = ["main"]
