"""Reports on a ledger: what a terminal shows, and the data for other tools."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment, Cost, Note, Order, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import ResumeCheck
from shoestring.core.space.parameters import Choice, Int
from shoestring.core.space.space import Space
from shoestring.errors import name_as_options
from shoestring.reports import export, facts, messages
from shoestring.reports.progress import LineProgress, LiveView, ReportingProgress

HOSTILE = "\x1b[2J\u202e"


def make_definition(budget: str, **more: Any) -> StudyDefinition:
    space = Space({"kind": Choice(["a", HOSTILE])})
    return StudyDefinition(space=space, budget=Budget(budget), policy="asha", settings={}, seed=0, max_steps=3, **more)


def make_ledger(
    budget: str = "100s", count: int = 1, *, thinking_s: float = 0.0, train_s: float = 1.0, **receipt_fields: Any
) -> Ledger:
    """Return a ledger with `count` trials of one step each."""
    ledger = Ledger([make_definition(budget)])
    for number in range(count):
        order = Order(
            number=number, trial=number, config={"kind": "a"}, until=1, thinking_s=thinking_s, why={"rung": 0}
        )
        receipt = Receipt(order=number, trial=number, step=1, value=0.5 + number, cost=Cost(train=train_s))
        for entry in (order, replace(receipt, **receipt_fields)):
            ledger = ledger.append(entry)
    return ledger


def render(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=150)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_metrics_are_in_every_report() -> None:
    ledger = make_ledger(metrics={"accuracy": 0.875, "f1": 0.5})
    assert facts.summary("s", ledger, None)["best"]["metrics"] == {"accuracy": 0.875, "f1": 0.5}
    (row,) = export.step_rows(ledger)
    assert (row["metrics.accuracy"], row["metrics.f1"]) == (0.875, 0.5)
    assert "metrics.accuracy" in export.as_csv([row]).splitlines()[0]
    assert "accuracy=0.875, f1=0.5" in render(messages.order_report(ledger, ledger.orders[0]))
    assert "step 1" in render(messages.order_report(ledger, ledger.orders[0]))


def test_the_name_of_the_metric_is_shown_with_the_best_value() -> None:
    ledger = Ledger([make_definition("9 epochs", metric="validation error")])
    ledger = ledger.append(Order(number=0, trial=0, config={"kind": "a"}, until=1))
    ledger = ledger.append(Receipt(order=0, trial=0, step=1, value=0.5))
    assert facts.summary("s", ledger, None)["metric"] == "validation error"
    assert facts.summary("s", make_ledger(), None)["metric"] is None
    assert "best validation error 0.5 (trial 0, step 1)" in render(messages.status_report("s", ledger, None))
    assert "best 0.5 (trial 0, step 1)" in render(messages.status_report("s", make_ledger(), None))


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-0.5;=1", "--1", "-", "=\r=1"]
)
def test_no_cell_of_a_csv_file_is_a_formula(text: str) -> None:
    (cell,) = list(csv.reader(io.StringIO(export.as_csv([{"config.kind": text}]), newline="")))[1]
    assert cell == f"'{text}"


@pytest.mark.parametrize("value", [-0.5, -3, "-0.5", "+1e-3", "-.5E+2", "a=1", "", None, True])
def test_numbers_and_plain_texts_of_a_csv_file_are_not_changed(value: object) -> None:
    (cell, _) = list(csv.reader(io.StringIO(export.as_csv([{"config.kind": value, "value": 1}]))))[1]
    assert cell == ("" if value is None else str(value))


def test_equal_failures_are_counted_once_and_five_kinds_are_shown() -> None:
    ledger = Ledger([make_definition("100 epochs")])
    texts = [f"out of memory: {n} GiB" for n in range(3)] + [f"{kind} is missing" for kind in "abcdef"] + [HOSTILE]
    for number, failure in enumerate(texts):
        order = Order(number=number, trial=number, config={"kind": "a"}, until=1)
        receipt = Receipt(order=number, trial=number, step=1, status="failed", text=failure)
        ledger = ledger.append(order).append(receipt)
    groups = facts.failures(ledger)
    assert groups[0] == {"count": 3, "text": "out of memory: 0 GiB", "trials": [0, 1, 2]}
    assert [group["count"] for group in groups] == [3, 1, 1, 1, 1]
    output = render(messages.status_report(f"s{HOSTILE}", ledger, None))
    assert "10 failed:" in output
    assert "3 x out of memory: 0 GiB (trials 0, 1, 2)" in output
    assert "3 more of other kinds" in output
    assert "\x1b[2J" not in output
    assert "failed" not in render(messages.status_report("s", make_ledger(), None))


def test_the_report_of_an_order_shows_why_a_step_failed_and_rounds_numbers() -> None:
    order = Order(number=0, trial=0, config={"kind": "a"}, until=1, why={"share": 1 / 3})
    receipt = Receipt(order=0, trial=0, step=1, status="failed", text="Traceback\nValueError: bad rate")
    ledger = Ledger([make_definition("100 epochs")]).append(order).append(receipt)
    output = render(messages.order_report(ledger, order))
    assert "failed in 0 ms: ValueError: bad rate" in output
    assert " 0.333333 " in output


def test_control_characters_are_shown_escaped() -> None:
    config, why = {"kind": HOSTILE}, {HOSTILE: HOSTILE, "stage": HOSTILE}
    order = Order(number=0, trial=0, config=config, until=1, why=why)
    ledger = Ledger([make_definition("100 epochs")]).append(order).append(Receipt(order=0, trial=0, step=1, value=1.0))
    view = LiveView(HOSTILE)
    view._live.console.file = view._console.file = io.StringIO()
    view(ledger, order)
    view.announce(HOSTILE)
    pictures = [
        messages.status_report(HOSTILE, ledger, None),
        messages.order_report(ledger, order),
        messages.order_table(ledger, 0),
    ]
    pictures += [messages.format_best(ledger, None), view.render(ledger)]
    for picture in [*map(render, pictures), view._console.file.getvalue()]:
        assert "\\x1b[2J\\u202e" in picture
        assert "\x1b[2J" not in picture
        assert "\u202e" not in picture


def test_the_live_view_ends_with_a_ledger_that_others_have_appended_to() -> None:
    ledger = Ledger([make_definition("100 epochs")])
    view = LiveView("t")
    view._live.console.file = view._console.file = io.StringIO()
    with view:
        view(ledger, None)
        ledger.append(Note(topic="remark"))
    assert "0 epochs" in view._console.file.getvalue()


def test_a_step_that_takes_far_longer_than_all_before_is_described() -> None:
    ledger = make_ledger("100 epochs", count=6, train_s=2.0)
    assert messages.describe_long_step(ledger, {4: 39.0, 5: 41.0}) == (
        "a step of trial 5 has taken 41 s so far, and the longest before it took 2 s"
    )
    assert messages.describe_long_step(ledger, {5: 39.0}) is None
    quick = make_ledger("100 epochs", count=6, train_s=0.1)
    assert messages.describe_long_step(quick, {5: 29.0}) is None, "quick steps vary more"
    first = make_ledger("100 epochs", count=0)
    assert messages.describe_long_step(first, {0: 1e6}) is None, "there is nothing to compare it with"


def test_a_slow_policy_is_announced_once_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    slow = make_ledger(count=6, thinking_s=0.9, train_s=1.0)
    warning = messages.describe_slow_policy(slow)
    assert warning == (
        "decisions took 5.4 s of 11.4 s so far, and count towards the budget: asha is too slow for such short steps. "
        "Choose a faster policy (sequential_halving, asha) or longer steps"
    )
    assert (
        messages.describe_slow_policy(make_ledger(count=6, thinking_s=0.9, train_s=3.0)) is None
    )  # less than a quarter
    assert (
        messages.describe_slow_policy(make_ledger(count=6, thinking_s=0.1, train_s=0.01)) is None
    )  # too few seconds to judge
    assert messages.describe_slow_policy(make_ledger(count=2, thinking_s=9.0)) is None
    assert messages.describe_slow_policy(make_ledger("100 epochs", count=6, thinking_s=0.9)) is None  # not charged
    lines = LineProgress()
    for _ in range(2):
        lines(slow, slow.orders[-1])
    assert capsys.readouterr().err.count("note: decisions took") == 1


def test_a_failure_is_announced_with_the_line_that_names_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    entry = Receipt(order=0, trial=3, step=2, status="failed", text='  File "a.py", line 1, in f\nValueError: no\nmore')
    LineProgress()(make_ledger(), entry)
    assert "trial 3 failed at step 2: ValueError: no\n" in capsys.readouterr().err


def test_a_last_step_that_could_not_be_interrupted_is_named_only_for_training_in_this_process() -> None:
    ledger = make_ledger("1s", train_s=1.5)
    overspent = "the budget is spent: 1.5 s of 1.0 s (500 ms over"
    training_share = ", 100% of it on training"
    cut = f"{overspent}: the last step could not be interrupted)"
    assert messages.describe_ending(ledger, "budget") == f"{overspent}){training_share}"
    assert messages.describe_ending(ledger, "budget", in_this_process=True) == cut + training_share
    saving = ledger.fork().append(Note(topic="thinking", facts={"seconds": 0.0, "kind": "setup"}))
    assert messages.describe_ending(saving, "budget", in_this_process=True) == cut + training_share, (
        "saving did not cause the excess"
    )
    deciding = make_ledger("1s").append(Note(topic="thinking", facts={"seconds": 0.5}))
    assert messages.describe_ending(deciding, "budget", in_this_process=True) == f"{overspent}), 67% of it on training"
    both = ledger.fork().append(Note(topic="thinking", facts={"seconds": 0.1})).append(saving.entries()[-1])
    assert "600 ms over: the last step could not be interrupted)" in messages.describe_ending(
        both, "budget", in_this_process=True
    )
    assert (
        messages.describe_ending(make_ledger("1s", train_s=1.0001), "budget")
        == f"the budget is spent: 1.0 s of 1.0 s{training_share}"
    )
    assert (
        messages.describe_ending(make_ledger("2s"), "budget", "a rest is left")
        == f"a rest is left: spent 1.0 s of 2.0 s{training_share}"
    )


def test_the_share_of_training_is_shown_for_budgets_of_time() -> None:
    ledger = make_ledger("9s").append(Note(topic="thinking", facts={"seconds": 1.0, "kind": "setup"}))
    assert ledger.state.training_share == 0.5
    assert facts.summary("s", ledger, None)["training_share"] == 0.5
    assert "50%" in messages.describe_ending(ledger, "budget")
    assert "training" not in messages.describe_ending(make_ledger("9 epochs"), "budget")
    assert ledger.state.by_kind["setup"] == 1.0
    assert Ledger(ledger.entries()[:1]).state.training_share is None


def test_the_status_counts_validation_passes_done_and_saved() -> None:
    ledger = make_ledger(count=1)
    assert facts.summary("s", ledger, None)["validation_passes"] == {"done": 1, "saved": 0, "saved_seconds": None}
    assert "validation passes" not in render(messages.status_report("s", ledger, None))
    order = Order(number=1, trial=0, config={"kind": "a"}, until=3, validate="last")
    ledger = ledger.append(order)
    for step, value in ((2, None), (3, 0.4)):
        cost = Cost(train=1.0, validate=0.0 if value is None else 6.0)
        ledger = ledger.append(Receipt(order=1, trial=0, step=step, value=value, cost=cost))
    assert facts.summary("s", ledger, None)["validation_passes"] == {"done": 2, "saved": 1, "saved_seconds": 3.0}
    assert "validation passes: 2 done, 1 saved, about 3.0 s\n" in render(messages.status_report("s", ledger, None))


def test_changes_are_described_in_one_line() -> None:
    change = Amendment(budget=Budget("9 epochs"), policy="grid", settings={"points": 3}, workers=2)
    line = "the budget is now 9 epochs, the policy is now grid with points=3, workers are now 2"
    assert messages.format_change(change) == line


def test_the_last_panel_shows_why_the_run_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = make_ledger("2s")
    open_order = Order(number=1, trial=1, config={"kind": "a"}, until=1)
    ledger = ledger.append(open_order)
    view = LiveView("title")
    view._console.file = io.StringIO()
    with view:
        view(ledger, open_order)
        assert "training trial 1 to step 1" in render(view.render(ledger))
        assert "running" in render(view.render(ledger))
        view.end("the budget is spent: 2 s of 2 s")
    last = render(view.render(ledger))
    assert "the budget is spent: 2 s of 2 s" in last
    assert "training trial" not in last
    assert "running" not in last
    assert "training trial" not in view._console.file.getvalue().rpartition("title")[2]


def test_the_panel_of_a_run_that_raised_shows_that_it_ended() -> None:
    view = LiveView("title")
    view._console.file = io.StringIO()
    with view:
        view(make_ledger(), make_ledger().orders[0])
        assert "trial 0 to step 1" in render(view.render(make_ledger()))
    assert "trial 0 to step 1" not in render(view.render(make_ledger()))


def test_a_resume_check_that_found_a_difference_is_announced() -> None:
    check = ResumeCheck(order=0, trial=0, step=1, seconds=1.0, continued=1.0, resumed=2.0, same=False)
    lines: list[str] = []

    class RecordingProgress(ReportingProgress):
        def announce(self, line: str) -> None:
            lines.append(line)

    RecordingProgress()(make_ledger(), check.to_note())
    assert lines[0].startswith("warning: resuming changes the result")


def make_costly(target: dict[str, str], workers: int = 1, policy: str = "guided_halving", **cost: float) -> Ledger:
    """Return a ledger with one step that cost this, and one second of deciding for each order."""
    definition = replace(make_definition("100s", target=target, workers=workers), policy=policy)
    order = Order(number=0, trial=0, config={"kind": "a"}, until=1, thinking_s=1.0)
    return Ledger([definition]).append(order).append(Receipt(order=0, trial=0, step=1, value=0.5, cost=Cost(**cost)))


@pytest.mark.parametrize(
    ("target", "workers", "remedy"),
    [
        ({"runner": "process"}, 1, "imports the training file; runner='local' trains all of them in one process"),
        ({}, 2, "let this file import less, or train longer between two reports; with one worker, runner='local'"),
        ({}, 1, "let a trial load less when it begins"),
        ({"kind": "command", "where": "x"}, 2, "the program starts again for each order"),
    ],
)
def test_little_training_names_the_two_largest_other_costs(target: dict[str, str], workers: int, remedy: str) -> None:
    ledger = make_costly(target, workers, setup=6.0, train=1.0)
    first, second = messages.explain_overhead(ledger)
    assert first.startswith("75% of the time went to starting and saving trials (6.0 s for each trial): ")
    assert remedy in first
    assert second.startswith(
        "12% of the time went to decisions (1.0 s each): choose a faster policy, as with policy='seq"
    )
    assert " ".join(first.split()) in " ".join(render(messages.status_report("s", ledger, None)).split())
    with name_as_options():
        assert "--policy sequential_halving" in messages.explain_overhead(ledger)[1]


def test_a_study_that_mostly_trains_needs_no_advice() -> None:
    assert messages.explain_overhead(make_costly({}, setup=1.0, train=4.7)) == []  # 4.7 of 6.7 seconds are 70 %
    assert len(messages.explain_overhead(make_costly({}, setup=1.0, train=4.6))) == 2
    assert messages.explain_overhead(make_ledger("100 epochs", thinking_s=9.0)) == []
    assert messages.explain_overhead(Ledger([make_definition("100s")])) == []
    assert messages.explain_overhead(make_costly({}, policy="asha")) == [
        "100% of the time went to decisions (1.0 s each): train longer between two reports"
    ]


@pytest.mark.parametrize(("budget", "cost"), [("100 epochs", "2 epochs"), ("100s", "3.0 s")])
def test_a_best_trial_that_is_not_finished_says_what_finishing_costs(budget: str, cost: str) -> None:
    ledger = make_ledger(budget, train_s=1.5, thinking_s=0.0)  # one of three steps
    expected = f"trial 0 is trained to step 1 of 3: the other 2 steps would cost about {cost}"
    assert expected in render(messages.format_best(ledger, None))
    best = facts.summary("s", ledger, None)["best"]
    assert (best["steps_left"], best["cost_to_finish"]) == (2, 2 if "epochs" in budget else 3.0)
    order = Order(number=1, trial=0, config={"kind": "a"}, until=3)
    ledger = ledger.append(order)
    for step in (2, 3):
        ledger = ledger.append(Receipt(order=1, trial=0, step=step, value=0.4, cost=Cost(train=1.5)))
    assert "would cost" not in render(messages.format_best(ledger, None))
    assert facts.summary("s", ledger, None)["best"]["steps_left"] == 0


def test_configurations_show_first_what_differs() -> None:
    space = Space({"same": Int(1, 9), "fixed": Choice(["x", "y"]), "kind": Choice(["a", "b"]), "on": Choice([True, 1])})
    ledger = Ledger([replace(make_definition("9 epochs"), space=space)])
    for number, (kind, on) in enumerate((("a", True), ("b", 1))):
        config = {"same": 3, "fixed": "x", "kind": kind, "on": on}
        ledger = ledger.append(Order(number=number, trial=number, config=config, until=1))
        ledger = ledger.append(Receipt(order=number, trial=number, step=1, value=number + 0.5, cost=Cost(train=1.0)))
        if number == 0:  # of one trial, nothing is known to be the same
            assert "same=3, fixed=x, kind=a, on=True" in render(messages.trial_table(ledger, 10))
    table = render(messages.trial_table(ledger, 10))
    assert "kind=a, on=True" in table
    assert "kind=b, on=1" in table  # True and 1 are two options
    assert table.count("fixed=x") == 1
    assert "the same in all trials, 2 parameters: same=3, fixed=x" in table
    assert "kind=a, on=True, same=3, fixed=x" in render(messages.format_best(ledger, None))
