"""The commands and their options. Results go to stdout, messages to stderr."""

from __future__ import annotations

import io
import sys
from typing import Any, NoReturn

import click

from shoestring import __version__
from shoestring.cli import options
from shoestring.core.values.text import printable
from shoestring.errors import ShoestringError, StoreError, WorkersDied, did_you_mean, name_as_options
from shoestring.stores.addresses import DEFAULT_STORE


class Command(click.Command):
    """A command that says how a study is named, if a word is too many: it may be meant as the name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        if extra := super().parse_args(ctx, args):
            has_study = any("--study" in parameter.opts for parameter in self.params)
            how = "; a study is named with --study NAME" if has_study else ""
            ctx.fail(f"the word {extra[0]!r} is too many{how}")
        return extra


class CommandGroup(click.Group):
    """A group that suggests the command that was probably meant."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}. {did_you_mean(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


class PassThroughCommand(Command):
    """A command that passes everything after `--` to a program, unchanged."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        if "--" in args:
            split = args.index("--")
            args, words = args[:split], args[split + 1 :]
        ctx.meta["shoestring.command"] = words
        return super().parse_args(ctx, args)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="shoestring")
def cli() -> None:
    """Tune hyperparameters within a hard budget: the best model you can afford."""


@cli.command(cls=PassThroughCommand, epilog=options.EXIT_CODES)
@click.argument("target", required=False)
@click.option(
    "--budget",
    required=True,
    help='Total of the study: "400 epochs", "2h", "$20 at 2.50/h", or "20 trials" of a function.',
)
@options.space_options
@click.option("--table", metavar="FILE", help="Tune on a recorded table (.npz) in simulated time.")
@click.option(
    "--log", multiple=True, metavar="NAME", help="A column of the table on a log scale.  [default: as the file says]"
)
@options.training_options
@options.stored_policy_options
@click.option(
    "--workers",
    type=int,
    help="Trials trained at the same time.  [default: the study's own number, else one for each device]",
)
@click.option("--devices", metavar="LIST", help="The GPUs of the workers, as 0,1,2,3; with 0,0 two workers share one.")
@click.option(
    "--runner",
    type=click.Choice(["local", "process", "ray"]),
    help="Train in this process, in others, or on a Ray cluster.  [default: by --workers]",
)
@options.cluster_options
@options.seed_option
@click.option("--initial", metavar="FILE", help="Configurations to try first, as JSON lines.")
@options.earlier_options
@options.deadline_option
@click.option(
    "--live",
    type=int,
    help="Largest number of trials in memory (with worker processes: of paused ones).  [default: as memory allows]",
)
@click.option(
    "--hung-after", metavar="DURATION", help="End a step after this long.  [default: 10 x the longest step + 60s]"
)
@click.option("--checkpoints", metavar="PLACE", help="Where checkpoints are stored: a folder, or s3://bucket/runs.")
@click.option("--checkpoints-at-most", metavar="SIZE", help="Largest disk space for checkpoints, as 2GB.")
@options.validation_options
@click.option("--quiet", is_flag=True, help="Show no progress.")
@options.study_options
@options.json_option
@click.pass_context
def run(ctx: click.Context, /, target: str | None, **options: Any) -> None:
    """Tune TARGET (file.py:train), or the program after `--`. The same command again continues the study.

    Ctrl-C pauses all trials and stops (after the present step, if it runs in this process). A second Ctrl-C stops at once.

    \b
    shoestring run train.py:train --space space.toml --budget 30m --max-steps 50
    shoestring run --budget "60 epochs" -p 'lr={float=[1e-4,1],log=true}' -- ./train.sh --lr={lr}
    """
    from shoestring.cli.run import run_command

    ctx.exit(run_command(target, ctx.meta["shoestring.command"], **options))


@cli.command(epilog=options.EXIT_CODES)
@click.option("--budget", help="A new total for the study.")
@options.deadline_option
@click.option("--quiet", is_flag=True, help="Show no progress.")
@options.study_options
@options.json_option
@click.pass_context
def resume(ctx: click.Context, /, **options: Any) -> None:
    """Continue a study, also with a larger budget."""
    from shoestring.cli.run import resume_command

    ctx.exit(resume_command(**options))


@cli.command()
@click.option("--budget", required=True, help='"400 epochs", "2h", "$20 at 2.50/h".')
@click.option("--max-steps", type=int, default=1, show_default=True, help="Steps of a full training.")
@click.option("--step-cost", metavar="DURATION", help="Duration of one step, for budgets of time and money.")
@options.like_option("Take the duration of one step from an earlier study")
@click.option("--workers", type=int, default=1, show_default=True)
@options.policy_options
@options.store_option
@options.json_option
def plan(**options: Any) -> None:
    """Show what a budget pays for, without training."""
    from shoestring.cli.show import show_plan

    show_plan(**options)


@cli.command()
@click.option("--rows", type=int, default=10, show_default=True, help="Number of trials to show, best first.")
@options.study_options
@options.json_option
def status(**options: Any) -> None:
    """Show a study: the budget, the best result, all trials.

    If the store has several studies and none is named, list them.
    """
    from shoestring.cli.show import show_status

    show_status(**options)


@cli.command("list")
@options.store_option
@options.json_option
def list_studies(**options: Any) -> None:
    """List the studies of a store."""
    from shoestring.cli.manage import list_studies

    list_studies(**options)


@cli.command()
@click.argument("new")
@options.study_options
@options.json_option
def rename(**options: Any) -> None:
    """Give a study the name NEW. Its checkpoints and logs are moved."""
    from shoestring.cli.manage import rename_study

    rename_study(**options)


@cli.command()
@click.option("--study", "name", required=True, metavar="NAME", help="Name of the study.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.store_option
@options.json_option
def delete(**options: Any) -> None:
    """Delete a study with its checkpoints and logs.

    It says what it would delete, and asks first. A study that is running is not deleted.
    """
    from shoestring.cli.manage import delete_study

    delete_study(**options)


@cli.command()
@click.argument("order", type=int, required=False, metavar="[NUMBER]")
@click.option("--trial", type=int, metavar="N", help="List all decisions to train this trial instead.")
@options.study_options
@options.json_option
def explain(**options: Any) -> None:
    """Explain a decision: what was trained, why, and with what result.

    `shoestring status` shows the number of the last decision for each trial.
    """
    from shoestring.cli.show import show_decision

    show_decision(**options)


@cli.command()
@click.option("--budget", help="A total that differs from the study's.")
@options.policy_options
@options.study_options
@options.json_option
def replay(**options: Any) -> None:
    """Run another policy on the recorded curves.

    This shows whether it would have found the best trial, and at what cost.
    """
    from shoestring.cli.show import show_replay

    show_replay(**options)


@cli.command(epilog=options.EXIT_CODES)
@click.option("--dry-run", is_flag=True, help="Only show the cost.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@options.study_options
@options.json_option
@click.pass_context
def retrain(ctx: click.Context, /, **options: Any) -> None:
    """Train the best trial again, for code that cannot save.

    It is trained up to its best step. The study is not charged.
    """
    from shoestring.cli.retrain import retrain_best

    ctx.exit(retrain_best(**options))


@cli.command()
@click.argument("trial", type=int)
@click.option("--stderr", is_flag=True, help="Show its standard error instead of its standard output.")
@click.option("--tail", type=int, metavar="N", help="Show only the last N lines.")
@options.study_options
@options.json_option
def logs(**options: Any) -> None:
    """Show what TRIAL printed.

    Only worker processes and commands have logs. Control characters are escaped.
    """
    from shoestring.cli.show import show_logs

    show_logs(**options)


@cli.command()
@click.option(
    "-o", "--output", metavar="FILE", help="The page.  [default: report.html, unless --svg or --png is given]"
)
@click.option(
    "--svg",
    metavar="PLACE",
    help="Write each figure to its own SVG file in this folder; to a file.svg, write the one of --figure, else the curves.",
)
@click.option("--png", metavar="PLACE", help="The same as PNG files; needs the extra package shoestring[pictures].")
@click.option(
    "--figure",
    "only",
    multiple=True,
    metavar="NAME",
    help="Draw only this figure, as budget, best, curves, timeline; may be repeated.",
)
@click.option(
    "--dark",
    is_flag=True,
    help="Draw the SVG and PNG files on a dark background; a page follows the reader's settings.",
)
@click.option("--compare", multiple=True, metavar="POLICY", help="Compare with this policy on the recorded curves.")
@click.option(
    "--order",
    "orders",
    type=int,
    multiple=True,
    metavar="N",
    help="Show the predictions behind order N; may be repeated.  [default: a few chosen ones]",
)
@options.studies_options
@options.json_option
def report(**options: Any) -> None:
    """Draw studies as one HTML file.

    It shows what the budget was spent on, every curve, and why each decision was taken.

    \b
    shoestring report -o report.html
    shoestring report --study mine --figure curves --svg figures --dark
    """
    from shoestring.cli.report import write_report

    write_report(**options)


@cli.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1.  [default: a free one]")
@options.study_options
def watch(**options: Any) -> None:
    """Serve a page that is updated while a study runs. It waits for a study that has not begun."""
    from shoestring.cli.report import watch_store

    watch_store(**options)


@cli.command()
@options.serve_options
@options.study_options
@options.json_option
@click.pass_context
def serve(ctx: click.Context, /, **options: Any) -> None:
    """Let workers in any language ask what to train.

    They ask and report results over HTTP and JSON.

    \b
    shoestring serve --space space.toml --budget "400 epochs" --max-steps 20 --port 8765
    shoestring serve --study mine --port 8765 --token-file token
    """
    from shoestring.cli.serve import serve_study

    ctx.exit(serve_study(**options))


@cli.command()
@click.option("--study", required=True, metavar="NAME", help="Name of the study.")
@click.option("-o", "--output", required=True, metavar="NEW", help="A store that does not exist yet.")
@click.option("--store", default=DEFAULT_STORE, show_default=True, help="The damaged store; it is not changed.")
@options.json_option
def repair(**options: Any) -> None:
    """Copy a damaged study up to its last intact entry.

    The copy goes to a new store.
    """
    from shoestring.cli.export import repair_study

    repair_study(**options)


@cli.command("policies")
@click.argument("name", required=False)
@options.json_option
def list_policies(**options: Any) -> None:
    """List the policies (the methods that decide what is trained), or describe one."""
    from shoestring.cli.show import show_policies

    show_policies(**options)


@cli.command()
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@click.option(
    "--ledger", "whole", is_flag=True, help="Export every entry of the ledger instead of one row for each step (jsonl)."
)
@click.option("--to", type=click.Choice(["optuna"]), help="Export to Optuna: -o is a journal file, or sqlite:///FILE.")
@click.option("-o", "--output", metavar="FILE", help="Write here instead of stdout.")
@options.study_options
def export(**options: Any) -> None:
    """Export a study for other tools."""
    from shoestring.cli.export import export_study

    export_study(**options)


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line; known errors become one line and an exit code."""
    try:
        with name_as_options():
            code = cli.main(args=args, prog_name="shoestring", standalone_mode=False) or 0
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        sys.stderr.write(printable(shown.getvalue(), lines=True))
        code = 2
    except (click.Abort, KeyboardInterrupt):
        print("stopped", file=sys.stderr)  # noqa: T201
        code = 130
    except (StoreError, WorkersDied) as error:  # nothing is wrong with how the command is used
        code = _print_error(error, 1)
    except ShoestringError as error:
        code = _print_error(error, 2)
    except (OSError, UnicodeError) as error:  # a full disk, a folder in place of a file, a name that no file can have
        code = _print_error(error, 1)
    sys.exit(code)


def _print_error(error: Exception, code: int) -> int:
    print(printable(f"{type(error).__name__}: {error}"), file=sys.stderr)  # noqa: T201
    return code
