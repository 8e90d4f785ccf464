"""How far `fit` gets by itself: a newcomer's model on each of the 20 sets, with nothing chosen.

    python -m experiments.table1.defaults --device cuda [--datasets nltcs,plants] [--seeds 3]

trains `Einet(random_trees(variables, depth, replicas=10), Bernoulli(), num_sums=10)` by
`fit(model, train, valid)`, and beside it with what were the defaults before, spelled out. The
defaults were settled on validation rows of a few sets. Test rows are read once for each model,
after its training; `--validation-only` leaves them alone. Written are `defaults.json` and
`defaults.md`. Finished models are not trained again.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

import einet
from einet.data import debd
from experiments.table1.arguments import default_root, in_order
from experiments.table1.defaults_report import markdown
from experiments.table1.pool import results_of
from experiments.table1.store import read_json, write_json, write_text
from experiments.table1.train import Data, describe_test, measure_test

__all__ = ["Job", "begin", "main", "train"]

_HERE = Path(__file__).resolve().parent

#: What `fit` did before, spelled out; and what it does now when nothing is said.
Variant = Literal["before", "now"]


@dataclass(frozen=True)
class Job:
    """One model to train."""

    name: str
    variant: Variant
    seed: int
    root: str
    device: str
    test: bool

    @property
    def key(self) -> tuple[str, str, int]:
        return self.name, self.variant, self.seed


def begin(num_variables: int, seed: int, device: str) -> einet.Einet:
    """The model of a newcomer: the paper's size, whatever the data."""
    depth = min(4, math.floor(math.log2(num_variables)))
    graph = einet.random_trees(num_variables, depth, replicas=10, seed=seed)
    return einet.Einet(graph, einet.Bernoulli(), num_sums=10, seed=seed, device=device)


def train(job: Job) -> dict[str, Any]:
    """Train and measure one model."""
    data = Data(job.name, job.root, job.device)
    began = time.perf_counter()
    model = begin(data.num_variables, job.seed, job.device)
    # Only what is random, and what is shown.
    plain: dict[str, Any] = {"seed": job.seed, "progress": False}
    if job.variant == "now":
        history = einet.fit(model, data.train, data.valid, **plain)
    else:
        model.initialize(data.train, seed=job.seed)
        history = einet.fit(
            model, data.train, data.valid, epochs=25, batch_size=500,
            optimizer=einet.StochasticEM(einet.linear(0.5, 0.05)), **plain,
        )  # fmt: skip
    if history.stopped == "interrupted":
        # fit took the Ctrl-C for itself; half a training is no result.
        raise KeyboardInterrupt
    assert history.best_epoch is not None
    record = {
        "dataset": job.name,
        "variant": job.variant,
        "seed": job.seed,
        "valid_ll": history.valid[history.best_epoch],
        "train_ll": history.train[history.best_epoch],
        "best_epoch": history.best_epoch,
        "epochs": len(history),
        "parameters": model.num_parameters,
        "seconds": round(time.perf_counter() - began, 3),
        "device": _device_name(job.device),
        "torch": torch.__version__,
    }
    return record | (describe_test(measure_test(model, data)) if job.test else {})


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parse(arguments)
    path = args.output / "defaults.json"
    rows: list[dict[str, Any]] = read_json(path, [])
    done = {_key(row) for row in rows if "test_ll" in row or args.validation_only}
    jobs = [
        Job(name, variant, seed, str(args.root), args.device, not args.validation_only)
        for name in args.datasets
        for variant in get_args(Variant)
        for seed in range(1, 1 + args.seeds)
    ]
    left = [job for job in jobs if job.key not in done]
    if len(left) < len(jobs):
        print(f"{len(jobs) - len(left)} of {len(jobs)} models are finished already")
    # The largest first, lest several workers wait for one at the end.
    left.sort(key=lambda job: _size(job.name, args.root), reverse=True)
    failed = 0
    for job, outcome in results_of(train, left, args.workers):
        said = f"{job.name} {job.variant} {job.seed}"
        if isinstance(outcome, Exception):
            failed += 1
            print(f"{said} failed: {type(outcome).__name__}: {outcome}", flush=True)
            continue
        rows = sorted([*(row for row in rows if _key(row) != job.key), outcome], key=_place)
        write_json(path, rows)
        print(
            f"{said}: valid {outcome['valid_ll']:.4f} in {outcome['seconds']:.1f} s, best epoch "
            f"{outcome['best_epoch'] + 1} of {outcome['epochs']}",
            flush=True,
        )
    write_text(args.output / "defaults.md", markdown(rows, read_json(_HERE / "results.json", {})))
    return 1 if failed else 0


def _key(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["dataset"], row["variant"], row["seed"]


def _place(row: dict[str, Any]) -> tuple[int, int, int]:
    """The order of the table, whichever model was trained first."""
    names, variants = list(debd.names()), get_args(Variant)
    return names.index(row["dataset"]), variants.index(row["variant"]), row["seed"]


def _size(name: str, root: Path) -> int:
    """How large the file of the training rows is."""
    return debd.find(name, "train", root).stat().st_size


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.table1.defaults",
        description="Train a newcomer's model with the defaults of fit, and with those before.",
    )
    add = parser.add_argument
    add("--datasets", help="names, separated by commas (default: all 20)")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--seeds", type=int, default=3, help="models of each variant (default: 3)")
    add("--root", type=Path, help="folder of the data sets (default: $EINET_DEBD)")
    add("--output", type=Path, default=_HERE, help="folder for defaults.json and defaults.md")
    add("--workers", type=int, help="models trained at a time (default: cores, or 1 on a GPU)")
    add("--validation-only", action="store_true", help="leave the test rows alone")
    args = parser.parse_args(arguments)
    if args.workers is None:
        args.workers = (os.cpu_count() or 1) if args.device == "cpu" else 1
    for name in ("seeds", "workers"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda: there is no CUDA device here")
    try:
        args.datasets = in_order(args.datasets or ",".join(debd.names()))
        args.root = args.root or default_root()
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    return args


if __name__ == "__main__":
    sys.exit(main())
