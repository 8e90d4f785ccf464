"""The named models of each data set.

``paper`` is the recipe of section 4.2. Most others of SVHN change one thing at a time: they are
trained on the first 9,000 images, choose their epoch on the next 1,000 and are tested on the first
2,000 test images. Those of MNIST and Fashion-MNIST have leaves over 256 grey values. In ``halves``
images are cut in two again and again, in ``pixels`` down to single ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.images.settings import Settings

__all__ = ["DATASETS", "VARIANTS", "Variant"]


@dataclass(frozen=True)
class Variant:
    """A named model; ``pictures`` says whether its panels are drawn unless asked for."""

    settings: Settings
    pictures: bool = False


def _svhn() -> dict[str, Variant]:
    # One Einet, as the authors' code trains it: its best epoch on validation images counts.
    one = Settings(clusters=1, delta=(8,), train_rows=9000, valid_rows=1000, test_rows=2000)
    falling = replace(one, last_step=0.02, schedule="exponential")
    learnt = _learnt(falling)
    some = replace(falling, clusters=10)
    # Each image is halved again and again, across either axis first.
    halves = replace(learnt, axes="both", delta=(16, 8, 4, 2))
    pixels = replace(halves, delta=(16, 8, 4, 2, 1), sums="linear")
    # Settings of large models are chosen on 23,257 images that they were not trained on.
    all_rows = {"train_rows": 50_000, "valid_rows": 23_257, "test_rows": None, "epochs": 50}
    settings = {
        "paper": Settings(delta=(8,)),
        # The same structure and number of parameters, and what learning adds.
        "one": one,
        "one-falling": falling,
        "one-falling-long": replace(falling, epochs=100),
        "one-at-random": replace(falling, initial="random"),
        "one-from-clusters": replace(falling, initial="clusters"),
        "one-prior": replace(falling, prior_sums=1.0, prior_leaves=1.0),
        "one-hide": replace(falling, hide=0.1),
        "one-wide-variances": replace(falling, max_variance=1.0),
        "one-learnt": learnt,
        "one-learnt-long": replace(learnt, epochs=100),
        # Clusters.
        "clusters-4": replace(some, clusters=4),
        "clusters-10": some,
        "clusters-30": replace(some, clusters=30),
        "clusters-10-refined": replace(some, refine_epochs=10),
        "clusters-10-wide-variances": replace(some, max_variance=1.0),
        # Structure.
        "delta-4": replace(falling, delta=(4,)),
        "both-axes": replace(falling, axes="both"),
        "both-axes-delta-4": replace(falling, axes="both", delta=(4,), num_sums=16),
        "halves": halves,
        "halves-linear": replace(halves, sums="linear", num_sums=128),
        "pixels-linear": replace(pixels, num_sums=64),
        # On all training images but those for validation.
        "best-clusters": replace(some, max_variance=1.0, clusters=30, axes="both", **all_rows),
        "best": replace(pixels, num_sums=128, **all_rows),
    }
    return _named(settings, {"paper", "best-clusters", "best"})


def _celeba() -> dict[str, Variant]:
    one = Settings(clusters=1, valid_rows=1000, last_step=0.02, schedule="exponential")
    learnt = _learnt(one)
    some = replace(one, clusters=10, max_variance=1.0)
    halves = replace(learnt, axes="both", delta=(32, 16, 8, 4), epochs=50)
    pixels = replace(halves, delta=(32, 16, 8, 4, 2, 1), sums="linear")
    settings = {
        "paper": Settings(),
        "one": one,
        "one-learnt": learnt,
        "clusters-10": some,
        "clusters-10-both-axes": replace(some, axes="both"),
        "halves": halves,
        "halves-linear": replace(halves, sums="linear", num_sums=128),
        "best": replace(pixels, num_sums=64),
    }
    return _named(settings, {"paper", "clusters-10-both-axes", "best"})


def _grey() -> dict[str, Variant]:
    # 5,000 images for validation, as is usual.
    one = Settings(clusters=1, valid_rows=5000, last_step=0.02, schedule="exponential", epochs=50)
    one = replace(one, initial="clusters", prior_sums=1.0)
    # The paper has no model of grey images: its recipe with fewer clusters of larger tables.
    paper = Settings(family="categorical", clusters=10, prior_leaves=1.0)
    settings = {"paper": paper}
    for start in (
        replace(one, family="binomial"),
        replace(one, family="categorical", prior_leaves=1.0),
    ):
        name = start.family
        trees = replace(start, structure="random_trees", depth=6, replicas=10)
        halves = replace(start, axes="both", delta=(14, 7, 4, 2, 1))
        learnt = replace(start, structure="chow_liu", sums="linear", num_sums=128)
        settings |= {
            f"{name}-grid": replace(start, axes="both", delta=(7,)),
            f"{name}-random-trees": trees,
            f"{name}-halves": replace(halves, num_sums=32),
            f"{name}-halves-linear": replace(halves, sums="linear", num_sums=128),
            f"{name}-chow-liu": learnt,
            f"{name}-chow-liu-256": replace(learnt, num_sums=256),
        }
    learnt = settings["categorical-chow-liu"]
    clusters = replace(learnt, clusters=10, num_sums=64, initial="rows")
    settings["categorical-chow-liu-4-trees"] = replace(learnt, trees=4)
    settings["categorical-chow-liu-clusters"] = clusters
    return _named(settings, {"paper", "categorical-chow-liu-256"})


def _learnt(one: Settings) -> Settings:
    """What learning can add to a single Einet without changing its structure."""
    return replace(one, initial="clusters", prior_sums=1.0, prior_leaves=1.0, max_variance=1.0)


def _named(settings: dict[str, Settings], drawn: set[str]) -> dict[str, Variant]:
    return {name: Variant(each, name in drawn) for name, each in settings.items()}


VARIANTS: dict[str, dict[str, Variant]] = {
    "svhn": _svhn(),
    "celeba": _celeba(),
    "mnist": _grey(),
    "fashion_mnist": _grey(),
}
DATASETS = tuple(VARIANTS)
