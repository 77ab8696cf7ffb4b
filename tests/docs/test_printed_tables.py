"""The page of each policy with a printed form has a table of paper and default that agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoestring import policies

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "policies"
HEAD = "| | the paper | default | why |\n|---|---|---|---|\n"
WITH_PRINTED_FORM = [name for name in policies.REGISTRY if "printed" in policies.defaults_of(name)]


def read_rows(name: str) -> list[list[str]]:
    """Return the rows of the table, as cells."""
    _, found, table = (PAGES / f"{name}.md").read_text("utf-8").partition(HEAD)
    assert found, f"{name}.md needs a table with the head\n{HEAD}"
    lines = table.partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def show(value: object) -> str:
    """Return a value as pages write it."""
    words = {None: "none", True: "true", False: "false"}
    text = (
        words[value]
        if value is None or isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else value
    )
    return f'`"{text}"`' if isinstance(value, str) else f"`{text}`"


def test_the_methods_of_all_five_papers_have_a_printed_form() -> None:
    assert set(WITH_PRINTED_FORM) == {"bhpt", "bo_bos", "boil", "ce_gp_ucb", "cost_aware_ei"}


@pytest.mark.parametrize("name", WITH_PRINTED_FORM)
def test_the_table_has_each_setting_that_differs_with_both_values(name: str) -> None:
    default, printed = policies.defaults_of(name), policies.printed_settings(name)
    expected = {setting: (show(value), show(default[setting])) for setting, value in printed.items()}
    rows = read_rows(name)
    settings = {match[1]: row for row in rows if (match := re.fullmatch(r"`(\w+)`", row[0]))}
    shown = {setting: tuple(cell.partition(",")[0] for cell in row[1:3]) for setting, row in settings.items()}
    assert shown == expected
    assert all(len(row) == 4 and all(row) for row in rows)


@pytest.mark.parametrize("name", WITH_PRINTED_FORM)
def test_the_page_says_what_has_no_printed_form(name: str) -> None:
    assert "**No printed form.**" in (PAGES / f"{name}.md").read_text("utf-8")
