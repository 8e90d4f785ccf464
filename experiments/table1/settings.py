"""What is tried: the settings of one model, and the stages of the search for good ones.

The stages are coordinates, coarse to fine: first the structure and its size, then how many cells
are hidden, the strength of the prior, and the length of the training. A stage varies what survived
the one before it. Its length is a number of steps rather than of epochs, since the sets differ a
hundredfold in rows and time on a GPU is steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

__all__ = ["KINDS", "MIXED", "Kind", "Settings", "Stage", "plan"]

#: Weights of the largest Einsum Network that is tried, beside its leaves. A step with 500 rows then
#: takes about a millisecond on an H200, and an entry has some 35 thousand steps.
_MOST_WEIGHTS = 6_000_000
#: How wide one may be, from middling to small: K and replicas.
_MIDDLING = ((20, 20), (10, 20), (5, 20), (5, 5))
_WIDTHS = ((5, 40), (10, 40), (20, 40), (40, 5), (40, 20), (40, 40))

#: One Einsum Network on random trees, as in the paper; mixtures of models on random trees; and of
#: models on learnt trees.
Kind = Literal["einsum", "rat", "learned"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: Those whose entries are mixtures, of which ablations are.
MIXED: tuple[Kind, ...] = ("rat", "learned")


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
    #: Whether latent variables start out as clusters of rows.
    clusters: bool = True
    #: The probability with which a cell is hidden from a mini-batch.
    hide: float = 0.0
    #: Pseudo-counts of the prior; 0 is none.
    prior_sums: float = 0.0
    prior_leaves: float = 0.0
    batch_size: int = 500
    #: The step size falls from the one to the other, linearly.
    first_step: float = 1.0
    last_step: float = 0.01
    epochs: int = 20
    #: Epochs of full-batch EM at the end.
    finish: int = 3
    #: Models, each with structure, start and order of its own, mixed with equal weights.
    members: int = 1

    @property
    def patience(self) -> int:
        """Epochs without a better validation result until training stops."""
        return max(5, self.epochs // 3)

    def to_dict(self) -> dict[str, Any]:
        """The fields that this kind of model has."""
        other = ("depth", "replicas") if self.kind == "learned" else ("trees",)
        return {name: value for name, value in asdict(self).items() if name not in other}

    def __str__(self) -> str:
        structure = f"D {self.depth} R {self.replicas}"
        if self.kind == "learned":
            structure = f"T {self.trees}"
        prior = ""
        if self.prior_sums or self.prior_leaves:
            prior = f" α {self.prior_sums:g} β {self.prior_leaves:g}"
        sums = "" if self.sums == "einsum" else f" {self.sums}"
        start = " clusters" if self.clusters else ""
        hide = f" h {self.hide:g}" if self.hide else ""
        members = f" M {self.members}" if self.members > 1 else ""
        return (
            f"{structure} K {self.num_sums}{sums}{start}{hide}{prior} "
            f"λ {self.first_step:g}→{self.last_step:g} B {self.batch_size} "
            f"E {self.epochs}+{self.finish}{members}"
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


def plan(
    kind: Kind, num_variables: int, rows: int, quick: bool = False
) -> tuple[Settings, list[Stage], int]:
    """Where the search begins, its stages, and how many members a final model has."""
    # So that an epoch has some hundred steps at most, and a dozen at least.
    batch_size = 2000 if rows > 100_000 else 500 if rows > 4000 else 200
    start = Settings(kind, num_sums=16, batch_size=batch_size, sums="linear", hide=0.2)
    # The fewer rows there are for each variable, the more a prior has to say.
    start = replace(start, prior_sums=0.1, prior_leaves=0.1 if rows > 50 * num_variables else 1.0)
    if kind == "einsum":
        # With weights for every pair of entries, a mini-batch has few rows for each of them.
        start = replace(start, sums="einsum", batch_size=max(400, batch_size))
        start = replace(start, first_step=0.3 if rows > 4000 else 1.0)
        start = replace(start, hide=0.2 if num_variables < 50 else 0.4)
        return start, _einsum_stages(num_variables, quick), 1
    random = kind == "rat"
    sizes = (_random_sizes if random else _learned_sizes)(num_variables, quick)
    if quick:
        stages = [Stage("structure", 200, 8, 1, sizes), Stage("length", 400, 15, 1, _same)]
        return start, stages, 2
    stages = [
        Stage("structure", 1500, 60, 2, sizes),
        Stage("hidden cells", 2000, 80, 1, _hidden),
        Stage("prior", 2000, 80, 1, _priors),
        Stage("length", 6000, 200, 1, _same),
    ]
    # Random trees gain more from one another than learnt ones.
    return start, stages, 16 if random else 8


def _einsum_stages(num_variables: int, quick: bool) -> list[Stage]:
    """Those of one Einsum Network, whose start and steps are searched, too.

    Each stage has but one coordinate, and all but the last trainings have as many steps, so that
    what a stage varies need not be trained again: 22 to 33 trainings in all.
    """
    depths = _depths(num_variables, quick)
    if quick:
        return [Stage("depth", 200, 8, 1, depths), Stage("length", 400, 15, 1, _same)]
    return [
        Stage("depth", 800, 100, 2, depths),
        Stage("width", 800, 100, 1, _widths),
        Stage("start and steps", 800, 100, 1, _steps),
        Stage("hidden cells", 800, 100, 1, _more_hidden),
        Stage("prior", 800, 100, 1, _priors),
        # Where a model overfits, its step size should fall sooner.
        Stage("length", 300, 40, 1, _same),
        Stage("length", 2400, 300, 1, _same),
    ]


def _depths(num_variables: int, quick: bool) -> Callable[[Settings], list[Settings]]:
    """All depths, each with a middling width, and the paper's settings."""
    deepest = max(1, math.floor(math.log2(num_variables)))
    depths = sorted({min(depth, deepest) for depth in ((2,) if quick else (1, 2, 4, 6, 8))})

    def vary(settings: Settings) -> list[Settings]:
        if quick:
            return [replace(settings, depth=depth, num_sums=5, replicas=2) for depth in depths]
        tried = []
        for depth in depths:
            num_sums, replicas = next(w for w in _MIDDLING if _weights(depth, *w) <= _MOST_WEIGHTS)
            tried.append(replace(settings, depth=depth, num_sums=num_sums, replicas=replicas))
        # The paper's defaults, learnt as in its sec. 4: no prior, no clusters, a constant step.
        paper = replace(
            settings, depth=min(4, deepest), num_sums=10, replicas=10, clusters=False, hide=0.0,
            prior_sums=0.0, prior_leaves=0.0, first_step=0.5, last_step=0.5, batch_size=500,
            finish=0,
        )  # fmt: skip
        return [*tried, paper]

    return vary


