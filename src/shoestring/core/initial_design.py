"""The configs that a policy with a model trains in full before it asks the model: when they end, and when they are all there is.

Where trials cost what they cost, a few dear ones can use up a small budget before the model has a say. So in time and money
the design ends with a third of the budget, once two trials are through. In epochs every full training costs the same, and
a model of one to three results chooses worse than configs that are spread evenly (measured: benchmarks/cost_aware); there
the design stays, and what helps is to say early that the budget is too small for a model.
"""

from __future__ import annotations

from shoestring.core.ledger import Ledger

_SHARE = 1 / 3  # of a budget of time or money
_LEAST_RESULTS = 2
_ENOUGH = 2  # full trainings for each of the design: with fewer no model was ahead of random search


def is_in_design(ledger: Ledger, initial_trials: int) -> bool:
    """Whether the next new trial belongs to a design of so many."""
    if len(ledger.trials) >= initial_trials:
        return False
    if ledger.budget.unit == "epochs":
        return True
    done = sum(trial.steps >= trial.limit for trial in ledger.trials)
    return done < _LEAST_RESULTS or ledger.spent + ledger.reserved < _SHARE * ledger.budget.total


def warn_of_small_budget(policy: object, full_trainings: float, max_steps: int) -> str | None:
    """What to tell whoever gives this policy a budget worth so many full trainings; None: it is enough."""
    first = getattr(policy, "initial_trials", None)
    if not isinstance(first, int) or full_trainings >= _ENOUGH * first:
        return None
    if getattr(policy, "initial_design", "fixed") != "fixed":
        return None
    name, enough = getattr(policy, "name", type(policy).__name__), _ENOUGH * first
    remedy = "leave the policy out: the default compares short trainings" if max_steps > 1 else "raise the budget"
    return (
        f"the budget is worth {full_trainings:.3g} full trainings, and {name} asks its model after the first {first}: "
        f"expect no more than of random search. Give it {enough} or more, or {remedy}"
    )
