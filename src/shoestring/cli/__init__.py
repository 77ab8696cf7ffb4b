"""The command line.

Read `main` first: every command and its options; `options` has those that several commands share. `run` has the commands that
train (`run`, `resume`); `job` turns the arguments of a command line into training code, space and settings. `retrain` trains the
best trial again, `serve` serves a study to workers in other processes, `report` draws studies. `show` has the commands that only
read a study, `export` has those that copy a study out of its store. `printing` has functions that they share.
"""
