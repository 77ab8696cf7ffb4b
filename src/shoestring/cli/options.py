"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from shoestring import policies
from shoestring.stores.opening import DEFAULT_STORE


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
