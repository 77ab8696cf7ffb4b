"""The hyperparameters of public tables that have a logarithmic scale, by source, each with the reason.

A table that names its log scales itself (`log` in its meta) needs no entry here. A source that is in neither place gets linear
scales, and the race reports that: a scale is never guessed from the numbers.
"""

from __future__ import annotations

DOUBLED = "levels that double"
DECADES = "levels that are powers of ten, or a few per decade"
DRAWN = "drawn uniformly in the logarithm"

LOG_SCALES: dict[str, dict[str, str]] = {  # {source: {hyperparameter: reason}}
    "algoperf": {"learning_rate": DRAWN},
    "deepar_forecasting": {"learning_rate": DRAWN, "num_batches_per_epoch": DRAWN},
    "deepobs_lr_grids": {"lr": DECADES},
    "fcnet_tabular": {"init_lr": DECADES, "batch_size": DOUBLED, "n_units_1": DOUBLED, "n_units_2": DOUBLED},
    "fashion_curves": {"lr": DRAWN, "weight_decay": DRAWN},
    "hpo_rl_bench": {"lr": DECADES, "lr0": DECADES, "lr1": DECADES, "lr2": DECADES},
    "hpobench_mlp": {
        "alpha": "levels even in the logarithm",
        "batch_size": "levels even in the logarithm",
        "learning_rate_init": "levels even in the logarithm",
        "width": "levels even in the logarithm",
    },
    "hpolib_grids": {"batch_size": DOUBLED, "tau": "powers of four", "S": "powers of four"},
    "klein_cnn_cifar10": {"learning_rate": DRAWN, "n_units_1": DRAWN, "n_units_2": DRAWN, "n_units_3": DRAWN},
    "lcbench_surrogate": {"batch_size": DRAWN, "learning_rate": DRAWN, "max_units": DRAWN},
    "medquicktune": {"learning_rate": DRAWN, "weight_decay": DRAWN},
    "nasbench201_final": {},  # six categorical operations
    "nasbench_nlp_wikitext2": {},  # counts of parts of a cell
    "nmt_sockeye_logs": {
        "initial_learning_rate": "levels that about double",
        "num_embed": DOUBLED,
        "rnn_num_hidden": DOUBLED,
        "batch_size": DOUBLED,
    },
    "nmtlc_translation": {
        "initial_lr": "levels that about double",
        "model_size": DOUBLED,
        "ff_num_hidden": DOUBLED,
        "bpe": DOUBLED,
    },
    "opda_random_search": {"lr": DRAWN, "weight_decay": DRAWN, "learning_rate": DRAWN},
    "rl_zoo_algorithms": {},  # a categorical choice of algorithm
    "stepback_lr_grids": {"lr": DECADES},
    "steplaw_llm": {"lr": "levels even in the logarithm", "batch_size": "levels even in the logarithm"},
    "taskset_rnn_text": {  # 1 - beta was drawn in the logarithm too; `Space` has no such scale, so beta is linear
        "learning_rate": DRAWN,
        "epsilon": DRAWN,
        "l1": DRAWN,
        "l2": DRAWN,
        "linear_decay": DRAWN,
        "exponential_decay": DRAWN,
    },
    "xgboost_libsvm_nocost": {"min_child_weight": DRAWN, "gamma": DRAWN, "reg_lambda": DRAWN, "alpha": DRAWN},
    "xgboost_rbv2_surrogate": {
        "nrounds": DRAWN,
        "eta": DRAWN,
        "gamma": DRAWN,
        "lambda": DRAWN,
        "alpha": DRAWN,
        "min_child_weight": DRAWN,
    },
}


def log_scales(source: str, columns: list[str]) -> list[str] | None:
    """Return those of `columns` that have a log scale, or None for an unknown source."""
    known = LOG_SCALES.get(source)
    return None if known is None else [name for name in columns if name in known]
