"""A learned belief decides: one small network, trained beforehand on many recorded and made-up studies, reads this one.

Read

    curves      the losses and prices of all trials, carried along with the ledger
    arms        trials and candidates as the network sees them, and what the money left buys of each
    trust       is what the network says borne out by this study?
    plan        several orders of one look, where thinking is dear
    thrift      the policy: which arm, how far, and when the rule without a model decides instead

The network, its features and its weights are in `models.thrift`; `training/` makes the weights.
"""
