"""Where curves come from: which may be trained on, which are for judging only, and how whole sources are left out.

Weights are a work derived from what they were trained on. Permitted are made-up curves, curves recorded by this project, and
tables under Apache-2.0, MIT or BSD. Sources without a licence, or under one that binds derived works, are only ever judged on.
A fold leaves whole groups of sources out of training; sources that share data or kind stand in one group, so that a judged
table has no near relative in training.
"""

from __future__ import annotations

OURS = {  # in benchmarks/data and training/data
    "fashion_curves": "recorded by this project",
    "rl_curves": "recorded by this project",
    "stopping_curves": "recorded by this project",
    "small_trainings": "recorded by this project on made-up data",
}
PERMISSIVE = {
    "algoperf": "Apache-2.0",
    "deepobs_lr_grids": "MIT",
    "lcbench_surrogate": "Apache-2.0",
    "lcdb_sample_size": "MIT",
    "medquicktune": "MIT",
    "nasbench_nlp_wikitext2": "Apache-2.0",
    "nmtlc_translation": "MIT",
    "rl_zoo_algorithms": "MIT",
    "stepback_lr_grids": "BSD-3-Clause",
    "taskset_rnn_text": "Apache-2.0",
}
JUDGED_ONLY = (  # no licence stated, or share-alike
    "hpo_rl_bench",
    "hpolib_grids",
    "klein_cnn_cifar10",
    "nmt_sockeye_logs",
    "opda_random_search",
    "steplaw_llm",
)
TRAINABLE = {**OURS, **PERMISSIVE}
FOLDS = {  # name of a training -> sources that it does not see, beside those that none may see
    "a": ("fashion_curves", "rl_curves", "stopping_curves"),
    "b": ("lcbench_surrogate", "lcdb_sample_size", "medquicktune", "nmtlc_translation"),
    "c": ("taskset_rnn_text", "nasbench_nlp_wikitext2", "stepback_lr_grids"),
    "d": ("algoperf", "deepobs_lr_grids", "rl_zoo_algorithms"),
    "all": (),
}


def trained_on(fold: str) -> tuple[str, ...]:
    return tuple(source for source in TRAINABLE if source not in FOLDS[fold])


def judged_on(fold: str) -> tuple[str, ...]:
    """The sources that are fair to judge the weights of this fold on, and for which they are the weights to judge."""
    return FOLDS[fold] or JUDGED_ONLY


def fold_of(source: str) -> str:
    """The training whose weights must be used on this source."""
    return next((fold for fold, left_out in FOLDS.items() if source in left_out), "all")
