"""Numbers that the network's training and its inference must share. Weights that were trained with other numbers cannot be used.

Losses are converted to the scale u: z = (loss - best so far) / (median first loss - best so far), u = asinh(60 z) / asinh(60). So
u = 0 is as good as the best so far, u < 0 is better, u = 1 is a typical first loss, and differences near the best are large.
"""

from __future__ import annotations

STEPS = 50  # blocks of steps in a curve; a shorter curve has one block for each step
FEATURE_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50)  # steps whose losses are features
COLUMNS = 16  # hyperparameters
SCALARS = 16  # features of an arm beside its losses and hyperparameters
STUDY = 5  # features of the study, the same for all its arms
FEATURES = 2 * len(FEATURE_STEPS) + SCALARS + 2 * COLUMNS + STUDY

SHARPNESS = 60.0
LOW, HIGH, BINS = -1.36, 2.04, 100  # u is predicted in bins of 0.034; the 40 lowest are improvements
