"""python -m training STAGE …: train the learned surrogate and judge it. `training/README.md` shows the commands."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

HERE = Path(__file__).parent
RECORDED = (HERE.parent / "benchmarks" / "data", HERE / "data")


def pack(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m training pack", description="pack all curves for training")
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="folders with more tables, beside our own")
    parser.add_argument("--judged", action="store_true", help="pack only the sources for judging")
    parser.add_argument("--alone", action="store_true", help="leave out our own tables")
    parser.add_argument("--out", type=Path, default=Path("out/thrift/tables.npz"))
    options = parser.parse_args(arguments)
    from training.pack import pack
    from training.sources import JUDGED_ONLY, TRAINABLE

    sources = JUDGED_ONLY if options.judged else tuple(TRAINABLE)
    pack(options.out, options.data if options.alone else [*RECORDED, *options.data], sources)
    return 0


def sample_sizes(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m training sample_sizes", description="write the parquet file of lcdb as tables"
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds lcdb_sample_size")
    parser.add_argument("--out", type=Path, default=Path("out/thrift/data/lcdb_sample_size"))
    options = parser.parse_args(arguments)
    from training.sample_sizes import write_tables

    print(write_tables(options.data / "lcdb_sample_size" / "curves_seeds.parquet", options.out), "tables")
    return 0


def record(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m training record", description="record trainings of small networks")
    parser.add_argument("--out", type=Path, default=HERE / "data" / "small_trainings")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    import torch

    from training.record import record

    record(options.out, options.count, torch.device(options.device), options.seed, options.seconds)
    return 0


def train(arguments: Sequence[str]) -> int:
    from training.train import Settings

    parser = argparse.ArgumentParser(prog="python -m training train", description="train on one fold with one seed")
    parser.add_argument("--tables", type=Path, nargs="*", default=[Path("out/thrift/tables.npz")])
    parser.add_argument("--out", type=Path, default=Path("out/thrift"))
    parser.add_argument("--device", default="cuda")
    for field in fields(Settings):
        if isinstance(field.default, bool):
            parser.add_argument(f"--{field.name}", action="store_true")
        else:
            parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    options = vars(parser.parse_args(arguments))
    import torch

    from training.train import train

    tables, out, device = options.pop("tables"), options.pop("out"), torch.device(options.pop("device"))
    settings = Settings(**options)
    out.mkdir(parents=True, exist_ok=True)
    train(tables, out / f"{settings.fold}-{settings.seed}.pt", settings, device)
    return 0


def calibrate(arguments: Sequence[str]) -> int:
    from training.calibrate import STUDIES, calibrate

    parser = argparse.ArgumentParser(prog="python -m training calibrate", description="measure the calibration")
    parser.add_argument("weights", type=Path, nargs="+", help="files that `export` wrote")
    parser.add_argument(
        "--tables", type=Path, nargs="+", required=True, help="files that `pack` wrote, also those for judging"
    )
    parser.add_argument("--studies", type=int, default=STUDIES, help="half-finished studies of each source")
    options = parser.parse_args(arguments)
    for path in options.weights:
        for row in calibrate(path, options.tables, options.studies):
            print(json.dumps(row), flush=True)
    return 0


def picture(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m training picture", description="draw the output of calibrate, and print a table"
    )
    parser.add_argument("calibration", type=Path)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "pictures" / "calibration.svg")
    options = parser.parse_args(arguments)
    from training.picture import draw, read, table

    found = read(options.calibration.read_text("utf-8").splitlines())
    options.out.write_text(draw(found), encoding="utf-8")
    print(table(found))
    return 0


def choose(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m training choose", description="compare rules and weights on many studies at once"
    )
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders with a folder for each source")
    parser.add_argument(
        "--weights", nargs="*", default=[], metavar="NAME=DIR", help="folders of a-0.npz, b-0.npz, …, all-0.npz"
    )
    parser.add_argument(
        "--rules", type=json.loads, default={"thrift": {}}, help='as {"share_power 1": {"share_power": 1}}'
    )
    parser.add_argument("--trainings", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 108)), help="not those of the protocol")
    parser.add_argument("--budgets", type=float, nargs="+", default=[2.0, 5.0, 10.0])
    parser.add_argument("--tables", type=int, default=3, help="most tables of each source")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-o", "--out", type=Path, required=True, help="lines in this file are not computed again")
    options = parser.parse_args(arguments)
    import torch
    from benchmarks.race.problems import SHIPPED, find_problems
    from benchmarks.thrift.protocol import judged_sources

    from training.choose import judge, summary
    from training.lockstep import Rule

    found = find_problems("tables", [SHIPPED, *options.data], per_source=options.tables)
    tables = [spec for spec in found if spec.source in judged_sources()]
    rules = {name: Rule(**settings) for name, settings in options.rules.items()}
    weights = {name: Path(folder) for name, _, folder in (word.partition("=") for word in options.weights)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in options.out.read_text("utf-8").splitlines()] if options.out.exists() else []
    with options.out.open("a", encoding="utf-8") as file:
        settings = (options.seeds, options.budgets, rules, weights, options.trainings, torch.device(options.device))
        for line in judge(tables, *settings, done=done):
            file.write(json.dumps(line) + "\n")
            file.flush()
            done.append(line)
    for row in summary(done):
        print(json.dumps(row))
    return 0


def export(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m training export", description="write the shipped file")
    parser.add_argument("trained", type=Path, nargs="+", help="files that `train` wrote, of one fold")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    from training.export import export

    print(export(options.trained, options.out)["sha256"])
    return 0


STAGES = {
    "sample_sizes": sample_sizes,
    "record": record,
    "pack": pack,
    "train": train,
    "calibrate": calibrate,
    "picture": picture,
    "choose": choose,
    "export": export,
}


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in STAGES:
        print(f"python -m training {'|'.join(STAGES)} …", file=sys.stderr)
        return 2
    return STAGES[arguments[0]](arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
