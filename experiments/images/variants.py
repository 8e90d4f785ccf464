"""The named models of each data set.

``paper`` is the recipe of section 4.2. Most others of SVHN change one thing at a time: they are
trained on the first 9,000 images, choose their epoch on the next 1,000 and are tested on the first
2,000 test images. Those of MNIST and Fashion-MNIST have leaves over 256 grey values, ``soft`` ones
tables of probabilities that become smooth. In ``halves`` images are cut in two again and again, in
``pixels`` down to single ones; in ``chow-liu`` what is next to what is learnt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.images.settings import Initial, Settings

__all__ = ["DATASETS", "VARIANTS", "Variant"]


@dataclass(frozen=True)
class Variant:
    """A named model; ``pictures`` says whether its panels are drawn unless asked for."""

    settings: Settings
    pictures: bool = False


def _svhn() -> dict[str, Variant]:
    # One Einet with the authors' constant λ: its best epoch on validation images counts.
    one = Settings(clusters=1, delta=(8,), train_rows=9000, valid_rows=1000, test_rows=2000)
    falling = replace(one, last_step=0.02, schedule="exponential")
    wide = replace(falling, max_variance=1.0)
    learnt = _learnt(falling)
    some = replace(wide, clusters=10, prior_sums=1.0, prior_leaves=1.0)
    # Halves did better with a weaker prior on their leaves, stripes no worse with a strong one.
    fine = replace(learnt, prior_leaves=0.1)
    # Each image is halved again and again, across either axis first.
    halves = replace(fine, axes="both", delta=(16, 8, 4, 2))
    pixels = replace(halves, delta=(16, 8, 4, 2, 1), sums="linear", num_sums=64)
    # A tree over all channels of all pixels, and what is next to what is learnt, too.
    tree = replace(fine, structure="chow_liu", sums="linear")
    coloured = replace(tree, num_sums=64, colour="ycocg")
    # Settings of large models are chosen on 23,257 images that they were not trained on.
    all_rows = {"train_rows": 50_000, "valid_rows": 23_257, "test_rows": None}
    settings = {
        # The paper's split: 50,000 images of "train" to learn from (and all of "extra", where there
        # are any), the rest for validation. Its recipe chooses nothing by them: they are measured.
        "paper": Settings(delta=(8,), train_rows=50_000, valid_rows=23_257),
        "paper-all-images": Settings(delta=(8,)),
        # The same structure and number of parameters, and what learning adds.
        "one": one,
        "one-at-random": replace(one, initial="random"),
        "one-falling": falling,
        "one-falling-linearly": replace(falling, first_step=1.0, last_step=0.01, schedule="linear"),
        "one-wide-variances": wide,
        "one-from-clusters": replace(wide, initial="clusters"),
        "one-prior": replace(wide, prior_sums=1.0, prior_leaves=1.0),
        "one-hide": replace(wide, hide=0.1),
        "one-finish": replace(wide, finish=3),
        "one-learnt": learnt,
        "one-learnt-long": replace(learnt, epochs=100),
        # Clusters.
        "clusters-4": replace(some, clusters=4),
        "clusters-10": some,
        "clusters-30": replace(some, clusters=30),
        "clusters-100": replace(some, clusters=100),
        "clusters-10-narrow-variances": replace(some, max_variance=1e-2),
        "clusters-10-refined": replace(some, refine_epochs=10),
        # Structure.
        "delta-4": replace(learnt, delta=(4,)),
        "both-axes": replace(learnt, axes="both"),
        "both-axes-delta-4": replace(learnt, axes="both", delta=(4,), num_sums=16),
        "halves": halves,
        "halves-linear": replace(halves, sums="linear", num_sums=128),
        "halves-linear-clusters-10": replace(
            some, axes="both", delta=(16, 8, 4, 2), sums="linear", num_sums=64
        ),
        "pixels-linear": pixels,
        "chow-liu": replace(tree, num_sums=64),
        # Brightness and two differences in place of R, G and B.
        "one-learnt-ycocg": replace(learnt, colour="ycocg"),
        "chow-liu-ycocg": coloured,
        "chow-liu-ycocg-linearly": _linearly(coloured),
        "chow-liu-ycocg-settled": _settled(coloured),
        "chow-liu-ycocg-members-4": replace(coloured, members=4),
        # On all training images but those for validation.
        "best-clusters": replace(some, clusters=30, axes="both", epochs=50, **all_rows),
        "paper-learnt": replace(some, clusters=100, **all_rows),
        "chow-liu-ycocg-50000": replace(coloured, num_sums=128, epochs=30, **all_rows),
        "best": replace(_settled(coloured), num_sums=256, epochs=40, **all_rows),
    }
    drawn = {"paper", "paper-all-images", "one-learnt", "best-clusters", "paper-learnt", "best"}
    return _named(settings, drawn)


def _celeba() -> dict[str, Variant]:
    one = Settings(clusters=1, valid_rows=1000)
    falling = replace(one, last_step=0.02, schedule="exponential")
    learnt = _learnt(falling)
    some = replace(falling, clusters=10, max_variance=1.0, prior_sums=1.0, prior_leaves=1.0)
    fine = replace(learnt, prior_leaves=0.1)
    halves = replace(fine, axes="both", delta=(32, 16, 8, 4))
    pixels = replace(halves, delta=(32, 16, 8, 4, 2, 1), sums="linear", num_sums=64)
    tree = replace(fine, structure="chow_liu", sums="linear", num_sums=64)
    settings = {
        "paper": Settings(),
        "one": one,
        "one-falling": falling,
        "one-learnt": learnt,
        "clusters-10": some,
        "clusters-60": replace(some, clusters=60),
        "clusters-10-both-axes": replace(some, axes="both"),
        "halves": halves,
        "halves-linear": replace(halves, sums="linear", num_sums=128),
        "pixels-linear": pixels,
        "chow-liu": tree,
        "chow-liu-ycocg": replace(tree, epochs=30, colour="ycocg"),
        "best": replace(_settled(tree), num_sums=128, epochs=30, colour="ycocg", members=2),
    }
    return _named(settings, {"paper", "one-learnt", "clusters-60", "best"})


def _grey(initial: Initial) -> dict[str, Variant]:
    """Those of MNIST and Fashion-MNIST."""
    # 5,000 images for validation, as is usual.
    one = Settings(clusters=1, valid_rows=5000, first_step=1.0, last_step=0.01, epochs=30)
    one = replace(one, initial=initial, prior_sums=1.0, prior_leaves=1.0, num_sums=128)
    categorical = replace(one, family="categorical", sums="linear")
    learnt = replace(categorical, structure="chow_liu", levels=16)
    soft = replace(learnt, soften=1.0)
    # Each image is halved again and again, across either axis first.
    halves = replace(categorical, axes="both", delta=(14, 7, 4, 2, 1), num_sums=64)
    trees = replace(categorical, structure="random_trees", depth=8, replicas=2)
    settings = {
        # The paper has no model of grey images: its recipe with fewer clusters of larger tables.
        "paper": Settings(family="categorical", clusters=10, prior_leaves=1.0),
        # Leaves, on a learnt tree; small ones are for a CPU.
        "binomial-chow-liu": replace(learnt, family="binomial"),
        "categorical-chow-liu": learnt,
        "soft-chow-liu": soft,
        "binomial-chow-liu-32": replace(learnt, family="binomial", num_sums=32, epochs=15),
        "categorical-chow-liu-32": replace(learnt, num_sums=32, epochs=15),
        # Structures.
        "soft-random-trees": replace(trees, soften=1.0),
        # Every box is halved across either axis, down to pixels: a quad graph.
        "categorical-halves": halves,
        "soft-halves": replace(halves, soften=1.0),
        # Size.
        "categorical-chow-liu-256": replace(learnt, num_sums=256),
        "soft-chow-liu-256": replace(soft, num_sums=256),
        "soft-halves-256": replace(halves, soften=1.0, num_sums=256),
        "soft-chow-liu-members-4": replace(soft, members=4),
    }
    return _named(settings, {"paper", "soft-chow-liu", "soft-chow-liu-members-4"})


def _mnist() -> dict[str, Variant]:
    """With wider neighbourhoods of grey values too: the best ones of a small part of the images."""
    variants = _grey(initial="clusters")
    for name in ("soft-chow-liu", "soft-chow-liu-256", "soft-chow-liu-members-4"):
        soft = variants[name]
        wider = replace(soft.settings, soften=4.0)
        variants[name.replace("soft", "softer")] = Variant(wider, soft.pictures)
    return variants


def _learnt(one: Settings) -> Settings:
    """What learning can add to a single Einet without changing its structure."""
    return replace(one, initial="clusters", prior_sums=1.0, prior_leaves=1.0, max_variance=1.0)


def _linearly(one: Settings) -> Settings:
    """λ from 1 to nearly 0, which small trees did better with."""
    return replace(one, first_step=1.0, last_step=0.01, schedule="linear")


def _settled(one: Settings) -> Settings:
    """The same with a weaker prior, for the same reason."""
    return replace(_linearly(one), prior_sums=0.1, prior_leaves=0.01)


def _named(settings: dict[str, Settings], drawn: set[str]) -> dict[str, Variant]:
    return {name: Variant(each, name in drawn) for name, each in settings.items()}


VARIANTS: dict[str, dict[str, Variant]] = {
    "svhn": _svhn(),
    "celeba": _celeba(),
    "mnist": _mnist(),
    "fashion_mnist": _grey(initial="rows"),
}
DATASETS = tuple(VARIANTS)
