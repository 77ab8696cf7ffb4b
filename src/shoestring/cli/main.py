"""The command line: thin wrappers over the Python API. Results go to stdout, narration to stderr."""

from __future__ import annotations

import io
import sys
from typing import Any, NoReturn

import click

from shoestring import __version__
from shoestring.cli import options
from shoestring.core.values.text import printable
from shoestring.errors import ShoestringError, StoreError, did_you_mean
from shoestring.stores.addresses import DEFAULT_STORE


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


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="shoestring")
def cli() -> None:
    """Tune hyperparameters under a hard budget: the best model you can afford."""


@cli.command(cls=WithCommand, epilog=options.EXIT_CODES)
@click.argument("target", required=False)
@click.option("--budget", required=True, help='Total of the study: "400 epochs", "2h", "$20 at 2.50/h".')
@options.space_options
@click.option("--table", metavar="FILE", help="Tune on a recorded table (.npz) in simulated time.")
@click.option(
    "--log", multiple=True, metavar="NAME", help="A column of the table on a log scale.  [default: as it says]"
)
@options.training_options
@options.kept_policy_options
@click.option(
    "--workers", type=int, help="Trials trained at the same time.  [default: the study's own, else one for each device]"
)
@click.option("--devices", metavar="LIST", help="A GPU for each worker, as 0,1,2,3; 0,0 shares one between two.")
@click.option(
    "--runner", type=click.Choice(["local", "process", "ray"]), help="Where Python code runs.  [default: by --workers]"
)
@options.cluster_options
@options.seed_option
@click.option("--initial", metavar="FILE", help="Configs to try first, as JSON lines.")
@options.deadline_option
@click.option("--live", type=int, help="Most trials kept alive while frozen.  [default: as memory allows]")
@click.option(
    "--hung-after", metavar="DURATION", help="Give a step up after this long.  [default: 10 x the longest + 60s]"
)
@click.option("--checkpoints", metavar="PLACE", help="Where they are kept: a folder, or s3://bucket/runs.")
@click.option("--checkpoints-at-most", metavar="SIZE", help="Most disk space for checkpoints, as 2GB.")
@options.validation_options
@click.option("--quiet", is_flag=True, help="No progress.")
@options.study_options
@options.json_option
@click.pass_context
def run(ctx: click.Context, /, target: str | None, **options: Any) -> None:
    """Tune TARGET (file.py:train), or the program behind `--`. The same command again continues.

    Ctrl-C freezes everything, after the present step if it runs in this process; once more stops at once.

    \b
    shoestring run train.py:train --space space.toml --budget 30m --max-steps 50
    shoestring run --budget "60 epochs" -p 'lr={float=[1e-4,1],log=true}' -- ./train.sh --lr={lr}
    """
    from shoestring.cli.run import run_study

    ctx.exit(run_study(target, ctx.meta["shoestring.command"], **options))


@cli.command(epilog=options.EXIT_CODES)
@click.option("--budget", help="A new total for the study.")
@options.deadline_option
@click.option("--quiet", is_flag=True, help="No progress.")
@options.study_options
@options.json_option
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
@options.policy_options
@options.json_option
def plan(**options: Any) -> None:
    """Show what a budget would buy, spending nothing."""
    from shoestring.cli.show import show_plan

    show_plan(**options)


@cli.command()
@click.option("--rows", type=int, default=10, show_default=True, help="Trials to show, best first.")
@options.study_options
@options.json_option
def status(**options: Any) -> None:
    """Show a study: spent and left, best so far, why trials failed, its trials with the last order of each."""
    from shoestring.cli.show import show_status

    show_status(**options)


@cli.command()
@click.argument("order", type=int, required=False)
@click.option("--trial", type=int, metavar="N", help="List all orders of this trial instead.")
@options.study_options
@options.json_option
def explain(**options: Any) -> None:
    """Print why ORDER was decided, and what it bought."""
    from shoestring.cli.show import show_decision

    show_decision(**options)


@cli.command()
@click.option("--budget", help="Another total than the study's.")
@options.policy_options
@options.study_options
@options.json_option
def replay(**options: Any) -> None:
    """Run another policy on the recorded curves: would it have frozen the winner?"""
    from shoestring.cli.show import show_replay

    show_replay(**options)


@cli.command(epilog=options.EXIT_CODES)
@click.argument("study", required=False)
@click.option("--dry-run", is_flag=True, help="Only say what it would cost.")
@click.option("--quiet", is_flag=True, help="No progress.")
@options.study_options
@options.json_option
@click.pass_context
def retrain(ctx: click.Context, /, **options: Any) -> None:
    """Train the winner of STUDY again, to its best step: for code that cannot save. Nothing is charged to the study."""
    from shoestring.cli.retrain import retrain_best

    ctx.exit(retrain_best(**options))


