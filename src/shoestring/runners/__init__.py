"""Runners buy what was decided and report one receipt per step.

`runner` is what the loop asks of each of them; `make` chooses one. Training code is found by `targets` and run by `training`.

    local        in this process: a paused generator is the frozen run
    process      n workers: `live_process` is a trial with its process, `live_processes` all of these, `crew` the processes
                 that no trial has, `worker` one process and `worker_child` what it does
    command      any program: `command_line` (what goes in and out), `command_run` (one execution), `command_state`
    simulated    a clock that jumps; `tables` are recorded curves

`slots` are the workers with their devices, `groups` ends processes with all that they started. `checkpoints` keeps states on
disk (`temporary`: for studies in memory) and `logs` what was printed, `resume_check` tests that trials can be resumed, `blas`
gives a decision one thread. Read `runner`, `training`, `local`; the others differ in where a step runs.
"""
