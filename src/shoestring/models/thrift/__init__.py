"""A belief that was learned beforehand: one small network reads a whole study and says where each arm can still get.

Read

    shapes      numbers that training and inference share
    features    what the network is told about an arm
    network     the transformer over arms in NumPy, and its weights
    belief      its answer: chances, expected improvement, quantiles

`training/` makes the weights; docs/explanation/learned-belief.md is their model card.
"""
