"""All that can be set of a model: data that is written beside its results."""

from __future__ import annotations

import types
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from einet.imaging.colour import Colour
from einet.imaging.recipe import Axes, LeafKind
from einet.kernels.dispatch import Precision

__all__ = ["Initial", "Settings"]

Structure = Literal["poon_domingos", "random_trees", "chow_liu"]
Schedule = Literal["linear", "exponential", "cosine"]
Initial = Literal["rows", "clusters", "random"]


@dataclass(frozen=True)
class Settings:
    """One model and its training; the defaults are the paper's recipe.

    Attributes:
        train_rows: Train on the first so many training images; None: on all that are left.
        valid_rows: Choose the epoch on the next so many; with None train_rows, on the last ones.
        test_rows: Test on the first so many test images; None: on all.
        extra: Whether SVHN's extra images are for training too.
        colour: What a pixel's three variables are: R, G and B, or brightness and two differences
            (:mod:`einet.imaging.colour`; Gaussian leaves only).
        structure: What regions there are.
        delta, axes: Of Poon–Domingos structures: steps of cuts, the finer for what the coarser
            leave, or None for a quarter of the width.
        depth, replicas: Of random trees.
        trees, levels: Of Chow–Liu trees: how many, and the number of grey values that pairs of
            pixels are counted in.
        sums, num_sums: The kind of sums, and K.
        family, min_variance, max_variance: The leaves; variances are of pixels/255.
        clusters: Einets in the mixture; 1: a single Einet.
        epochs, batch_size: How long each is trained, and how many images there are in a step.
        first_step, last_step, schedule: λ, and how it falls.
        momentum: β of stochastic EM: steps go by recent mini-batches, too; 0: by the last alone.
        prior_sums, prior_leaves: Pseudo-counts of sums and leaves.
        grow_from, grow_epochs, grow_step: Begin with so small a K for so many of the epochs, then
            grow to num_sums and go on, with λ falling anew from grow_step, or from first_step if
            that is None (a single Einet only).
        prune_keep: After those epochs, and before it grows if it does, keep the most used weights:
            so large a share of them (a single Einet only).
        hide: The share of pixels hidden from each step (a single Einet only).
        soften: Up to how far from its own grey value an image counts, as a standard deviation, so
            that Categorical leaves become smooth (a single Einet only).
        finish: Epochs of full-batch EM at the end (a single Einet only).
        initial: Where parameters start: near rows, as clusters of rows, or at random (the latter
            two for a single Einet only).
        patience: End after so many epochs without a better one on validation images (a single
            Einet only).
        members: So many single Einets, each with a seed and a Chow–Liu tree or random trees of its
            own, mixed with equal weights; for each of them hide, finish and the like hold.
        refine_epochs, refine_step: Of EM on the mixture as a whole, afterwards; with a step, of
            stochastic EM.
        precision: How exactly the fused kernels multiply.
        seed: Seed of everything random.
    """

    train_rows: int | None = None
    valid_rows: int = 0
    test_rows: int | None = None
    extra: bool = False
    colour: Colour = "rgb"
    structure: Structure = "poon_domingos"
    delta: tuple[float, ...] | None = None
    axes: Axes = "vertical"
    depth: int = 5
    replicas: int = 10
    trees: int = 1
    levels: int = 32
    sums: Literal["einsum", "linear"] = "einsum"
    num_sums: int = 40
    family: LeafKind = "gaussian"
    min_variance: float = 1e-6
    max_variance: float = 1e-2
    clusters: int = 100
    epochs: int = 25
    batch_size: int = 500
    first_step: float = 0.5
    last_step: float = 0.5
    schedule: Schedule = "linear"
    momentum: float = 0.0
    prior_sums: float = 0.0
    prior_leaves: float = 0.0
    grow_from: int | None = None
    grow_epochs: int = 0
    grow_step: float | None = None
    prune_keep: float | None = None
    hide: float = 0.0
    soften: float = 0.0
    finish: int = 0
    initial: Initial = "rows"
    patience: int | None = None
    members: int = 1
    refine_epochs: int = 0
    refine_step: float | None = None
    precision: Precision = "highest"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Settings).items():
            value = getattr(self, name)
            if get_origin(kind) is Literal and value not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {value}")
        for name, least in (("clusters", 1), ("members", 1), ("finish", 0), ("soften", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {self.momentum}")
        self._check_growth()
        single = ("hide", "soften", "finish", "initial", "patience", "members")
        single += ("grow_from", "prune_keep")
        changed = [name for name in single if getattr(self, name) != getattr(Settings, name)]
        if self.clusters > 1 and changed:
            raise ValueError(
                f"{', '.join(changed)} must not be set with clusters={self.clusters}: only for "
                "single Einets, clusters=1"
            )
        if self.soften and (self.family != "categorical" or self.finish):
            raise ValueError(
                "soften is for Categorical leaves, and finish would undo it: got soften="
                f"{self.soften:g} with family={self.family} and finish={self.finish}"
            )
        if self.colour != "rgb" and self.family != "gaussian":
            raise ValueError(f"colour must be rgb with family={self.family}, got {self.colour}")
        if self.clusters == 1 and self.refine_epochs:
            raise ValueError("refine_epochs are for mixtures, clusters > 1")

    def _check_growth(self) -> None:
        """Raise if what is said of growing does not make two parts of one training."""
        if self.grow_from is None and self.prune_keep is None:
            if self.grow_epochs or self.grow_step is not None:
                raise ValueError(
                    "grow_epochs and grow_step must not be set without grow_from or prune_keep, "
                    f"got {self.grow_epochs} and {self.grow_step}"
                )
            return
        if self.grow_from is not None and not 1 <= self.grow_from < self.num_sums:
            raise ValueError(
                f"grow_from must be at least 1 and below num_sums={self.num_sums}, got "
                f"{self.grow_from}"
            )
        if self.prune_keep is not None and not 0 < self.prune_keep <= 1:
            raise ValueError(f"prune_keep must be above 0 and at most 1, got {self.prune_keep}")
        if not 1 <= self.grow_epochs < self.epochs:
            raise ValueError(
                f"grow_epochs must be at least 1 and below epochs={self.epochs}, got "
                f"{self.grow_epochs}"
            )
        if self.grow_step is not None and not 0 < self.grow_step <= 1:
            raise ValueError(f"grow_step must be above 0 and at most 1, got {self.grow_step}")

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Settings:
        """Those of a record; what there was no setting for at the time has its default."""
        delta = saved["delta"]
        values: dict[str, Any] = saved | {"delta": None if delta is None else tuple(delta)}
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """As they are read back from a file."""
        return asdict(self) | {"delta": None if self.delta is None else list(self.delta)}

    def with_text(self, assignments: dict[str, str]) -> Settings:
        """Some of them replaced by what was typed on a command line."""
        kinds, changed = get_type_hints(Settings), {}
        for name, text in assignments.items():
            if name not in kinds:
                raise ValueError(f"there is no setting {name!r}; there are {', '.join(kinds)}")
            changed[name] = _parsed(name, text, kinds[name])
        return replace(self, **changed)

    def quick(self) -> Settings:
        """A small relative, for a minute on two cores."""
        return replace(
            self,
            train_rows=1000,
            valid_rows=min(self.valid_rows, 200),
            test_rows=200,
            num_sums=min(self.num_sums, 8),
            clusters=min(self.clusters, 4),
            epochs=min(self.epochs, 10),
            batch_size=min(self.batch_size, 100),
            depth=min(self.depth, 3),
            replicas=min(self.replicas, 2),
            **self._quick_growth(),
            trees=min(self.trees, 2),
            levels=min(self.levels, 4),
            finish=min(self.finish, 1),
            members=min(self.members, 2),
            refine_epochs=min(self.refine_epochs, 1),
        )

    def _quick_growth(self) -> dict[str, Any]:
        smaller, fewer = min(self.num_sums, 8) // 2, min(self.epochs, 10) // 2
        return {
            "grow_from": None if self.grow_from is None else min(self.grow_from, smaller),
            "grow_epochs": min(self.grow_epochs, fewer),
        }

    def differing(self, but: Collection[str] = ()) -> str:
        """What is not the default, in words, without some of it."""
        parts = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default and field.name not in but:
                parts.append(f"{field.name}={value}")
        return " ".join(parts) or "the paper's recipe"


def _parsed(name: str, text: str, kind: Any) -> Any:
    """A value of the field's type from its text."""
    options = get_args(kind) if get_origin(kind) in (types.UnionType, Union) else (kind,)
    if types.NoneType in options and text.lower() == "none":
        return None
    plain = next(option for option in options if option is not types.NoneType)
    try:
        if plain is bool:
            return {"true": True, "false": False}[text.lower()]
        if get_origin(plain) is tuple:
            return tuple(float(part) for part in text.split(","))
        return plain(text) if plain in (int, float) else text
    except (KeyError, ValueError):
        kind = "numbers with commas" if get_origin(plain) is tuple else plain.__name__
        raise ValueError(f"{name} must be {kind}, got {text!r}") from None
