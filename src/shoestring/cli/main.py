"""The command line: thin wrappers over the Python API. Results go to stdout, narration to stderr.

Exit codes: 0 good, 1 failed, 2 misused, 3 out of budget with no validated trial.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from shoestring import __version__, policies
from shoestring.errors import ShoestringError, StoreError, did_you_mean
from shoestring.stores.opening import DEFAULT_STORE


class Group(click.Group):
    """Suggests the command that was likely meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}. {did_you_mean(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


class WithCommand(click.Command):
    """Takes everything behind `--` as the words of a program, untouched."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        if "--" in args:
            split = args.index("--")
            args, words = args[:split], args[split + 1 :]
        ctx.meta["shoestring.command"] = words
        return super().parse_args(ctx, args)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(function)


def study_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--study", "name", metavar="NAME", help="Name of the study.")(function)
    return click.option(
        "--store",
        default=DEFAULT_STORE,
        show_default=True,
        envvar="SHOESTRING_STORE",
        show_envvar=True,
        help="SQLite file or postgresql:// address.",
    )(function)


def policy_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the policy.")(
        function
    )
    return click.option(
        "--policy", default=None, metavar="NAME", help=f"See `policies`.  [default: {policies.DEFAULT}]"
    )(function)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="shoestring")
def cli() -> None:
    """Tune hyperparameters under a hard budget: the best model you can afford."""


@cli.command(cls=WithCommand)
@click.argument("target", required=False)
@click.option("--budget", required=True, help='Total of the study: "400 epochs", "2h", "$20 at 2.50/h".')
@click.option("--space", "space_file", metavar="FILE", help="Search space as TOML.")
@click.option(
    "-p", "--param", "params", multiple=True, metavar="TOML", help="A parameter: 'lr={float=[1e-4,1],log=true}'."
)
@click.option("--table", metavar="FILE", help="Tune on a recorded table (.npz) in simulated time.")
@click.option("--max-steps", type=int, help="Steps of a full training (a plain function has 1).")
@click.option("--maximize", is_flag=True, help="Larger values are better.")
@policy_options
@click.option("--workers", type=int, default=1, show_default=True, help="Trials trained at the same time.")
@click.option(
    "--runner", type=click.Choice(["local", "process"]), help="Where Python code runs.  [default: by --workers]"
)
@click.option("--seed", type=int, help="Seed of all random choices.  [default: drawn, stored and printed]")
@click.option("--initial", metavar="FILE", help="Configs to try first, as JSON lines.")
@click.option("--deadline", metavar="DURATION", help="Stop after this much clock time, as 2h.")
@click.option("--live", type=int, help="Most trials kept alive while frozen.")
@click.option(
    "--hung-after", metavar="DURATION", help="Give a step up after this long.  [default: 10 x the longest + 60s]"
)
@click.option("--checkpoints-at-most", metavar="SIZE", help="Most disk space for checkpoints, as 2GB.")
@click.option(
    "--validate-price", type=float, default=0.0, show_default=True, help="Epochs charged for a validation pass."
)
@click.option(
    "--validate-at-most", metavar="CAP", help='Wall on validation, for online policies: "20%", "30 passes", 10m.'
)
@click.option("--quiet", is_flag=True, help="No progress.")
@study_options
@json_option
@click.pass_context
def run(ctx: click.Context, /, target: str | None, **options: Any) -> None:
    """Tune TARGET (file.py:train), or the program behind `--`. The same command again continues.

    \b
    shoestring run train.py:train --space space.toml --budget 30m --max-steps 50
    shoestring run --budget "60 epochs" -p 'lr={float=[1e-4,1],log=true}' -- ./train.sh --lr={lr}
    """
    from shoestring.cli.run import run_study

    ctx.exit(run_study(target, ctx.meta["shoestring.command"], **options))


@cli.command()
@click.option("--budget", help="A new total for the study.")
@click.option("--deadline", metavar="DURATION", help="Stop after this much clock time, as 2h.")
@click.option("--quiet", is_flag=True, help="No progress.")
@study_options
@json_option
@click.pass_context
def resume(ctx: click.Context, /, **options: Any) -> None:
    """Go on with a study that was stopped, killed, or given more budget."""
    from shoestring.cli.run import resume_study

    ctx.exit(resume_study(**options))


@cli.command()
@click.option("--budget", required=True, help='"400 epochs", "2h", "$20 at 2.50/h".')
@click.option("--max-steps", type=int, default=1, show_default=True, help="Steps of a full training.")
@click.option("--step-cost", metavar="DURATION", help="Time of one step: needed for budgets of time and money.")
@click.option("--workers", type=int, default=1, show_default=True)
@policy_options
@json_option
def plan(**options: Any) -> None:
    """Show what a budget would buy, spending nothing."""
    from shoestring.cli.show import show_plan

    show_plan(**options)


@cli.command()
@click.option("--rows", type=int, default=10, show_default=True, help="Trials to show, best first.")
@study_options
@json_option
def status(**options: Any) -> None:
    """Show a study: spent and left, best so far, its trials."""
    from shoestring.cli.show import show_status

    show_status(**options)


@cli.command()
@click.argument("order", type=int)
@study_options
@json_option
def explain(**options: Any) -> None:
    """Print why ORDER was decided."""
    from shoestring.cli.show import show_decision

    show_decision(**options)


@cli.command()
@click.option("--budget", help="Another total than the study's.")
@policy_options
@study_options
@json_option
def replay(**options: Any) -> None:
    """Run another policy on the recorded curves: would it have frozen the winner?"""
    from shoestring.cli.show import show_replay

    show_replay(**options)


@cli.command()
@click.argument("study")
@click.option("-o", "--output", required=True, metavar="NEW", help="A store that does not exist yet.")
@click.option("--store", default=DEFAULT_STORE, show_default=True, help="The damaged store; it is never written.")
@json_option
def repair(**options: Any) -> None:
    """Save everything up to the last good entry of a damaged STUDY into a new store."""
    from shoestring.cli.store import repair_study

    repair_study(**options)


@cli.command("policies")
@click.argument("name", required=False)
@json_option
def list_policies(**options: Any) -> None:
    """List the policies, or describe one."""
    from shoestring.cli.show import show_policies

    show_policies(**options)


@cli.command()
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@click.option("--ledger", "whole", is_flag=True, help="Every entry of the ledger instead of one row per step (jsonl).")
@click.option("--to", type=click.Choice(["optuna"]), help="Into its storage: -o is a journal file, or sqlite:///FILE.")
@click.option("-o", "--output", metavar="FILE", help="Write here instead of stdout.")
@study_options
def export(**options: Any) -> None:
    """Export a study for other tools."""
    from shoestring.cli.store import export_study

    export_study(**options)


def main(args: list[str] | None = None) -> NoReturn:
    """Entry point: errors of ours become one line and an exit code."""
    try:
        code = cli.main(args=args, prog_name="shoestring", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        print("stopped", file=sys.stderr)  # noqa: T201
        code = 130
    except StoreError as error:
        code = _say(error, 1)
    except ShoestringError as error:
        code = _say(error, 2)
    sys.exit(code)


def _say(error: ShoestringError, code: int) -> int:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
    return code
