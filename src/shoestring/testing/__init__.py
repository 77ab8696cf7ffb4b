"""For authors of plugins: contracts as checks to run in your own tests, and made-up training curves.

policies   CHECKS, LEARNING_CHECKS; `simulate` runs a policy in memory
beliefs    BELIEF_CHECKS, for policies that have a `believe`
stores     STORE_CHECKS
runners    `check_runner_contract`: the same studies as the simulated runner must give the same receipts
curves     decaying, noisy, diverging, failing, ending early: for the simulated runner
small      settings of our own policies for tiny budgets
"""
