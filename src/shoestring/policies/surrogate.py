"""A Gaussian process whose parameters travel from decision to decision in the memo.

Fits are due by the number of results: after every one up to 30, then after every fifth, started from the last optimum; and
from several places whenever the results have grown by half since that was last done. In between the posterior is conditioned
on all results at the parameters it has, which is exact. So a study that was cut off goes on as if nothing had happened.

    memo                                                          meaning
    log_signal_variance, log_lengthscales, log_noise_variance     the parameters, see `models.gp`
    fitted_at                                                     results at the last fit, and at the last from several places
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoestring.core.decision import Memo
from shoestring.models.gp.fit import fit_gp
from shoestring.models.gp.kernels import Kernel
from shoestring.models.gp.posterior import GP, condition

Array = NDArray[np.float64]
PARAMETERS = ("log_signal_variance", "log_lengthscales", "log_noise_variance")  # in the order of theta
OFTEN = 30  # results up to which every one is followed by a fit
EVERY = 5  # results between fits from then on
AFRESH = 1.5  # growth of the results after which a fit starts from several places


def posterior(kernel: Kernel, x: Array, y: Array, memo: Memo) -> tuple[GP, dict[str, list[float]]]:
    """The posterior of y, (n,), at x, (n, d), and the memo for the next decision."""
    n = float(y.size)
    fitted_at, afresh_at = memo.get("fitted_at", (0.0, 0.0))
    past = {name: list(memo[name]) for name in PARAMETERS if name in memo}
    if not past or n >= AFRESH * afresh_at:
        gp = fit_gp(kernel, x, y, memo=past or None, n_starts=2)
        fitted_at, afresh_at = n, n
    elif n != fitted_at and (n <= OFTEN or n >= fitted_at + EVERY):
        gp = fit_gp(kernel, x, y, memo=past, n_starts=0)
        fitted_at = n
    else:
        gp = condition(kernel, np.array([value for numbers in past.values() for value in numbers]), x, y)
    return gp, {**gp.memo(), "fitted_at": [fitted_at, afresh_at]}
