"""The mathematics of BOIL: config and length of training chosen together, by whole learning curves.

Nguyen, Schulze and Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593.

Read in this order; the policy that uses them is `policies.boil.boil`.

    compression     a curve becomes one score, by weights that are learned (eq. 4)
    process         a Gaussian process over configs and lengths whose scores these are (eqs. 1, 2, 5)
    augmentation    prefixes of a curve that are worth a point of their own (eq. 6)
    choice          the config and the length of the largest improvement for their cost (eq. 3)
    decaying_time   an ablation: the time kernel of freeze-thaw in place of the paper's own (appendix B.5)
"""
