"""A learned surrogate: one small network reads a whole study and predicts the lowest loss that each arm can still reach.

Read in this order:

    shapes           numbers that training and inference share
    features         the input of the network for each arm
    network          the transformer over arms in NumPy, and its weights
    lowest_losses    its output: probabilities, expected improvement, quantiles

`training/` makes the weights; docs/explanation/learned-surrogate.md is their model card.
"""
