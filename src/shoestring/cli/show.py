"""The commands that look at studies and change nothing (and `repair`, which writes a new store only)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoestring import policies
from shoestring.cli.job import read_settings
from shoestring.core.continuing import check
from shoestring.core.entries import Opened
from shoestring.core.money import Budget, duration_s
from shoestring.core.parameters import Float
from shoestring.core.space import Space
from shoestring.core.strict_json import dumps
from shoestring.errors import BudgetError, StoreError, StudyError
from shoestring.reports import facts
from shoestring.stores.opening import open_store
from shoestring.study.study import Study, checkpoint_root


def show_status(store: str, name: str | None, rows: int, as_json: bool) -> None:
    study = Study.open(name, store)
    if as_json:
        trials = [facts.trial_facts(trial) for trial in facts.best_first(study.ledger)[:rows]]
        orders = [facts.order_facts(o.order) for o in study.ledger.open_orders.values()]
        _out(dumps(facts.summary(study) | {"top_trials": trials, "open_orders": orders}))
    else:
        from shoestring.reports import text

        _show(text.status(study, rows))


def show_decision(store: str, name: str | None, order: int, as_json: bool) -> None:
    study = Study.open(name, store)
    found = study.explain(order)
    if as_json:
        _out(dumps(facts.order_facts(found)))
    else:
        from shoestring.reports import text

        _show(text.decision(study.ledger, found))


def show_plan(
    budget: str,
    max_steps: int,
    step_cost: str | None,
    workers: int,
    policy: str | None,
    settings: Iterable[str],
    as_json: bool,
) -> None:
    from shoestring.study.plan import plan

    total = Budget(budget)
    if total.unit != "epochs" and step_cost is None:
        raise BudgetError(f"what does one step cost? The budget {budget!r} needs --step-cost, as in --step-cost 30s")
    chosen = policies.make(policy or policies.DEFAULT, read_settings(settings))
    opened = Opened(
        space=Space({"x": Float(0.0, 1.0)}),
        budget=total,
        policy=chosen.name,
        settings=policies.settings_of(chosen),
        seed=0,
        max_steps=max_steps,
        workers=workers,
    )
    check(opened)
    made = plan(opened, chosen, duration_s(step_cost, "step cost") if step_cost else 1.0)
    if as_json:
        spent = {"spent": made.ledger.spent, "left": made.ledger.left, "trials": len(made.ledger.trials)}
        by_steps = {str(steps): count for steps, count in made.trials_by_steps.items()}
        _out(dumps({"policy": chosen.name, "budget": str(total), **spent, "trials_by_steps": by_steps}))
        return
    from rich.table import Table

    table = Table("trained to step", "trials", "steps in all", box=None, header_style="dim")
    for steps, count in made.trials_by_steps.items():
        table.add_row(str(steps), str(count), str(steps * count))
    _show(table)
    _out(
        f"{chosen.name} would start {len(made.ledger.trials)} trials with {total.show(total.total)}, "
        f"spend {total.show(made.ledger.spent)} and leave {total.show(made.ledger.left)} (made-up curves)"
    )


def show_replay(
    store: str, name: str | None, budget: str | None, policy: str | None, settings: Iterable[str], as_json: bool
) -> None:
    from shoestring.study.replay import replay

    study = Study.open(name, store)
    chosen = policies.make(policy or policies.DEFAULT, read_settings(settings))
    again = replay(study.ledger, chosen, policies.settings_of(chosen), Budget(budget) if budget else None)
    found, winner = again.ledger.best, again.winner
    real = winner.values[winner.best_step - 1]
    value = None if found is None else found.values[found.best_step - 1]
    told = {
        "policy": chosen.name,
        "best": value,
        "spent": again.ledger.spent,
        "trials": len(again.ledger.trials),
        "real_best": real,
        "winner": winner.number,
        "winner_steps": again.winner_steps,
        "winner_frozen": again.winner_frozen,
        "price": again.price,
        "real_price": again.real_price,
    }
    if as_json:
        _out(dumps(told))
        return
    show = study.ledger.budget.show
    _out(
        f"{chosen.name} would have found {value} for {show(again.ledger.spent)} in {len(again.ledger.trials)} trials; "
        f"the study found {real}"
    )
    if again.price is not None:
        _out(
            f"as good as the study after {show(again.price)} of training; the study itself took {show(again.real_price)}"
        )
    if again.winner_frozen:
        seen = f"frozen it at step {again.winner_steps}" if again.winner_steps else "never started it"
        _out(f"the winner, trial {winner.number}, was best at step {winner.best_step}: {chosen.name} would have {seen}")
    else:
        _out(f"it would have trained the winner, trial {winner.number}, to its best step {winner.best_step}")
    _out("(curves end where the study stopped buying them, so this says nothing about configs that it never tried)")


def show_policies(name: str | None, as_json: bool) -> None:
    names = [name] if name else policies.names()
    told: dict[str, dict[str, Any]] = {}
    for known in names:
        kind = policies.policy_class(known)
        module = inspect.getmodule(kind)
        text = inspect.getdoc(module) or inspect.getdoc(kind) or ""
        told[known] = {"about": text if name else text.splitlines()[0], "settings": policies.defaults_of(known)}
    if as_json:
        _out(dumps(told))
        return
    from rich.table import Table
    from rich.text import Text

    if name:
        _out(told[name]["about"])
        _out("\nSettings: " + (", ".join(f"{k}={v!r}" for k, v in told[name]["settings"].items()) or "none"))
        return
    table = Table("policy", "idea", box=None, header_style="dim", pad_edge=False)
    for known, about in told.items():
        default = " (default)" if known == policies.DEFAULT else ""
        table.add_row(f"{known}{default}", Text(about["about"]))
    _show(table)
    _out("\nshoestring policies NAME: its source, its symbols and its settings")


def do_export(store: str, name: str | None, form: str, whole: bool, output: str | None) -> None:
    from shoestring.reports import export

    if whole and form == "csv":
        raise StudyError("--ledger goes with --format jsonl: entries of a ledger are no table")
    study = Study.open(name, store)
    rows = export.ledger_rows(study.ledger) if whole else export.step_rows(study.ledger)
    text = export.as_csv(rows) if form == "csv" else "".join(f"{line}\n" for line in export.as_json_lines(rows))
    if output:
        try:
            Path(output).write_text(text, encoding="utf-8")
        except OSError as error:
            raise StoreError(f"the export cannot be written to {output!r}: {error.strerror or error}") from None
    else:
        sys.stdout.write(text)


def do_repair(study: str, output: str, store: str, as_json: bool) -> None:
    from shoestring.stores.repair import repair

    done = repair(store, study, output)
    if as_json:
        _out(dumps({"study": study, "kept": done.kept, "dropped": done.dropped, "why": done.why, "output": output}))
        return
    kept = checkpoint_root(open_store(store), study)
    if kept.exists():
        _out(
            f"checkpoints stay where they are; to have them: cp -r {kept} {checkpoint_root(open_store(output), study)}"
        )
    rest = "an unknown number" if done.dropped is None else done.dropped
    _out(f"kept {done.kept} entries of {study!r} in {output}" + (f", dropped {rest}: {done.why}" if done.why else ""))


def _out(line: str) -> None:
    sys.stdout.write(line + "\n")


def _show(renderable: Any) -> None:
    from rich.console import Console

    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(renderable)
