"""Two plain densities of mixed tables: independent columns, and one Chow–Liu tree of levels.

Both count cells as einet does, whose schema says what is a state and what has a density, so that
log-likelihoods can be compared: quantities are cut into levels of about as many rows with an even
density inside each, the levels' number is chosen on validation rows, and spikes are states.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from einet.tables import Table
from einet.tables.columns import Number, Spiked, States
from table_tasks.data import numeric

__all__ = ["LevelTree", "chosen_tree"]

_LEVELS = (4, 8, 16, 32, 64)


class LevelTree:
    """A tree of discrete columns with tables of smoothed counts; no edges make it independent.

    Args:
        frame: Training rows.
        table: The schema that says what has a density.
        levels: Into how many levels quantities are cut.
        edges: Whether columns depend on one another at all.
    """

    def __init__(self, frame: pd.DataFrame, table: Table, levels: int, edges: bool) -> None:
        self.table, self.names = table, table.modelled
        self.cuts = {name: self._cut(frame, name, levels) for name in self.names}
        codes, _ = self._codes(frame)
        self.sizes = [int(self._size(name)) for name in self.names]
        self.parents = _tree(codes, self.sizes) if edges else [-1] * len(self.names)
        self.marginal = [_shares(codes[:, [n]], [size]) for n, size in enumerate(self.sizes)]
        self.joint = [
            None if parent < 0
            else _shares(codes[:, [n, parent]], [self.sizes[n], self.sizes[parent]])
            for n, parent in enumerate(self.parents)
        ]  # fmt: skip

    def log_prob(self, frame: pd.DataFrame) -> Float[np.ndarray, " rows"]:
        """log p of complete rows; a category never seen, or a missing cell, counts as nothing."""
        codes, densities = self._codes(frame)
        total = densities.sum(1)
        for n, parent in enumerate(self.parents):
            known = codes[:, n] >= 0
            share = self.marginal[n][np.maximum(codes[:, n], 0)]
            table = self.joint[n]
            if table is not None:
                both = known & (codes[:, parent] >= 0)
                above = np.maximum(codes[:, parent], 0)
                conditional = table[np.maximum(codes[:, n], 0), above] / table.sum(0)[above]
                share = np.where(both, conditional, share)
            total = total + np.where(known, np.log(share), 0.0)
        return total

    def _cut(self, frame: pd.DataFrame, name: str, levels: int) -> np.ndarray | None:
        coding = self.table.coding(name)
        if isinstance(coding, States):
            return None
        number = coding.number if isinstance(coding, Spiked) else coding
        assert isinstance(number, Number)
        values = frame[name].dropna().to_numpy(np.float64)
        if isinstance(coding, Spiked):
            values = values[~np.isin(values, coding.spikes)]
        half = number.step / 2
        cuts = np.unique(np.quantile(values, np.linspace(0, 1, levels + 1)))
        # Rounded numbers belong to one level each: cuts go between them.
        cuts = (
            np.unique(np.round((cuts - half) / number.step) * number.step + half) if half else cuts
        )
        ends = (values.min() - max(half, 1e-9), values.max() + max(half, 1e-9))
        inner = cuts[(cuts > ends[0]) & (cuts < ends[1])]
        return np.concatenate([[ends[0]], inner, [ends[1]]])

    def _size(self, name: str) -> int:
        coding, cuts = self.table.coding(name), self.cuts[name]
        if isinstance(coding, States):
            return len(coding.values)
        spikes = len(coding.spikes) if isinstance(coding, Spiked) else 0
        # Two tails beyond all training rows, each as wide as their whole range.
        return spikes + len(cuts) + 1  # type: ignore[arg-type]

    def _codes(
        self, frame: pd.DataFrame
    ) -> tuple[Int[np.ndarray, "rows columns"], Float[np.ndarray, "rows columns"]]:
        """The state or level of each cell, −1 where missing, and the log density inside it."""
        codes = np.full((len(frame), len(self.names)), -1)
        densities = np.zeros(codes.shape)
        for n, name in enumerate(self.names):
            coding, cuts = self.table.coding(name), self.cuts[name]
            if isinstance(coding, States):
                place = {value: k for k, value in enumerate(coding.values)}
                codes[:, n] = [place.get(cell, -1) for cell in frame[name]]
                continue
            assert cuts is not None
            cells = frame[name].to_numpy(np.float64)
            known = ~np.isnan(cells)
            spikes = coding.spikes if isinstance(coding, Spiked) else np.empty(0)
            level = np.searchsorted(cuts, cells)
            widths = np.diff(cuts, prepend=2 * cuts[0] - cuts[-1], append=2 * cuts[-1] - cuts[0])
            codes[known, n] = level[known] + len(spikes)
            densities[known, n] = -np.log(np.maximum(widths[level[known]], 1e-300))
            for k, spike in enumerate(spikes):
                codes[cells == spike, n], densities[cells == spike, n] = k, 0.0
        return codes, densities


def chosen_tree(frame: pd.DataFrame, table: Table, edges: bool, seed: int) -> LevelTree:
    """The tree with the number of levels that suits a tenth of the rows best, held out."""
    order = np.random.default_rng(seed).permutation(len(frame))
    count = max(1, len(frame) // 10)
    train, valid = frame.iloc[order[count:]], frame.iloc[order[:count]]
    levels = _LEVELS if numeric(frame) else _LEVELS[:1]
    best = max(levels, key=lambda n: LevelTree(train, table, n, edges).log_prob(valid).mean())
    return LevelTree(frame, table, best, edges)


def _shares(codes: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Smoothed shares of the states of one column, or of pairs; half a row in each cell at most."""
    known = codes[(codes >= 0).all(1)]
    counts = np.zeros(sizes)
    np.add.at(counts, tuple(known.T), 1.0)
    counts += min(0.5, 5.0 / counts.size)
    return counts / counts.sum()


def _tree(codes: np.ndarray, sizes: list[int]) -> list[int]:
    """The parents of the tree with the most mutual information, by Prim's algorithm."""
    columns = len(sizes)
    information = np.zeros((columns, columns))
    for a in range(columns):
        for b in range(a):
            joint = _shares(codes[:, [a, b]], [sizes[a], sizes[b]])
            apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
            information[a, b] = information[b, a] = (joint * np.log(joint / apart)).sum()
    parents, inside = [-1] * columns, {0}
    while len(inside) < columns:
        pairs = [
            (information[a, b], a, b) for a in inside for b in range(columns) if b not in inside
        ]
        _, parent, child = max(pairs)
        parents[child] = parent
        inside.add(child)
    return parents
