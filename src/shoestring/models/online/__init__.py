"""One run whose config changes as it goes. Wang, Ren, Bogunovic, Xiong and Urtasun, arXiv:2101.06590.

Read `time_varying` (a process that forgets), then `query_rules` (when to pay for validation). `time_varying_continuous` is
the same process on a space that cannot be listed; `bandits` are the rivals' rules. The policy is
`policies.online.ce_gp_ucb`.
"""
