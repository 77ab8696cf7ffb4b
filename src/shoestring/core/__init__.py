"""Values and rules of the game. Pure: numpy only; no clock, no disk, no logging.

    parameters, parameter_specs, space    what may be tried; `encoding`: the same as numbers for a model
    money                                 budgets and prices
    decision                              what a policy may answer: Train, Wait, Finish
    entries, formats                      what the ledger stores, and how older studies are read
    ledger                                the whole past; `books`: its totals, kept by `bookkeeping`; `views`: other tables
    pricing                               from a decision to an order: allowed? affordable?
    policy, settings, memo                what authors of policies use; `initial_design`: what comes before a model
    believing                             what a policy may tell of its belief when somebody looks back
    continuing                            what may change about a study that exists
    streams, quasi_random                 randomness by name
    strict_json, values                   JSON that comes back as it was

Read `decision`, `entries`, `ledger`, `books`, `pricing`; then `policy`.
"""
