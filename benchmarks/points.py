"""Which networks are measured: the paper's sweep, the goals, and the points for growth.

The paper (sec. 4.1) varies one of K, D and R at a time around K = 10, D = 4, R = 10, on 2000
samples of Gaussian noise in 512 dimensions. It names the ends of the ranges, not the points between
them, nor the batch of the training; both are choices of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = [
    "GOALS",
    "NUM_SAMPLES",
    "SWEEPS",
    "Goal",
    "Point",
    "growth_points",
    "is_on_sweep",
    "parameter_count",
    "sweep_points",
]

NUM_SAMPLES = 2000
VARIABLES = 512
RANDOM_TREES = "random_trees"
POON_DOMINGOS = "poon_domingos 32x32x3, delta 8, vertical"


@dataclass(frozen=True)
class Point:
    """One network and how it is used.

    Attributes:
        num_sums: K, densities per leaf and sums per region.
        depth: D, the split depth of the random binary trees (0 for another structure).
        replicas: R, the number of trees (1 for another structure).
        batch: rows of a training step.
        infer_batch: rows of an evaluation; the paper's is 100.
        precision: of `einet`'s products.
        structure: the kind of region graph.
    """

    num_sums: int = 10
    depth: int = 4
    replicas: int = 10
    batch: int = 100
    infer_batch: int = 100
    precision: str = "highest"
    structure: str = RANDOM_TREES

    @property
    def num_variables(self) -> int:
        return VARIABLES if self.structure == RANDOM_TREES else 32 * 32 * 3

    @property
    def is_random_trees(self) -> bool:
        return self.structure == RANDOM_TREES

    def as_row(self) -> dict[str, Any]:
        """The point in the names of the result files."""
        fields = asdict(self)
        return {"K": fields.pop("num_sums"), **fields}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Point:
        names = [name for name in cls.__dataclass_fields__ if name != "num_sums"]
        return cls(num_sums=row["K"], **{name: row[name] for name in names})

    def __str__(self) -> str:
        if self.is_random_trees:
            shape = f"K {self.num_sums} D {self.depth} R {self.replicas}"
        else:
            shape = f"PD K {self.num_sums}"
        return f"{shape} batch {self.batch} {self.precision}"


DEFAULT = Point()

# The paper's names of the swept parameters, the attribute each varies, and the values we take.
SWEEPS: dict[str, tuple[str, tuple[int, ...]]] = {
    "K": ("num_sums", (1, 2, 4, 8, 10, 16, 20, 30, 40)),
    "D": ("depth", (1, 2, 3, 4, 5, 6, 7, 8, 9)),
    "R": ("replicas", (1, 2, 4, 8, 10, 16, 20, 30, 40)),
}


def sweep_points(names: Iterable[str], batch: int, precisions: Sequence[str]) -> list[Point]:
    """Every point of the named sweeps once; the default point lies on all three."""
    points: dict[Point, None] = {}
    for name in names:
        attribute, values = SWEEPS[name]
        for precision in precisions:
            for value in values:
                point = replace(DEFAULT, batch=batch, precision=precision, **{attribute: value})
                points[point] = None
    return list(points)


def is_on_sweep(point: Point, name: str) -> bool:
    """Whether a point differs from the default in the swept parameter (or the batch) only."""
    attribute, _ = SWEEPS[name]
    kept = {"batch": point.batch, "infer_batch": point.infer_batch, "precision": point.precision}
    return point == replace(DEFAULT, **{attribute: getattr(point, attribute)}, **kept)


def parameter_count(point: Point) -> int:
    """The paper's count for random trees: two a Gaussian, K³ an inner sum vector, R at the root.

    The paper counts a mixing weight at the root for a single replica too, where there is nothing
    to mix; `einet` has one parameter fewer there.
    """
    K, R = point.num_sums, point.replicas
    leaves = 2 * VARIABLES * K * R
    inner = (2**point.depth - 2) * R * K**3
    return leaves + inner + R * K**2 + R


@dataclass(frozen=True)
class Goal:
    """What a point should cost on one H200: a training step, its peak memory, an evaluation."""

    point: Point
    train_ms: float | None = None
    peak_mib: float | None = None
    infer_ms: float | None = None


GOALS = (
    Goal(Point(10, batch=100), 0.20, 20, 0.06),
    Goal(Point(10, batch=500), 0.35, 60),
    Goal(Point(10, batch=2000), 0.9, 220),
    Goal(Point(32, batch=500), 1.0, 250),
    Goal(Point(40, batch=500), 1.6, 300),
    Goal(Point(64, batch=500, infer_batch=500), 2.2, 700, 0.6),
    Goal(Point(10, depth=9, batch=500), 1.2, 450),
    Goal(Point(10, replicas=40, batch=500), 1.0, 110),
    Goal(Point(40, 0, 1, batch=500, structure=POON_DOMINGOS), 0.75, 120),
    Goal(Point(64, batch=500, infer_batch=500, precision="high"), 1.0),
    Goal(Point(64, batch=500, infer_batch=500, precision="medium")),
)

GROWTH_BATCHES = (100, 200, 500, 1000, 2000, 4000)
GROWTH_SUMS = (1, 2, 4, 8, 16, 32, 64, 128)
GROWTH_REPLICAS = (1, 2, 4, 8, 16, 40)


def growth_points(batch: int, precisions: Sequence[str]) -> list[Point]:
    """What the fits need beyond the sweep: a larger batch, K up to 128, many batch sizes."""
    points: dict[Point, None] = {}
    for precision in precisions:
        base = replace(DEFAULT, batch=batch, precision=precision)
        points |= {replace(base, batch=value): None for value in GROWTH_BATCHES}
        points |= {replace(base, num_sums=value): None for value in GROWTH_SUMS}
        points |= {replace(base, depth=value): None for value in SWEEPS["D"][1]}
        points |= {replace(base, replicas=value): None for value in GROWTH_REPLICAS}
    return list(points)
