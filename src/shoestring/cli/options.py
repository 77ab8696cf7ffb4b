"""Options that several commands share, and the exit codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from shoestring import policies
from shoestring.stores.addresses import DEFAULT_STORE

SUCCESS, FAILED, NO_RESULT, DIFFERENT_VALUE = 0, 1, 3, 4  # exit codes; click's own code for wrong usage is 2
STOPPED = 128  # plus the number of the signal
EXIT_CODES = (
    "Exit codes: 0 success, also at the deadline; 1 failure; 2 wrong usage; 3 the budget is spent without a validated step; "
    "4 retrain got a different value; 130 stopped by Ctrl-C; 143 stopped by SIGTERM."
)
_DEADLINE = (
    "Stop after this much clock time, as 2h; 0s trains nothing. Steps in training are interrupted and charged (a step in this "
    "process is finished first); `resume` continues. A budget, in contrast, counts the time of all workers."
)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(function)


def study_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--study", "name", metavar="NAME", help="Name of the study; needed if the store has several."
    )(function)
    return store_option(function)


def studies_options(function: Callable[..., Any]) -> Callable[..., Any]:
    text = "Name of a study; may be repeated.  [default: all studies of the store]"
    return store_option(click.option("--study", "studies", multiple=True, metavar="NAME", help=text)(function))


def store_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--store",
        default=DEFAULT_STORE,
        show_default=True,
        envvar="SHOESTRING_STORE",
        show_envvar=True,
        help="SQLite file or postgresql:// address; its password may be in SHOESTRING_STORE_PASSWORD.",
    )(function)


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `--runner ray`."""
    for words, how in (
        (
            ("--price", "prices"),
            {
                "multiple": True,
                "metavar": "NODE=FACTOR",
                "help": "The price of Ray nodes with this label or resource, as a multiple of the budget's rate.",
            },
        ),
        (
            ("--resource", "resources"),
            {"multiple": True, "metavar": "NAME=N", "help": "A custom resource for each worker."},
        ),
        (("--gpus",), {"type": float, "help": "GPUs for each worker on Ray; with 0.5, two workers share one."}),
        (("--cpus",), {"type": float, "help": "CPUs for each worker on Ray.  [default: 1]"}),
        (("--address",), {"metavar": "WHERE", "help": "The Ray cluster: auto, or host:port."}),
    ):
        function = click.option(*words, **how)(function)
    return function


def policy_options(function: Callable[..., Any], default: str = policies.DEFAULT) -> Callable[..., Any]:
    text = "A setting of the policy; may be repeated. VALUE is a number, a word, true, false, none, inf, or JSON."
    function = click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help=text)(function)
    return click.option(
        "--policy",
        default=None,
        metavar="NAME",
        help=f"The policy: the method that decides what is trained; see `policies`.  [default: {default}]",
    )(function)


def stored_policy_options(function: Callable[..., Any]) -> Callable[..., Any]:
    return policy_options(function, f"the study's own, else {policies.DEFAULT}")


def space_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "-p",
        "--param",
        "params",
        multiple=True,
        metavar="TOML",
        help="A parameter, as 'lr={float=[1e-4,1],log=true}'; may be repeated.",
    )(function)
    return click.option("--space", "space_file", metavar="FILE", help="The search space, as a TOML file.")(function)


def training_options(function: Callable[..., Any]) -> Callable[..., Any]:
    text = "What the training code returns, as 'validation error'; figures and reports show this name."
    function = click.option("--metric", metavar="NAME", help=text)(function)
    function = click.option("--maximize", is_flag=True, help="The same as --direction max.")(function)
    text = "Whether smaller or larger values are better.  [default: min]"
    function = click.option("--direction", type=click.Choice(["min", "max"]), help=text)(function)
    return click.option("--max-steps", type=int, help="Steps of a full training (a plain function has 1).")(function)


def seed_option(function: Callable[..., Any]) -> Callable[..., Any]:
    text = "Seed of all random choices.  [default: a random one, which is stored and printed]"
    return click.option("--seed", type=int, help=text)(function)


def earlier_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name earlier studies."""
    function = click.option(
        "--like-rename",
        multiple=True,
        metavar="OLD=NEW",
        help="A parameter of earlier studies that has another name here.",
    )(function)
    learns: Callable[..., Any] = like_option("Learn from an earlier study when this one begins")(function)
    return learns


def like_option(purpose: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option that names earlier studies; `purpose` is the first part of its help."""
    sources = "NAME (in this store), FILE.db#NAME, optuna:STORAGE#NAME, or a table, FILE.csv#COLUMN; may be repeated."
    return click.option("--like", multiple=True, metavar="SOURCE", help=f"{purpose}: {sources}")


def deadline_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--deadline", metavar="DURATION", help=_DEADLINE)(function)


def validation_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--validate-at-most", metavar="LIMIT", help='Limit on validation, for online policies: "20%", "30 passes", 10m.'
    )(function)
    return click.option(
        "--validate-price", type=float, default=0.0, show_default=True, help="Epochs charged for a validation pass."
    )(function)


def serve_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `serve`: the study, the address, and the access to it."""
    for option in reversed(
        (
            click.option("--budget", help="Total of the study, if a new study is to begin."),
            space_options,
            training_options,
            stored_policy_options,
            click.option(
                "--workers",
                type=int,
                help="Workers that train at the same time.  [default: the study's own number, else 1]",
            ),
            seed_option,
            click.option("--port", type=click.IntRange(0, 65535), default=0, help="[default: a free one]"),
            click.option(
                "--host", default="127.0.0.1", show_default=True, help="Another address needs TLS or --behind-proxy."
            ),
            click.option("--tls-cert", metavar="FILE", help="Certificate for TLS, as PEM."),
            click.option("--tls-key", metavar="FILE", help="Its key, as PEM."),
            click.option("--behind-proxy", is_flag=True, help="A proxy in front of the server does TLS."),
            click.option("--token-file", metavar="FILE", help="File with the token; it is made if it does not exist."),
            click.option(
                "--give-up-after",
                metavar="DURATION",
                default="5m",
                show_default=True,
                help="If a worker sends nothing for this long, give its work to another one.",
            ),
        )
    ):
        function = option(function)
    return function
