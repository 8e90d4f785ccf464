"""A source whose answers are found by looking at every row: the oracle of questions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from einet.tables.constraints import Box, covers
from einet.tables.query import AskedColumn, Mass, Source

COLUMNS = {
    "age": AskedColumn("age", "number", step=1, lower=0, upper=3),
    "hours per week": AskedColumn("hours per week", "number", lower=-1.0, upper=2.5, spikes=(0.0,)),
    "grade": AskedColumn("grade", "category", ("low", "mid", "high"), ordered=True),
    "sex": AskedColumn("sex", "category", ("Female", "Male", ">50K")),
    "member": AskedColumn("member", "boolean", (False, True)),
}
CELLS = {
    "age": (0, 1, 2, 3),
    "hours per week": (-1.0, 0.0, 2.5),
    "grade": ("low", "mid", "high"),
    "sex": ("Female", "Male", ">50K"),
    "member": (False, True),
}
ROWS = [dict(zip(CELLS, cells, strict=True)) for cells in itertools.product(*CELLS.values())]
# Distinct, and of no order: no two sums of different rows are equal.
WEIGHTS = [1 + (7919 * number**2) % 1009 / 1009 for number in range(len(ROWS))]


class Rows(Source):
    """Some rows, each with a probability."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]] = ROWS,
        weights: Sequence[float] = WEIGHTS,
        columns: Mapping[str, AskedColumn] = COLUMNS,
    ) -> None:
        self.rows, self._columns = rows, columns
        self.weights = [weight / sum(weights) for weight in weights]
        self.asked = 0
        self._masks: dict[Any, np.ndarray] = {}

    @property
    def columns(self) -> Mapping[str, AskedColumn]:
        return self._columns

    def measure(self, events: Sequence[Sequence[Box]]) -> list[Mass]:
        self.asked += 1
        return [self._mass(event) for event in events]

    def _mass(self, event: Sequence[Box]) -> Mass:
        kept = [weight for _, weight in self.kept(event)]
        return Mass(0, math.log(sum(kept)) if kept else -math.inf)

    def kept(self, event: Sequence[Box]) -> list[tuple[Mapping[str, Any], float]]:
        """The rows of an event, each once for every box that holds it."""
        places = [place for box in event for place in np.flatnonzero(self._mask(box)).tolist()]
        return [(self.rows[place], self.weights[place]) for place in places]

    def _mask(self, box: Box) -> np.ndarray:
        mask = np.ones(len(self.rows), dtype=bool)
        for column, pieces in box.items():
            # Questions come back to the same pieces.
            if (column, pieces) not in self._masks:
                held = {cell: covers(pieces, cell) for cell in {row[column] for row in self.rows}}
                self._masks[column, pieces] = np.array([held[row[column]] for row in self.rows])
            mask &= self._masks[column, pieces]
        return mask
