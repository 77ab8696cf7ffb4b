"""The commands that only read studies: status, explain, plan, replay, policies, logs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shoestring import policies
from shoestring.cli.job import read_settings
from shoestring.cli.manage import show_studies
from shoestring.cli.printing import print_line, print_message, print_rich
from shoestring.core.ledger.amendments import require_possible
from shoestring.core.ledger.budget import Budget, parse_duration_s
from shoestring.core.ledger.entries import Order, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.core.values.checks import check_whole
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import count, printable
from shoestring.errors import BudgetError, StoreError, StudyError
from shoestring.reports import facts
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.trial_logs import MAX_BYTES, STDERR, STDOUT, log_files, read_log
from shoestring.stores.addresses import open_store
from shoestring.study.study import Study


def show_status(store: str, name: str | None, rows: int, as_json: bool) -> None:
    check_whole("rows", rows, 1, "the number of trials to show")
    opened = open_store(store, must_exist=True)
    if name is None and len(opened.studies()) > 1:
        show_studies(opened, store, as_json=as_json)
        return
    study = Study.open(name, opened)
    if as_json:
        trials = [facts.trial_facts(trial) for trial in facts.rank_trials(study.ledger)[:rows]]
        orders = [facts.order_facts(o.order) for o in study.ledger.open_orders.values()]
        print_line(
            dumps(
                facts.summary(study.name, study.ledger, study.best_checkpoint)
                | {"top_trials": trials, "open_orders": orders}
            )
        )
    else:
        from shoestring.reports import messages

        print_rich(messages.status_report(study.name, study.ledger, study.best_checkpoint, rows))


def show_decision(store: str, name: str | None, order: int | None, trial: int | None, as_json: bool) -> None:
    from shoestring.reports import messages

    if (order is None) == (trial is None):
        raise StudyError(
            "give the number of a decision, or --trial N for all decisions about a trial; `shoestring status` shows both numbers"
        )
    study = Study.open(name, store)
    ledger = study.ledger
    if trial is not None:
        orders = [one for one in ledger.orders if one.trial == find_trial(study, trial).number]
        if as_json:
            print_line(dumps([_explain(ledger, one) for one in orders]))
        else:
            print_rich(messages.order_table(ledger, trial))
        return
    assert order is not None
    chosen_order = study.explain(order)
    if as_json:
        print_line(dumps(_explain(ledger, chosen_order)))
    else:
        print_rich(messages.order_report(ledger, chosen_order))


def _explain(ledger: Ledger, order: Order) -> dict[str, Any]:
    steps = [facts.step_facts(receipt) for receipt in facts.receipts_of(ledger, order.number)]
    return facts.order_facts(order) | {"steps": steps}


def find_trial(study: Study, number: int) -> Trial:
    """Return a trial by number, or raise an error that names the known ones."""
    trials = study.trials
    if not 0 <= number < len(trials):
        known = f"trials 0 to {len(trials) - 1}" if trials else "no trials yet"
        raise StudyError(f"there is no trial {number}: the study {study.name!r} has {known}")
    return trials[number]


def show_plan(
    budget: str,
    max_steps: int,
    step_cost: str | None,
    workers: int,
    policy: str | None,
    settings: Iterable[str],
    like: Sequence[str],
    store: str,
    as_json: bool,
) -> None:
    from shoestring.study.earlier import find_step_s
    from shoestring.study.simulation import plan

    total = Budget(budget)
    step_s = 1.0 if step_cost is None else parse_duration_s(step_cost, "step cost")
    if total.unit != "epochs" and step_cost is None:
        if not like:
            raise BudgetError(
                f"the budget {budget!r} needs the duration of one step: give --step-cost, as in --step-cost 30s, or an earlier "
                "study, --like NAME"
            )
        step_s = find_step_s(like, open_store(store))
        print_message(f"note: a step of {', '.join(like)} took {step_s:.3g} s")
    policy = policy or policies.DEFAULT
    chosen = policies.make(policy, read_settings(settings, policy))
    definition = StudyDefinition(
        space=Space({"x": Float(0.0, 1.0)}),
        budget=total,
        policy=chosen.name,
        settings=policies.settings_of(chosen),
        seed=0,
        max_steps=max_steps,
        workers=workers,
    )
    require_possible(definition)
    planned = plan(definition, chosen, step_s)
    if as_json:
        spent = {"spent": planned.ledger.spent, "left": planned.ledger.left, "trials": len(planned.ledger.trials)}
        by_steps = {str(steps): trials for steps, trials in planned.trials_by_steps.items()}
        shape = {"trials_by_steps": by_steps, "warning": planned.warning}
        print_line(dumps({"policy": chosen.name, "budget": str(total), **spent, **shape}))
        return
    from rich.table import Table

    table = Table("trained to step", "trials", "steps in all", box=None, header_style="dim")
    for steps, trials in planned.trials_by_steps.items():
        table.add_row(str(steps), str(trials), str(steps * trials))
    print_rich(table)
    print_line(
        f"{chosen.name} would train {count(len(planned.ledger.trials), 'configuration')} with {total.show(total.total)}, "
        f"spend {total.show(planned.ledger.spent)} and leave {total.show(planned.ledger.left)} (on random curves)"
    )
    if planned.warning:
        print_message(f"warning: {planned.warning}")


def show_replay(
    store: str, name: str | None, budget: str | None, policy: str | None, settings: Iterable[str], as_json: bool
) -> None:
    from shoestring.study.simulation import replay

    study = Study.open(name, store)
    policy = policy or policies.DEFAULT
    chosen = policies.make(policy, read_settings(settings, policy))
    replayed = replay(study.ledger, chosen, Budget(budget) if budget else None)
    best, real_best = replayed.ledger.best, replayed.winner
    real = real_best.best_value
    value = None if best is None else best.best_value
    compared = {
        "policy": chosen.name,
        "best": value,
        "spent": replayed.ledger.spent,
        "trials": len(replayed.ledger.trials),
        "real_best": real,
        "winner": real_best.number,
        "winner_steps": replayed.winner_steps,
        "winner_missed": replayed.winner_missed,
        "cost": replayed.cost,
        "real_cost": replayed.real_cost,
        "recorded_steps": replayed.recorded_steps,
        "missing_steps": replayed.missing_steps,
        "missing_share": replayed.missing_share,
        "can_tell": replayed.can_tell,
    }
    if as_json:
        print_line(dumps(compared))
        return
    show = study.ledger.budget.show
    steps = replayed.recorded_steps + replayed.missing_steps
    if not replayed.can_tell:
        print_line(
            f"cannot tell whether {chosen.name} would have done better: of the {steps} steps that it would have trained, only "
            f"{replayed.recorded_steps} ({1 - replayed.missing_share:.0%}) are recorded. As far as the records go:"
        )
    print_line(
        f"{chosen.name} would have found {_format_value(value)} for {show(replayed.ledger.spent)} in "
        f"{count(len(replayed.ledger.trials), 'trial')}; the study found {_format_value(real)}"
    )
    if replayed.cost is not None:
        print_line(
            f"it would have been as good as the study after {show(replayed.cost)} of training; "
            f"the study took {show(replayed.real_cost)}"
        )
    if replayed.winner_missed:
        action = f"paused it at step {replayed.winner_steps}" if replayed.winner_steps else "never trained it"
        print_line(
            f"the best trial of the study, {real_best.number}, was best at step {real_best.best_step}: "
            f"{chosen.name} would have {action}"
        )
    else:
        print_line(
            f"it would have trained the best trial of the study, {real_best.number}, to its best step {real_best.best_step}"
        )
    if replayed.missing_steps:
        print_line(
            f"caution: {replayed.missing_steps} of the {steps} steps that it would have trained "
            f"({replayed.missing_share:.0%}) are not recorded: "
            "its trials ended there at no cost, so the policy looks better than it is"
        )
    print_line("(only recorded curves are known, so this says nothing about configurations that the study never tried)")


def _format_value(value: float | None) -> str:
    return "no value" if value is None else f"{value:.6g}"


def show_policies(name: str | None, as_json: bool) -> None:
    descriptions = {known: _describe(known, whole=name is not None) for known in ([name] if name else policies.names())}
    if as_json:
        print_line(dumps(descriptions))
    elif name:
        print_line(descriptions[name]["about"])
        print_line(f"\nSettings: {_list_settings(descriptions[name]['settings']) or 'none'}")
        if printed := descriptions[name]["printed"]:
            print_line(f"\nprinted=True, the method as its paper prints it, sets: {_list_settings(printed)}")
    else:
        _print_groups({known: str(about["about"]) for known, about in descriptions.items()})


def _list_settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{setting}={value!r}" for setting, value in settings.items())


def _describe(name: str, *, whole: bool) -> dict[str, Any]:
    """Return the docstring of a policy (its first line unless `whole`), its settings, and those that `printed=True` changes."""
    kind = policies.find_class(name)
    own = kind.__doc__ or ""
    if not own or own.startswith(f"{kind.__name__}("):  # a dataclass without a docstring gets its signature as one
        own = sys.modules[kind.__module__].__doc__ or ""
    text = inspect.cleandoc(own)
    return {
        "about": text if whole else text.splitlines()[0],
        "settings": policies.defaults_of(name),
        "printed": policies.printed_settings(name),
    }


def _print_groups(summaries: Mapping[str, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    width = max(map(len, summaries)) + len(" (default)")
    for group, names in policies.groups().items():
        table = Table(
            box=None, show_header=False, pad_edge=False, title=group, title_justify="left", title_style="bold"
        )
        table.add_column(min_width=width)
        table.add_column()
        for name in names:
            default = " (default)" if name == policies.DEFAULT else ""
            when = policies.USE_WHEN.get(name)
            table.add_row(f"{name}{default}", Text(summaries[name] + (f"\nWhen {when}." if when else "")))
        print_rich(table)
        print_line("")
    print_line("shoestring policies NAME shows the source, the symbols and the settings of one policy")


def _explain_missing_log(study: Study, trial: int, folder: Path) -> str:
    if other := next(iter(log_files(folder)), None):
        return f"it has only {other.name}"
    receipts = (entry for entry in study.ledger.entries() if isinstance(entry, Receipt) and entry.trial == trial)
    target = study.ledger.definition.target
    in_worker = target.get("runner") in ("process", "ray") or target.get("kind") == "command"
    if in_worker or any(receipt.worker for receipt in receipts):  # only workers are named in receipts
        return "the trial printed nothing"
    return "only worker processes and commands that print something have logs"


def show_logs(trial: int, store: str, name: str | None, stderr: bool, tail: int | None, as_json: bool) -> None:
    if tail is not None and tail < 0:
        raise StudyError(f"--tail {tail} must be 0 or more: the number of lines at the end")
    study = Study.open(name, store)
    number = find_trial(study, trial).number
    folder = Checkpoints(study.checkpoints).folder(number)
    file = folder / (STDERR if stderr else STDOUT)
    if not file.is_file():
        raise StudyError(f"trial {number} has no log {file}: {_explain_missing_log(study, number, folder)}")
    try:
        # Read the whole log: logs longer than MAX_BYTES are cut while they are written.
        text = read_log(file, tail, at_most_bytes=2 * MAX_BYTES)
    except OSError as error:
        raise StoreError(f"the log {str(file)!r} cannot be read: {error.strerror or error}") from None
    if as_json:
        print_line(dumps({"trial": number, "file": str(file), "text": text}))
    else:
        # Progress bars end their lines with a carriage return alone.
        sys.stdout.write(printable(text.replace("\r\n", "\n").replace("\r", "\n"), lines=True))
        if text and not text.endswith(("\n", "\r")):
            sys.stdout.write("\n")
