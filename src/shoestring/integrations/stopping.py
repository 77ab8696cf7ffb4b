"""Stop the runs of another search method early, by the stopping rule of BO-BOS.

`StoppingRule` decides after each epoch whether a run should continue. `k1_schedule` returns the loss of stopping a run that
would have been the best, which grows with the number of runs. `docs/how-to/stop-runs-of-another-searcher.md` has an example.
"""

from shoestring.models.stopping.optimal_stopping import StoppingRule, k1_schedule

__all__ = ["StoppingRule", "k1_schedule"]
