"""The command line; see the package's docstring."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from experiments.images import panels
from experiments.images.datasets import Sets
from experiments.images.settings import Settings
from experiments.images.store import Store
from experiments.images.train import train
from experiments.images.variants import DATASETS, VARIANTS
from experiments.images.wanted import wanted

__all__ = ["main"]

_HERE = Path(__file__).resolve().parent


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parse(arguments)
    console = Console(highlight=False, soft_wrap=True)
    if args.list:
        for name, variant in VARIANTS[args.dataset].items():
            console.print(f"{name}: {variant.settings.differing()}")
        return 0
    store, failed = Store(args.output, args.dataset, search=not args.test), 0
    try:
        sets = Sets(args.dataset, args.root / args.dataset)
    except FileNotFoundError as error:
        console.print(f"{error}; name the folder of all data sets with --root or in EINET_DATA")
        return 2
    for name, (settings, pictures) in args.wanted.items():
        if args.again:
            store.forget(name)
        elif store.is_finished(name, settings, args.device, pictures):
            console.print(f"{name}: finished already (--again to redo it)")
            continue
        console.print(f"{name}: {settings.differing()}")
        try:
            console.print(f"{name}: {_run(name, settings, pictures, args, store, sets)}")
        except KeyboardInterrupt:
            console.print(f"{name}: stopped; the same command goes on from here")
            return 130
        except (OSError, ValueError, ImportError, RuntimeError, FloatingPointError) as error:
            # Images that are not there, or not enough memory: the next model may still do.
            failed += 1
            console.print(f"{name}: failed: {type(error).__name__}: {error}")
    if store.results_path.exists():
        pictures = ", and pictures in the folder beside it" if args.test else ""
        console.print(f"Written: {store.results_path}{pictures}")
    return 1 if failed else 0


def _run(
    name: str,
    settings: Settings,
    pictures: bool,
    args: argparse.Namespace,
    store: Store,
    sets: Sets,
) -> str:
    """Train one model and write all of it; what came of it, in words."""
    parts = sets.parts(settings, test=args.test)
    checkpoint = store.checkpoint(name) if args.checkpoints else None
    trained = train(settings, parts, args.device, checkpoint)
    if args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
        file = args.keep / f"{args.dataset}-{store.pictures(name).name}.einet"
        trained.model.save(file, trained.pixels.metadata(settings=settings.to_dict()))
    if pictures:
        panels.draw(trained.model, trained.pixels, parts.test, store.pictures(name))
    record = trained.record
    store.finish(name, record, list(VARIANTS[args.dataset]))
    return (
        f"{_found(record)} ({record['bits_method']}); trained in "
        f"{record['train_seconds']:.1f} s + {record['kmeans_seconds']:.1f} s of k-means, "
        f"{record['parameters']:,} parameters, {record['peak_mib']:.0f} MiB"
    )


def _found(record: dict[str, Any]) -> str:
    """Log-likelihoods and bits per dimension of training, validation and test, if there are any."""
    parts = [f"train {record['train_ll']:.2f} nats, {record['train_bits']:.4f} bits/dim"]
    if "valid_ll" in record:
        parts.append(f"valid {record['valid_ll']:.2f}, {record['valid_bits']:.4f}")
    if record["test_read"]:
        parts.append(
            f"test {record['test_ll']:.2f} ± {record['test_se']:.2f}, {record['bits_per_dim']:.4f}"
        )
    return "; ".join(parts)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.images",
        description="Train, measure and draw models of images. Without --models, the paper's.",
    )
    add = parser.add_argument
    add("dataset", choices=DATASETS)
    add("--models", help="names, separated by commas, or 'all' (default: paper)")
    add("--list", action="store_true", help="list the models of the data set and leave")
    add("--set", nargs="+", default=[], metavar="NAME=VALUE", help="change settings of the models")
    add(
        "--list-file",
        type=Path,
        metavar="FILE",
        help="in place of --models: a model on each line, and its own NAME=VALUE behind it",
    )
    add(
        "--validation-only",
        dest="test",
        action="store_false",
        help="read no test images: to search for settings; written to search-DATASET.json",
    )
    add("--clusters", type=int, help="short for --set clusters=...")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--quick", action="store_true", help="small models of 1,000 images")
    add("--root", type=Path, help="folder of the data sets' folders (default: $EINET_DATA)")
    add("--output", type=Path, help="folder for results and pictures (default: results/ here)")
    add("--keep", type=Path, metavar="FOLDER", help="save the models there, too")
    add("--pictures", choices=("some", "all", "none"), default="some", help="whose panels to draw")
    add(
        "--no-checkpoints",
        dest="checkpoints",
        action="store_false",
        help="write none, which takes time of a short training",
    )
    add("--again", action="store_true", help="train anew what is finished")
    args = parser.parse_args(arguments)
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda: there is no CUDA device here")
    if args.output is None:
        args.output = _HERE / "quick" if args.quick else _HERE / "results"
    try:
        args.wanted = wanted(args)
        args.root = args.root or (None if args.list else _default_root())
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    return args


def _default_root() -> Path:
    """Where the data sets are, unless that is said."""
    root = Path(os.environ.get("EINET_DATA") or _HERE.parents[2] / "shared" / "data")
    if not root.is_dir():
        raise FileNotFoundError(
            f"no data sets here: name their folder with --root or in EINET_DATA (looked in {root})"
        )
    return root


if __name__ == "__main__":
    sys.exit(main())
