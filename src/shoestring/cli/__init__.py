"""What a user can type.

Read `main` first: every command and its options. `run` holds the commands that spend (`run`, `resume`), with `job`, which
turns the words of a command line into training code, space and runner, and `ending`, which says how it went; `retrain`
trains the winner once more. `serve` lets others ask and tell; `report` draws a study, and serves a page that follows it.
`show` and `logs` hold the commands that only look, `store` those that copy a study out of its store. `printing` is how all
of them print.
"""
