"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from shoestring import policies
from shoestring.stores.addresses import DEFAULT_STORE

EXIT_CODES = (
    "Exit codes: 0 good, also when the deadline has come; 1 failed; 2 misused; 3 out of budget with no validated trial; "
    "4 trained again to another value (retrain); 130 stopped by Ctrl-C; 143 stopped by SIGTERM."
)
_DEADLINE = (
    "Stop after this much clock time, as 2h; 0s buys nothing. Steps under way are cut off (in this process: finished first), "
    "what they cost counts, and `resume` goes on. It is no budget: that counts the time of all workers."
)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(function)


def study_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--study", "name", metavar="NAME", help="Name of the study.")(function)
    return store_option(function)


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
    """Of `--runner ray`."""
    for words, how in (
        (
            ("--price", "prices"),
            {
                "multiple": True,
                "metavar": "NODE=FACTOR",
                "help": "What Ray nodes with a label or resource cost, times the budget's rate.",
            },
        ),
        (
            ("--resource", "resources"),
            {"multiple": True, "metavar": "NAME=N", "help": "A custom resource for each worker."},
        ),
        (("--gpus",), {"type": float, "help": "GPUs for each worker on Ray; 0.5 shares one."}),
        (("--cpus",), {"type": float, "help": "CPUs for each worker on Ray.  [default: 1]"}),
        (("--address",), {"metavar": "WHERE", "help": "The Ray cluster: auto, or host:port."}),
    ):
        function = click.option(*words, **how)(function)
    return function


def policy_options(function: Callable[..., Any], default: str = policies.DEFAULT) -> Callable[..., Any]:
    function = click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the policy.")(
        function
    )
    return click.option("--policy", default=None, metavar="NAME", help=f"See `policies`.  [default: {default}]")(
        function
    )


def kept_policy_options(function: Callable[..., Any]) -> Callable[..., Any]:
    return policy_options(function, f"the study's own, else {policies.DEFAULT}")


def space_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "-p", "--param", "params", multiple=True, metavar="TOML", help="A parameter: 'lr={float=[1e-4,1],log=true}'."
    )(function)
    return click.option("--space", "space_file", metavar="FILE", help="Search space as TOML.")(function)


def training_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--maximize", is_flag=True, help="Larger values are better.")(function)
    return click.option("--max-steps", type=int, help="Steps of a full training (a plain function has 1).")(function)


def seed_option(function: Callable[..., Any]) -> Callable[..., Any]:
    text = "Seed of all random choices.  [default: drawn, stored and printed]"
    return click.option("--seed", type=int, help=text)(function)


def deadline_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--deadline", metavar="DURATION", help=_DEADLINE)(function)


def validation_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--validate-at-most", metavar="CAP", help='Wall on validation, for online policies: "20%", "30 passes", 10m.'
    )(function)
    return click.option(
        "--validate-price", type=float, default=0.0, show_default=True, help="Epochs charged for a validation pass."
    )(function)


def serve_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a study begins with, where `serve` listens, and who may ask it."""
    for option in reversed(
        (
            click.option("--budget", help="Total of the study, if it is to begin here."),
            space_options,
            training_options,
            kept_policy_options,
            click.option(
                "--workers", type=int, help="Clients that train at the same time.  [default: the study's own, else 1]"
            ),
            seed_option,
            click.option("--port", type=click.IntRange(0, 65535), default=0, help="[default: a free one]"),
            click.option(
                "--host", default="127.0.0.1", show_default=True, help="Another address needs TLS or --behind-proxy."
            ),
            click.option("--tls-cert", metavar="FILE", help="Certificate for TLS, as PEM."),
            click.option("--tls-key", metavar="FILE", help="Its key, as PEM."),
            click.option("--behind-proxy", is_flag=True, help="A proxy in front speaks TLS with the clients."),
            click.option("--token-file", metavar="FILE", help="Holds the token; made if it is not there."),
            click.option(
                "--give-up-after",
                metavar="DURATION",
                default="5m",
                show_default=True,
                help="Release the order of a client that is silent for so long.",
            ),
        )
    ):
        function = option(function)
    return function
