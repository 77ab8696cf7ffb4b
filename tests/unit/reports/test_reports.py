"""Reports on a ledger: what a terminal shows, what other tools get."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amended, Cost, Entry, Note, Opened, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice
from shoestring.core.space.space import Space
from shoestring.reports import export, facts, text
from shoestring.reports.progress import Lines, LiveView, Talking

HOSTILE = "\x1b[2J\u202e"


def opened(budget: str, **more: Any) -> Opened:
    space = Space({"kind": Choice(["a", HOSTILE])})
    return Opened(space=space, budget=Budget(budget), policy="asha", settings={}, seed=0, max_steps=3, **more)


def bought(
    budget: str = "100s", count: int = 1, *, thinking_s: float = 0.0, train_s: float = 1.0, **told: Any
) -> Ledger:
    """Trials of one step each."""
    ledger = Ledger([opened(budget)])
    for number in range(count):
        order = Order(
            number=number, trial=number, config={"kind": "a"}, until=1, thinking_s=thinking_s, why={"rung": 0}
        )
        receipt = Receipt(order=number, trial=number, step=1, value=0.5 + number, cost=Cost(train=train_s))
        for entry in (order, replace(receipt, **told)):
            ledger = ledger.append(entry)
    return ledger


def drawn(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=150)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_metrics_are_in_every_report() -> None:
    ledger = bought(metrics={"accuracy": 0.875, "f1": 0.5})
    assert facts.summary("s", ledger, None)["best"]["metrics"] == {"accuracy": 0.875, "f1": 0.5}
    (row,) = export.step_rows(ledger)
    assert (row["metrics.accuracy"], row["metrics.f1"]) == (0.875, 0.5)
    assert "metrics.accuracy" in export.as_csv([row]).splitlines()[0]
    assert "accuracy=0.875, f1=0.5" in drawn(text.decision(ledger, ledger.orders[0]))
    assert "step 1" in drawn(text.decision(ledger, ledger.orders[0]))


def test_one_and_the_same_failure_is_counted_once_and_five_kinds_are_shown() -> None:
    ledger = Ledger([opened("100 epochs")])
    texts = [f"out of memory: {n} GiB" for n in range(3)] + [f"{kind} is missing" for kind in "abcdef"] + [HOSTILE]
    for number, failure in enumerate(texts):
        order = Order(number=number, trial=number, config={"kind": "a"}, until=1)
        receipt = Receipt(order=number, trial=number, step=1, status="failed", text=failure)
        ledger = ledger.append(order).append(receipt)
    groups = facts.failures(ledger)
    assert groups[0] == {"count": 3, "text": "out of memory: 0 GiB", "trials": [0, 1, 2]}
    assert [group["count"] for group in groups] == [3, 1, 1, 1, 1]
    shown = drawn(text.status(f"s{HOSTILE}", ledger, None))
    assert "10 failed:" in shown
    assert "3 x out of memory: 0 GiB (trials 0, 1, 2)" in shown
    assert "3 more of other kinds" in shown
    assert "\x1b[2J" not in shown
    assert "failed" not in drawn(text.status("s", bought(), None))


def test_nothing_that_is_drawn_acts_on_the_terminal() -> None:
    config, why = {"kind": HOSTILE}, {HOSTILE: HOSTILE}
    order = Order(number=0, trial=0, config=config, until=1, why=why)
    ledger = Ledger([opened("100 epochs")]).append(order).append(Receipt(order=0, trial=0, step=1, value=1.0))
    view = LiveView(HOSTILE)
    view._live.console.file = view._console.file = io.StringIO()
    view(ledger, order)
    view.say(HOSTILE)
    pictures = [text.status(HOSTILE, ledger, None), text.decision(ledger, order), text.orders_of(ledger, 0)]
    pictures += [text.best_line(ledger, None), view.render(ledger)]
    for picture in [*map(drawn, pictures), view._console.file.getvalue()]:
        assert "\\x1b[2J\\u202e" in picture
        assert "\x1b[2J" not in picture
        assert "\u202e" not in picture


def test_thinking_that_takes_a_quarter_is_told_once_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    slow = bought(count=6, thinking_s=0.9, train_s=1.0)
    said = text.say_thinking(slow)
    assert said is not None
    assert "5.4 s of 11.4 s" in said
    assert "(sequential_halving, asha), or longer steps" in said
    assert text.say_thinking(bought(count=6, thinking_s=0.9, train_s=3.0)) is None  # less than a quarter
    assert text.say_thinking(bought(count=6, thinking_s=0.1, train_s=0.01)) is None  # too little to tell
    assert text.say_thinking(bought(count=2, thinking_s=9.0)) is None
    assert text.say_thinking(bought("100 epochs", count=6, thinking_s=0.9)) is None  # not charged
    lines = Lines()
    for _ in range(2):
        lines(slow, slow.orders[-1])
    assert capsys.readouterr().err.count("note: thinking took") == 1


def test_a_failure_is_said_in_the_line_that_tells_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    entry = Receipt(order=0, trial=3, step=2, status="failed", text='  File "a.py", line 1, in f\nValueError: no\nmore')
    Lines()(bought(), entry)
    assert "trial 3 failed at step 2: ValueError: no\n" in capsys.readouterr().err


def test_what_could_not_be_cut_off_is_said_of_training_in_this_process_only() -> None:
    ledger = bought("1s", train_s=1.5)
    over = "the budget is spent: spent 1.5 s of 1.0 s (500 ms over"
    all_of_it = ", 100% of it on training"
    cut = f"{over}: the last step could not be cut off)"
    assert text.ending(ledger, "budget") == f"{over}){all_of_it}"
    assert text.ending(ledger, "budget", in_this_process=True) == cut + all_of_it
    frozen = ledger.append(Note(topic="thinking", facts={"seconds": 0.0, "kind": "setup"}))
    assert text.ending(frozen, "budget", in_this_process=True) == cut + all_of_it, "nor by saving"
    thought = bought("1s").append(Note(topic="thinking", facts={"seconds": 0.5}))
    assert text.ending(thought, "budget", in_this_process=True) == f"{over}), 67% of it on training"
    both = ledger.append(Note(topic="thinking", facts={"seconds": 0.1})).append(frozen.entries()[-1])
    assert "600 ms over: the last step could not be cut off)" in text.ending(both, "budget", in_this_process=True)
    assert (
        text.ending(bought("1s", train_s=1.0001), "budget") == f"the budget is spent: spent 1.0 s of 1.0 s{all_of_it}"
    )
    assert text.ending(bought("2s"), "budget", "a rest is left") == f"a rest is left: spent 1.0 s of 2.0 s{all_of_it}"


def test_the_share_of_training_is_said_where_time_is_money() -> None:
    ledger = bought("9s").append(Note(topic="thinking", facts={"seconds": 1.0, "kind": "setup"}))
    assert ledger.books.training_share == 0.5
    assert facts.summary("s", ledger, None)["training_share"] == 0.5
    assert "50% of it on training" in text.ending(ledger, "budget")
    assert "training" not in text.ending(bought("9 epochs"), "budget")
    assert ledger.books.by_kind["setup"] == 1.0
    assert Ledger(ledger.entries()[:1]).books.training_share is None


def test_changes_are_one_line() -> None:
    change = Amended(budget=Budget("9 epochs"), policy="grid", settings={"points": 3}, workers=2)
    told = "the budget is now 9 epochs, the policy is now grid with points=3, workers are now 2"
    assert text.change_line(change) == told


def test_the_last_panel_shows_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = bought("2s")
    open_order = Order(number=1, trial=1, config={"kind": "a"}, until=1)
    ledger = ledger.append(open_order)
    view = LiveView("title")
    view._console.file = io.StringIO()
    with view:
        view(ledger, open_order)
        assert "buying trial 1 to step 1" in drawn(view.render(ledger))
        assert "running" in drawn(view.render(ledger))
        view.end("the budget is spent: spent 2 s of 2 s")
    last = drawn(view.render(ledger))
    assert "the budget is spent: spent 2 s of 2 s" in last
    assert "buying" not in last
    assert "running" not in last
    assert "buying" not in view._console.file.getvalue().rpartition("title")[2]


def test_a_panel_that_nobody_ended_says_that_it_is_over() -> None:
    view = LiveView("title")
    view._console.file = io.StringIO()
    with view:
        view(bought(), bought().orders[0])
    assert "buying" not in drawn(view.render(bought()))


@pytest.mark.parametrize(
    "entry", [Note(topic="check", facts={"same": False, "step": 1, "trial": 0, "went_on": 1.0, "resumed": 2.0})]
)
def test_warnings_are_said_by_all_that_talk(entry: Entry) -> None:
    said: list[str] = []

    class Heard(Talking):
        def say(self, line: str) -> None:
            said.append(line)

    Heard()(bought(), entry)
    assert said[0].startswith("warning: resuming changes the result")
