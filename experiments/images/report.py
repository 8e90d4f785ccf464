"""``python -m experiments.images.report``: the results of all data sets as tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.images.settings import Settings
from experiments.images.store import SEARCH, Store
from experiments.images.variants import DATASETS
from experiments.markdown import table

__all__ = ["main", "markdown", "read"]

_TITLES = {
    "svhn": "SVHN",
    "celeba": "CelebA",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
}
_HEAD = """\
# Images: what each model reaches

Log-likelihoods: means over images for training (the first 10,000), validation and test (± its
standard error), in nats, of pixels/255 (Gaussian leaves) or of the 256 grey values. Bits per
dimension are always those of the 256 grey values. What is blank was not measured at the time.
Test images were read for all models but those of a search, so that choosing among these lines by
their test columns is choosing on test images. Copied: how many strips of samples are strips of a
training image; behind the slash, how many of training images are those of another one.
Stripes: how much larger differences of neighbouring pixels are where leaves are cut than elsewhere,
in samples (means of leaves); 1 if cuts do not show. Seconds are of training, with those of k-means
behind the +; they contain what the first steps take to compile kernels, if that was not done
before, and those of searches were taken while other programs used the same GPU. A model was trained
once, with one seed. Settings are what differs from the paper's recipe.
"""
_COLUMNS = [
    "model",
    "images",
    "train",
    "valid",
    "test",
    "train bits",
    "valid bits",
    "test bits",
    "stripes",
    "copied",
    "parameters",
    "s",
    "MiB",
    "device",
    "settings",
]


def markdown(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Tables of records by data set, or search on one, and model."""
    parts = [_HEAD]
    for dataset, records in results.items():
        if not records:
            continue
        shape = "×".join(str(size) for size in next(iter(records.values()))["image_shape"])
        name = dataset.removeprefix(SEARCH)
        search = ": a search on validation images" if name != dataset else ""
        parts.append(f"## {_TITLES[name]}, {shape}{search}\n")
        parts.append(table(_COLUMNS, (_cells(name, record) for name, record in records.items())))
        parts.append("")
    return "\n".join(parts)


def _cells(name: str, record: dict[str, Any]) -> list[str]:
    known = Settings.from_dict(record["settings"])
    seconds = f"{record['train_seconds']:.1f}"
    if record["kmeans_seconds"]:
        seconds += f" + {record['kmeans_seconds']:.1f}"
    copied = _if_there(record, "copied_strips", ".0%")
    if copied:
        copied += f" / {record['copied_strips_of_images']:.0%}"
    return [
        name,
        f"{record['train_images']:,}",
        *(_if_there(record, name, ",.1f") for name in ("train_ll", "valid_ll")),
        f"{record['test_ll']:,.1f} ± {record['test_se']:.1f}" if "test_ll" in record else "",
        *(_if_there(record, name, ".3f") for name in ("train_bits", "valid_bits", "bits_per_dim")),
        _if_there(record, "stripes", ".2f"),
        copied,
        f"{record['parameters']:,}",
        seconds,
        f"{record['peak_mib']:,.0f}",
        record["device"],
        f"`{known.differing(but=('train_rows', 'valid_rows', 'test_rows'))}`",
    ]


def _if_there(record: dict[str, Any], name: str, how: str) -> str:
    """A number, or a blank where a record does not have it."""
    return format(record[name], how) if name in record else ""


def read(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """The records of all data sets, and of searches on them."""
    stores = [Store(folder, dataset, search) for dataset in DATASETS for search in (False, True)]
    return {store.dataset: store.results() for store in stores}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) > 1 or (given and not Path(given[0]).is_dir()):
        print("usage: python -m experiments.images.report [FOLDER OF RESULTS]", file=sys.stderr)
        return 2
    folder = Path(given[0]) if given else Path(__file__).resolve().parent / "results"
    results = read(folder)
    if not any(results.values()):
        print(f"there are no results in {folder}", file=sys.stderr)
        return 1
    (folder / "results.md").write_text(markdown(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
