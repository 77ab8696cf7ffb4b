"""The mathematics of BOIL: choose a config and its length of training together, from whole learning curves.

Nguyen, Schulze and Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593.

Read in this order; the policy that uses them is `policies.boil.boil`.

    compression     turns a curve into one score, by weights that are learned (eq. 4)
    score_process   a Gaussian process over configs and lengths of training, fitted to these scores (eqs. 1, 2, 5)
    augmentation    selects prefixes of a curve that become points of the process too (eq. 6)
    choice          finds the config and length with the largest improvement for their cost (eq. 3)
    decaying_time   the time kernel of freeze-thaw optimisation, an ablation in the paper (appendix B.5)
"""
