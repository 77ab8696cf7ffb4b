"""The race runs our policies and other tools on the same problems with the same budget.

    python -m benchmarks race [run] --suite tables --methods ours optuna --budgets 1,2,5 --seeds 3 -o out/race/runs.jsonl
    python -m benchmarks race report out/race/runs.jsonl -o out/race/index.html
    python -m benchmarks race cost -o out/race/cost.jsonl         measure time and memory per decision
    python -m benchmarks race store out/race/runs.jsonl -o race.json        store all runs in one small file, for `report`
    python -m benchmarks race lowest out/race/runs.jsonl          update the lowest known losses of the trained tasks
    python -m benchmarks race peers [TOOL …]                      create the environments of other tools
    python -m benchmarks race methods                             list all methods

`problems` defines the problems, `methods` the competitors, and `running` runs them. `statistics` summarises the runs, `page`
and `digest` format the summary as HTML and as Markdown, and `results` stores the runs in one file.
"""

from benchmarks.race.command import main

__all__ = ["main"]
