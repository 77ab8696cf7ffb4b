"""Runners buy what was decided and report one receipt per step.

`runner` is what the loop asks of each of them; `make` chooses one. Training code is found by `targets` and run by `training`.

    local        in this process: a paused generator is the frozen run
    process      n workers: `worker` is one process, `crew` the spare ones, `live_process` a trial with its process
    command      any program: `command_line` (what goes in and out), `command_run` (one execution), `command_state`
    simulated    a clock that jumps; `tables` are recorded curves

`checkpoints` keeps states on disk, `resume_check` tests that they can be resumed, `blas` gives a decision one thread. Read
`runner`, `training`, `local`; the others differ in where a step runs.
"""