def _weights(depth: int, num_sums: int, replicas: int) -> int:
    """The weights of an Einsum Network: K for each pair below, at the root one."""
    return replicas * ((2**depth - 2) * num_sums**3 + num_sums**2)


def _widths(settings: Settings) -> list[Settings]:
    """Those that are not too large at this depth."""
    others = [
        replace(settings, num_sums=num_sums, replicas=replicas)
        for num_sums, replicas in _WIDTHS
        if _weights(settings.depth, num_sums, replicas) <= _MOST_WEIGHTS
    ]
    return [settings, *others]


def _steps(settings: Settings) -> list[Settings]:
    """Other starts, batches and step sizes."""
    batch_size = settings.batch_size
    return [
        settings,
        replace(settings, clusters=not settings.clusters),
        replace(settings, batch_size=4 * batch_size, first_step=1.0),
        replace(settings, batch_size=max(50, batch_size // 4), first_step=0.1),
        replace(settings, first_step=0.3 if settings.first_step == 1 else 1.0),
        replace(settings, first_step=0.1, last_step=0.1),
    ]


def _same(settings: Settings) -> list[Settings]:
    return [settings]


def _random_sizes(num_variables: int, quick: bool) -> Callable[[Settings], list[Settings]]:
    deepest = max(1, math.floor(math.log2(num_variables)))
    depths = sorted({min(depth, deepest) for depth in ((2,) if quick else (2, 4, 6))})
    sizes = [("linear", 2, 8), ("linear", 2, 16)]
    if not quick:
        sizes = [("einsum", 2, 16), ("linear", 2, 32), ("linear", 2, 128)]

    def vary(settings: Settings) -> list[Settings]:
        return [
            replace(settings, depth=depth, sums=sums, replicas=replicas, num_sums=num_sums)
            for depth in depths
            for sums, replicas, num_sums in sizes
        ]

    return vary


def _learned_sizes(num_variables: int, quick: bool) -> Callable[[Settings], list[Settings]]:
    sizes = [(8, True), (16, True)]
    if not quick:
        sizes = [(16, True), (64, True), (128, True), (16, False), (64, False)]
        if num_variables <= 300:
            # Sets with more variables have few rows for each, and time grows as K².
            sizes.append((256, True))

    def vary(settings: Settings) -> list[Settings]:
        return [replace(settings, trees=1, num_sums=K, clusters=clusters) for K, clusters in sizes]

    return vary


def _hidden(settings: Settings) -> list[Settings]:
    return [replace(settings, hide=share) for share in (0.0, 0.2, 0.4, 0.6)]


def _more_hidden(settings: Settings) -> list[Settings]:
    return [replace(settings, hide=share) for share in (0.0, 0.2, 0.4, 0.6, 0.8)]


def _priors(settings: Settings) -> list[Settings]:
    """Weaker and stronger ones."""
    strengths = [(0.0, 0.1), (0.1, 0.1), (0.1, 1.0), (0.1, 3.0), (1.0, 1.0)]
    return [replace(settings, prior_sums=a, prior_leaves=b) for a, b in strengths]
