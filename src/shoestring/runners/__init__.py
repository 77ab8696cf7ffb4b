"""Runners buy what was decided and report one receipt per step.

`runner` is what the loop asks of each of them; `make` chooses one. Training code is found by `targets` and run by `training`.

    local        in this process: a paused generator is the frozen run
    process      n workers: `live_process` is a trial with its process, `live_processes` all of these, `crew` the processes
                 that no trial has, `worker` one process and `worker_child` what it does
    command      any program: `command_line` (what goes in and out), `command_run` (one execution), `command_state`
    ray          seats on a cluster: `ray_cluster` is what a user says of it, `ray_pool` the seats and the nodes they are on,
                 `ray_trial` a seat with its trial, `ray_actors` and `ray_seat` what is started there and what it does
    simulated    a clock that jumps; `tables` are recorded curves

`slots` are the workers with their devices, `groups` ends processes with all that they started. `checkpoints` says which states
are kept and `storage` where (`remote_storage`: on the network), `logs` keeps what was printed, `resume_check` tests that trials
can be resumed, `blas` gives a decision one thread. Read `runner`, `training`, `local`; the others differ in where a step runs.
"""
