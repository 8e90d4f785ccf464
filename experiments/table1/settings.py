"""What is tried: the settings of one model, and the stages of the search for good ones.

The stages are coordinates, coarse to fine: first the structure and its size, then the strength of
the prior, then the length of the training. A stage varies what survived the one before it. Its
length is a number of steps rather than of epochs, since the sets differ a hundredfold in rows and
time on a GPU is steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from inspect import signature
from typing import Any, Literal, get_args

import einet

__all__ = ["KINDS", "Kind", "Settings", "Stage", "has_linear_sums", "has_prior", "plan"]

Kind = Literal["rat", "learned"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Settings:
    """All that determines a model, beside the data and a seed."""

    kind: Kind
    num_sums: int
    #: Random trees.
    depth: int = 0
    replicas: int = 0
    #: Learnt ones.
    trees: int = 0
    sums: str = "einsum"
    #: Pseudo-counts of the prior; 0 is none.
    prior_sums: float = 0.0
    prior_leaves: float = 0.0
    batch_size: int = 500
    #: The step size falls from the one to the other, linearly.
    first_step: float = 1.0
    last_step: float = 0.01
    epochs: int = 20

    @property
    def patience(self) -> int:
        """Epochs without a better validation result until training stops."""
        return max(5, self.epochs // 3)

    def to_dict(self) -> dict[str, Any]:
        """The fields that this kind of model has."""
        other = ("trees",) if self.kind == "rat" else ("depth", "replicas")
        return {name: value for name, value in asdict(self).items() if name not in other}

    def __str__(self) -> str:
        structure = f"D {self.depth} R {self.replicas}" if self.kind == "rat" else f"T {self.trees}"
        prior = ""
        if self.prior_sums or self.prior_leaves:
            prior = f" α {self.prior_sums:g} β {self.prior_leaves:g}"
        sums = "" if self.sums == "einsum" else f" {self.sums}"
        return (
            f"{structure} K {self.num_sums}{sums}{prior} λ {self.first_step:g}→{self.last_step:g} "
            f"B {self.batch_size} E {self.epochs}"
        )


@dataclass(frozen=True)
class Stage:
    """One round of the search.

    Attributes:
        name: What it decides.
        steps: About how many mini-batches a model is trained on.
        most_epochs: Where a set is small, this ends the training sooner.
        keep: How many of its settings the next stage varies.
        vary: From settings to those to try.
    """

    name: str
    steps: int
    most_epochs: int
    keep: int
    vary: Callable[[Settings], Sequence[Settings]]

    def candidates(self, survivors: Sequence[Settings], rows: int) -> list[Settings]:
        """What this stage trains, each once."""
        found = {}
        for survivor in survivors:
            for settings in self.vary(survivor):
                each = math.ceil(rows / settings.batch_size)
                epochs = min(self.most_epochs, max(5, round(self.steps / each)))
                found[replace(settings, epochs=epochs)] = None
        return list(found)


def has_prior() -> bool:
    """Whether the library has priors for EM."""
    return hasattr(einet, "Prior")


def has_linear_sums() -> bool:
    """Whether the library has linear sums, which large partitions are best served by."""
    return "sums" in signature(einet.Einet).parameters


def plan(
    kind: Kind, num_variables: int, rows: int, quick: bool = False
) -> tuple[Settings, list[Stage]]:
    """Where the search begins, and its stages."""
    # So that an epoch has some hundred steps at most, and a dozen at least.
    batch_size = 2000 if rows > 100_000 else 500 if rows > 4000 else 200
    start = Settings(kind, num_sums=10, batch_size=batch_size)
    if has_prior():
        start = replace(start, prior_sums=0.1, prior_leaves=0.01)
    sizes = _random_sizes(num_variables, quick) if kind == "rat" else _learned_sizes(quick)
    if quick:
        return start, [Stage("structure", 400, 12, 1, sizes), Stage("length", 800, 25, 1, _same)]
    return start, [
        Stage("structure", 1500, 60, 2, sizes),
        Stage("prior", 2500, 100, 2, _priors),
        Stage("length", 6000, 200, 1, _same),
    ]


def _same(settings: Settings) -> list[Settings]:
    return [settings]


def _random_sizes(num_variables: int, quick: bool) -> Callable[[Settings], list[Settings]]:
    deepest = max(1, math.floor(math.log2(num_variables)))
    depths = sorted({min(depth, deepest) for depth in ((2, 3) if quick else (2, 3, 5))})
    sizes = [(10, 8)] if quick else [(10, 4), (10, 16), (40, 8), (10, 40)]

    def vary(settings: Settings) -> list[Settings]:
        return [
            replace(settings, depth=depth, replicas=replicas, num_sums=num_sums)
            for depth in depths
            for replicas, num_sums in sizes
        ]

    return vary


def _learned_sizes(quick: bool) -> Callable[[Settings], list[Settings]]:
    if has_linear_sums():
        sums = "linear"
        sizes = [(1, 8), (1, 16)] if quick else [(1, 16), (1, 64), (1, 128), (4, 16), (4, 64)]
    else:
        sums = "einsum"
        sizes = [(1, 4), (1, 8)] if quick else [(1, 4), (1, 8), (1, 16), (4, 8), (8, 4)]

    def vary(settings: Settings) -> list[Settings]:
        return [replace(settings, trees=t, num_sums=k, sums=sums) for t, k in sizes]

    return vary


def _priors(settings: Settings) -> list[Settings]:
    """Weaker and stronger ones; where there are none, other step sizes."""
    if not has_prior():
        return [replace(settings, first_step=first) for first in (0.2, 0.5, 1.0)]
    strengths = [(0.0, 0.0), (0.1, 0.01), (0.5, 0.1), (2.0, 0.4)]
    return [replace(settings, prior_sums=a, prior_leaves=b) for a, b in strengths]
