"""Runners carry out what a policy decided, and report one receipt per step.

`runner` defines the interface that every runner has; `make` chooses one.

    local         training code in this process; a paused trial is a paused generator or object in memory
    process       several workers on this machine, one process for each live trial
    command       any program: `command_line` has its arguments and its output, `command_run` one execution
    ray           workers on a cluster: `cluster` holds the user's settings, `worker_pool` the workers and their nodes,
                  `actors` and `remote_worker` what is started there
    simulated     recorded or made-up curves, on a simulated clock

    remote        the part that `process` and `ray` share: the state of a trial that another process trains
    checkpoints   which checkpoints are kept (`checkpoints`), where (`checkpoint_store`, `remote_store`), and logs
    training      the training code: how it is found, called, saved, and tested for resuming
    devices       the devices of this machine, and its workers by number

Read `runner`, `training/code.py` and `local` first; the others differ in where a step runs.
"""
