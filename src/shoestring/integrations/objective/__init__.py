"""Tune an objective written for Optuna: a function of a `trial` that suggests parameters and reports values.

trial      the argument of the objective: `suggest_float`, `report`, `should_prune`, …
calls      one call of an objective, as steps
finding    which parameters an objective has, and under which conditions, found by calling it
tuning     `tune_objective`
"""