@cli.command()
@click.argument("trial", type=int)
@click.option("--stderr", is_flag=True, help="What it wrote to standard error, instead of standard output.")
@click.option("--tail", type=int, metavar="N", help="Only the last N lines.")
@options.study_options
@options.json_option
def logs(**options: Any) -> None:
    """Print what TRIAL printed, for worker processes and commands; control characters are escaped."""
    from shoestring.cli.show import show_logs

    show_logs(**options)


@cli.command()
@click.argument("studies", nargs=-1, metavar="[STUDY]...")
@click.option("-o", "--output", metavar="FILE", help="The page.  [default: report.html, if no figures are asked for]")
@click.option("--svg", metavar="FOLDER", help="Write each figure there, as a file of its own.")
@click.option("--png", metavar="FOLDER", help="The same as PNG: pip install 'shoestring[pictures]'.")
@click.option(
    "--figure", "only", multiple=True, metavar="NAME", help="Only this one, as money, best, curves, timeline."
)
@click.option("--dark", is_flag=True, help="Figures of their own on dark ground; a page follows its reader.")
@click.option("--compare", multiple=True, metavar="POLICY", help="What this policy would have had, by replay.")
@click.option(
    "--decision",
    "decisions",
    type=int,
    multiple=True,
    metavar="N",
    help="What was believed when order N was placed; may be repeated.  [default: a few telling ones]",
)
@options.store_option
@options.json_option
def report(**options: Any) -> None:
    """Draw studies as one HTML file: where the money went, every curve, why each order was placed.

    \b
    shoestring report -o report.html
    shoestring report mine --figure curves --svg figures --dark
    """
    from shoestring.cli.report import write_report

    write_report(**options)


@cli.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="On 127.0.0.1.  [default: a free one]")
@options.study_options
def watch(**options: Any) -> None:
    """Serve a page on this machine that follows a study while it runs."""
    from shoestring.cli.report import watch_store

    watch_store(**options)


@cli.command()
@options.serve_options
@options.study_options
@options.json_option
@click.pass_context
def serve(ctx: click.Context, /, **options: Any) -> None:
    """Let clients in any language ask for orders and tell results, over HTTP and JSON.

    \b
    shoestring serve --space space.toml --budget "400 epochs" --max-steps 20 --port 8765
    shoestring serve --study mine --port 8765 --token-file token
    """
    from shoestring.cli.serve import serve_study

    ctx.exit(serve_study(**options))


@cli.command()
@click.argument("study")
@click.option("-o", "--output", required=True, metavar="NEW", help="A store that does not exist yet.")
@click.option("--store", default=DEFAULT_STORE, show_default=True, help="The damaged store; it is never written.")
@options.json_option
def repair(**options: Any) -> None:
    """Save everything up to the last good entry of a damaged STUDY into a new store."""
    from shoestring.cli.export import repair_study

    repair_study(**options)


@cli.command("policies")
@click.argument("name", required=False)
@options.json_option
def list_policies(**options: Any) -> None:
    """List the policies, or describe one."""
    from shoestring.cli.show import show_policies

    show_policies(**options)


@cli.command()
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@click.option("--ledger", "whole", is_flag=True, help="Every entry of the ledger instead of one row per step (jsonl).")
@click.option("--to", type=click.Choice(["optuna"]), help="Into its storage: -o is a journal file, or sqlite:///FILE.")
@click.option("-o", "--output", metavar="FILE", help="Write here instead of stdout.")
@options.study_options
def export(**options: Any) -> None:
    """Export a study for other tools."""
    from shoestring.cli.export import export_study

    export_study(**options)


def main(args: list[str] | None = None) -> NoReturn:
    """Entry point: errors of ours become one line and an exit code."""
    try:
        code = cli.main(args=args, prog_name="shoestring", standalone_mode=False) or 0
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        sys.stderr.write(printable(shown.getvalue(), lines=True))
        code = 2
    except (click.Abort, KeyboardInterrupt):
        print("stopped", file=sys.stderr)  # noqa: T201
        code = 130
    except StoreError as error:
        code = _say(error, 1)
    except ShoestringError as error:
        code = _say(error, 2)
    except (OSError, UnicodeError) as error:  # a full disk, a folder in place of a file, a name that no file can have
        code = _say(error, 1)
    sys.exit(code)


def _say(error: Exception, code: int) -> int:
    print(printable(f"{type(error).__name__}: {error}"), file=sys.stderr)  # noqa: T201
    return code
