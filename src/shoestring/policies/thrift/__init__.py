"""Sequential halving, with a learned surrogate where it helps: a small network reads the whole study and predicts its trials.

Read in this order:

    thrift          the policy: which trial or candidate to train next, how far, and when sequential halving decides instead
    network_input   trials and candidates as input of the network, and the steps that the remaining budget pays for
    block_curves    losses and prices of all trials, in at most 50 blocks of steps, updated with the ledger
    candidates      configurations that might be started
    plan            several orders from one pass of the network, where a pass is expensive

The network, its features and its weights are in `models.thrift`; `training/` makes the weights.
"""
