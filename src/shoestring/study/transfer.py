"""`transfer_costs`: what earlier studies say about the cost of a configuration, for the policy `cost_aware_ei`."""

from __future__ import annotations

from collections.abc import Sequence

from shoestring.core.ledger.ledger import Ledger


def transfer_costs(
    studies: Sequence[Ledger],
    parameters: Sequence[str],
    *,
    task_meta: Sequence[Sequence[float]] | None = None,
    meta: Sequence[float] = (),
) -> dict[str, list[float]]:
    """Fit a linear model of the log seconds of whole trials in earlier studies, for `cost_aware_ei`.

    Pass the result as its setting `transferred`, together with `cost_model="transfer"`.

    Parameters
    ----------
    studies : sequence of Ledger
        Ledgers of earlier studies of one space, each with a trial that was trained to its end.
    parameters : sequence of str
        Names of the parameters that the cost depends on.
    task_meta : sequence of sequences of float, optional
        Numbers that describe each study, such as log rows, log columns and classes of its data.
    meta : sequence of float
        The same numbers for the new study.

    Returns
    -------
    dict
        The model as named lists of numbers.

    Raises
    ------
    PolicyError
        If the spaces differ, a study has no trial that was trained to its end, or a parameter does not exist.
    """
    from shoestring.policies.cost_aware.trial_costs import fit_earlier_costs  # imports SciPy

    return fit_earlier_costs(studies, parameters, task_meta, meta)
