"""The sources of curves: which are used in training, which only for judging, and which sources a fold leaves out.

Weights are a work derived from their training data. Training uses only synthetic curves, curves recorded by this project, and
tables under Apache-2.0, MIT or BSD. Sources without a licence, or under one that binds derived works, are used for judging only.
A fold leaves whole groups of sources out of training. Sources with the same data or of the same kind are in one group, so that
training has no table that is similar to a judged one.
"""

from __future__ import annotations

OURS = {  # in benchmarks/data and training/data
    "fashion_curves": "recorded by this project",
    "rl_curves": "recorded by this project",
    "stopping_curves": "recorded by this project",
    "small_trainings": "recorded by this project on synthetic data",
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
FOLDS = {  # name of a training -> sources that it leaves out, in addition to those that are never used in training
    "a": ("fashion_curves", "rl_curves", "stopping_curves"),
    "b": ("lcbench_surrogate", "lcdb_sample_size", "medquicktune", "nmtlc_translation"),
    "c": ("taskset_rnn_text", "nasbench_nlp_wikitext2", "stepback_lr_grids"),
    "d": ("algoperf", "deepobs_lr_grids", "rl_zoo_algorithms"),
    "all": (),
}


def trained_on(fold: str) -> tuple[str, ...]:
    """Return the sources on which the weights of this fold are trained."""
    return tuple(source for source in TRAINABLE if source not in FOLDS[fold])


def judged_on(fold: str) -> tuple[str, ...]:
    """Return the sources on which the weights of this fold are judged."""
    return FOLDS[fold] or JUDGED_ONLY


def fold_of(source: str) -> str:
    """Return the fold whose weights must be used on this source."""
    return next((fold for fold, left_out in FOLDS.items() if source in left_out), "all")
