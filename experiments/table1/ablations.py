"""What each option of the learning is worth: one changed at a time, on three data sets.

    python -m experiments.table1.ablations --device cuda [--datasets plants,jester,dna] [--seeds 3]

Every variant is trained with the same seeds; numbers are mean validation log-likelihoods (test rows
are not read). Written are `ablations.json` and `ablations.md`. Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from experiments.markdown import table
from experiments.table1.arguments import default_root, in_order
from experiments.table1.settings import MIXED, Kind, Settings
from experiments.table1.store import read_json, write_json, write_text
from experiments.table1.train import Data, train

__all__ = ["compare", "main", "markdown", "parse", "variants"]

_HERE = Path(__file__).resolve().parent
T = TypeVar("T")


def variants(kind: Kind, rows: int, epochs: int = 40) -> dict[str, Settings]:
    """The settings that others are compared with, and each with one thing changed."""
    size = 500 if rows > 4000 else 200
    base = Settings(
        kind, num_sums=32, depth=4, replicas=2, trees=1, sums="linear", hide=0.2, prior_sums=0.1,
        prior_leaves=0.1, batch_size=size, epochs=epochs, finish=3,
    )  # fmt: skip
    changes: dict[str, dict[str, Any]] = {
        "as it is": {},
        "random start": {"clusters": False},
        "no hidden cells": {"hide": 0.0},
        "more hidden cells (0.4)": {"hide": 0.4},
        "no full-batch finish": {"finish": 0},
        "no prior": {"prior_sums": 0.0, "prior_leaves": 0.0},
        "prior on sums of 1": {"prior_sums": 1.0},
        "prior on leaves of 3": {"prior_leaves": 3.0},
        "constant step size 0.1": {"first_step": 0.1, "last_step": 0.1},
        "step size from 0.3": {"first_step": 0.3},
        "batch a quarter": {"batch_size": size // 4},
        "batch four times": {"batch_size": 4 * size},
        "einsum sums, K 10": {"sums": "einsum", "num_sums": 10},
        "K 16": {"num_sums": 16},
        "K 64": {"num_sums": 64},
        "4 members": {"members": 4},
        "8 members": {"members": 8},
    }
    if kind == "rat":
        changes |= {"8 replicas": {"replicas": 8}, "depth 2": {"depth": 2}}
    else:
        changes |= {"4 trees in one model": {"trees": 4}}
    return {name: replace(base, **change) for name, change in changes.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse("python -m experiments.table1.ablations", "ablations", arguments)
    keep = ("valid_ll", "train_ll", "best_epoch", "parameters", "seconds")

    def trained(data: Data, settings: Settings, seed: int) -> list[dict[str, Any]]:
        record = train(data, settings, seed).record
        found = {key: record[key] for key in keep}
        return [found | {"settings": settings.to_dict()}]

    compare(args, "ablations", variants, trained)
    return 0


def compare(
    args: argparse.Namespace,
    files: str,
    variants: Callable[[Kind, int, int], Mapping[str, T]],
    trained: Callable[[Data, T, int], list[dict[str, Any]]],
) -> None:
    """Train every variant that is not in the results yet, and write a table of all of them.

    Args:
        args: What :func:`parse` returned.
        files: What the results are called.
        variants: From a kind of structure, the number of rows and of epochs to variants by name.
        trained: From data, a variant and a seed to what is to be written of it. There may be
            several models of a variant: what each adds to its name is its ``"variant"``.
    """
    path = args.output / f"{files}.json"
    results: list[dict[str, Any]] = read_json(path, [])
    done = {(row["dataset"], row["kind"], row["variant"], row["seed"]) for row in results}
    for name in args.datasets:
        data = Data(name, args.root, args.device)
        for kind in args.kinds:
            for variant, how in variants(kind, len(data.train), args.epochs).items():
                for seed in range(args.seeds):
                    if (name, kind, variant, seed) in done:
                        continue
                    row = {"dataset": name, "kind": kind, "variant": variant, "seed": seed}
                    for found in trained(data, how, seed):
                        found["variant"] = variant + found.get("variant", "")
                        results.append(row | found | {"device": _device_name(args.device)})
                        print(
                            f"{name} {kind} {found['variant']}: {found['valid_ll']:.3f}", flush=True
                        )
                    write_json(path, results)
    write_text(args.output / f"{files}.md", markdown(results))


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """Mean validation log-likelihood of each variant, and its lead over the unchanged one."""
    names = list(dict.fromkeys(row["dataset"] for row in results))
    parts = ["# One change at a time: validation log-likelihood (and lead over the first row)"]
    for kind in MIXED:
        rows = [row for row in results if row["kind"] == kind]
        if not rows:
            continue
        lines = []
        means: dict[tuple[str, str], float] = {}
        for variant in dict.fromkeys(row["variant"] for row in rows):
            cells = []
            for name in names:
                key = (name, variant)
                mine = [r["valid_ll"] for r in rows if (r["dataset"], r["variant"]) == key]
                if not mine:
                    cells.append("")
                    continue
                means[variant, name] = statistics.fmean(mine)
                lead = means[variant, name] - means.get(("as it is", name), means[variant, name])
                cells.append(f"{means[variant, name]:.3f} ({lead:+.3f})")
            lines.append([variant, *cells])
        parts.append(table([f"{'random' if kind == 'rat' else 'learnt'} trees", *names], lines))
    return "\n\n".join(parts) + "\n"


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def parse(program: str, files: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of a program that compares variants and writes ``files``."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Change one option of the learning at a time and compare on validation rows.",
    )
    add = parser.add_argument
    add("--datasets", default="plants,jester,dna", help="names, separated by commas")
    add("--kinds", nargs="+", choices=MIXED, default=list(MIXED), help="random or learnt trees")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--seeds", type=int, default=3, help="models of each variant (default: 3)")
    add("--epochs", type=int, default=40)
    add("--root", type=Path, help="folder of the data sets (default: $EINET_DEBD)")
    add("--output", type=Path, default=_HERE, help=f"folder for {files}.json and .md")
    args = parser.parse_args(arguments)
    for name in ("seeds", "epochs"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    try:
        args.datasets = in_order(args.datasets)
        args.root = args.root or default_root()
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    return args


if __name__ == "__main__":
    sys.exit(main())
