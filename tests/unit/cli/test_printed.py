"""`--set printed=true` on the command line: what it sets, what it refuses, and how a study changes to it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring import Study, policies
from shoestring.cli.main import main

TRAINING = """
def train(config):
    for step in range(1, 11):
        yield 0.1 + config["x"] / step
"""
METHODS = ["bhpt", "bo_bos", "boil", "ce_gp_ucb", "cost_aware_ei"]
SMALL = {
    "bhpt": ["arms=4"],
    "bo_bos": ["paths=500", "initial_trials=2", "n0=3"],
    "boil": [],
    "ce_gp_ucb": ["n_starts=2"],
    "cost_aware_ei": ["candidates=50"],
}
# a setting of each method with a value that is not the paper's: the default, and another one
CONTRADICTIONS = {
    "bhpt": [("samples=1", "samples=10"), ("falling=true", "falling=False"), ("steps_per_arm=4", "steps_per_arm=0.0")],
    "bo_bos": [
        ("statistic=after_n0", "statistic='all'"),
        ("replan_every=8", "replan_every=None"),
        ("search_by=ends", "search_by='lengths'"),
        ("refit_every=3", "refit_every=10"),
    ],
    "boil": [
        ("rule=log_ratio", "rule='softplus'"),
        ("learn_noise=false", "learn_noise=True"),
        ("floor=std", "floor='none'"),
    ],
    "ce_gp_ucb": [
        ("query=always", "query='kappa'"),
        ("unvalidated=mean", "unvalidated='acquisition'"),
        ("time_kernel=forgetting", "time_kernel='se'"),
        ("variance=1", "variance=None"),
        ("noise_variance=0.03", "noise_variance=None"),
    ],
    "cost_aware_ei": [("priors=true", "priors=False"), ("cost_model=gp", "cost_model='lv3'")],
}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Return a function that runs a study of a policy with these settings in a new folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "printed_training.py").write_text(TRAINING)

    def call(policy: str | None, *settings: str, budget: str = "40 epochs") -> tuple[int, str, str]:
        words = ["run", "printed_training.py:train", "-p", "x={float=[0,1]}", "--budget", budget, "--max-steps", "10"]
        words += ["--seed", "1", "--store", "s.db", "--json", "--quiet", *(["--policy", policy] if policy else [])]
        capsys.readouterr()
        with pytest.raises(SystemExit) as raised:
            main([*words, *(word for setting in settings for word in ("--set", setting))])
        output = capsys.readouterr()
        return int(raised.value.code or 0), output.out, output.err

    yield call
    sys.modules.pop("printed_training", None)


def settings_of(output: str) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(output)["settings"]
    return settings


@pytest.mark.parametrize("policy", METHODS)
def test_a_study_runs_as_printed(run: Run, policy: str) -> None:
    code, out, err = run(policy, "printed=true", *SMALL[policy])
    assert code == 0, err
    stored = settings_of(out)
    assert stored["printed"] is True
    assert {name: stored[name] for name in policies.printed_settings(policy)} == policies.printed_settings(policy)
    one_run = 10.0  # of ce_gp_ucb, which has only one trial
    assert Study.open("printed_training", "s.db").ledger.spent == (one_run if policy == "ce_gp_ucb" else 40.0)


@pytest.mark.parametrize("policy", METHODS)
def test_the_paper_s_own_values_may_be_given_too(run: Run, policy: str) -> None:
    written = [f"{name}={json.dumps(value)}" for name, value in policies.printed_settings(policy).items()]
    code, out, err = run(policy, "printed=true", *written, *SMALL[policy])
    assert code == 0, err
    assert settings_of(out)["printed"] is True


@pytest.mark.parametrize(
    ("policy", "setting", "paper"), [(p, *pair) for p, pairs in CONTRADICTIONS.items() for pair in pairs]
)
def test_a_contradiction_is_an_error_and_makes_no_study(run: Run, policy: str, setting: str, paper: str) -> None:
    code, _, err = run(policy, "printed=true", setting)
    assert code == 2
    name = setting.partition("=")[0]
    assert re.search(
        rf"{policy}\({name}=.*\) contradicts printed=True, .* in which {re.escape(paper)}\. Leave one", err
    )
    assert not Path("s.db").exists()


def test_every_setting_of_a_printed_form_is_tried_with_another_value() -> None:
    tried = {policy: {setting.partition("=")[0] for setting, _ in pairs} for policy, pairs in CONTRADICTIONS.items()}
    assert tried == {policy: set(policies.printed_settings(policy)) for policy in METHODS}


def test_a_study_changes_to_the_printed_form_and_back(run: Run) -> None:
    begun = settings_of(run("bhpt", "arms=4")[1])
    assert (begun["samples"], begun["falling"], begun["printed"]) == (1, True, False)
    printed = settings_of(run(None, "printed=true")[1])
    assert (printed["samples"], printed["falling"], printed["arms"]) == (10, False, 4)
    assert settings_of(run(None, "arms=5", budget="45 epochs")[1])["samples"] == 10
    assert settings_of(run(None, "printed=false", "arms=4", budget="45 epochs")[1]) == begun


def test_a_changed_setting_still_contradicts_the_printed_form(run: Run) -> None:
    assert run("bhpt", "arms=4", "samples=3")[0] == 0
    code, _, err = run(None, "printed=true")
    assert code == 2
    assert "samples=3) contradicts printed=True" in err


def test_policies_shows_what_the_printed_form_sets(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["policies", "boil"], ["policies", "asha"]):
        with pytest.raises(SystemExit):
            main(words)
        out = capsys.readouterr().out
        assert ("printed=True, the method as its paper prints it, sets: rule='softplus'" in out) is (words[1] == "boil")
