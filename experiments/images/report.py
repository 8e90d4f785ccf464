"""``python -m experiments.images.report``: the results of all data sets as tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.images.settings import Settings
from experiments.images.store import Store
from experiments.images.variants import DATASETS
from experiments.markdown import table

__all__ = ["main", "markdown"]

_TITLES = {
    "svhn": "SVHN",
    "celeba": "CelebA",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
}
_HEAD = """\
# Images: what each model reaches

Test log-likelihood: mean over test images ± its standard error, in nats, of pixels/255 (Gaussian
leaves) or of the 256 grey values. Bits per dimension are always those of the 256 grey values.
Stripes: how much larger differences of neighbouring pixels are where leaves are cut than elsewhere,
in samples (means of leaves); 1 if cuts do not show. Seconds are of training, with those of k-means
behind the +; they contain what the first steps take to compile kernels, if that was not done
before. A model was trained once, with one seed. Settings are what differs from the paper's recipe.
"""
_COLUMNS = [
    "model",
    "images",
    "valid",
    "test",
    "bits/dim",
    "stripes",
    "parameters",
    "s",
    "MiB",
    "device",
    "settings",
]


def markdown(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Tables of records by data set and model."""
    parts = [_HEAD]
    for dataset, records in results.items():
        if not records:
            continue
        shape = "×".join(str(size) for size in next(iter(records.values()))["image_shape"])
        parts.append(f"## {_TITLES[dataset]}, {shape}\n")
        parts.append(table(_COLUMNS, (_cells(name, record) for name, record in records.items())))
        parts.append("")
    return "\n".join(parts)


def _cells(name: str, record: dict[str, Any]) -> list[str]:
    known = Settings.from_dict(record["settings"])
    valid = record.get("valid_ll")
    seconds = f"{record['train_seconds']:.1f}"
    if record["kmeans_seconds"]:
        seconds += f" + {record['kmeans_seconds']:.1f}"
    return [
        name,
        f"{record['train_images']:,}",
        "" if valid is None else f"{valid:,.1f}",
        f"{record['test_ll']:,.1f} ± {record['test_se']:.1f}",
        f"{record['bits_per_dim']:.3f}",
        f"{record['stripes']:.2f}" if "stripes" in record else "",
        f"{record['parameters']:,}",
        seconds,
        f"{record['peak_mib']:,.0f}",
        record["device"],
        f"`{known.differing(but=('train_rows', 'valid_rows', 'test_rows'))}`",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) > 1 or (given and not Path(given[0]).is_dir()):
        print("usage: python -m experiments.images.report [FOLDER OF RESULTS]", file=sys.stderr)
        return 2
    folder = Path(given[0]) if given else Path(__file__).resolve().parent / "results"
    results = {dataset: Store(folder, dataset).results() for dataset in DATASETS}
    if not any(results.values()):
        print(f"there are no results in {folder}", file=sys.stderr)
        return 1
    (folder / "results.md").write_text(markdown(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
