"""Config and length of training chosen together. Nguyen, Schulze and Osborne, "Bayesian Optimization for Iterative
Learning", arXiv:1909.09593.

Read `compression` (a curve becomes a score), `process` (scores over configs and lengths), `augmentation` (which prefixes
it sees), `choice`. The policy is `policies.boil.boil`.
"""
