"""Leaves of one Gaussian or Categorical variable for a few rows, in numpy.

See :mod:`einet.engine.few_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.data.events import Between, Event, States
from einet.families import Categorical, Gaussian
from einet.layers import LeafBlock, LeafLayer
from einet.layers.leaf_events import log_states

__all__ = ["FewLeafLayer"]

Result = TypeVar("Result")

# Beyond this a Gaussian has no density.
_LARGEST = Gaussian.largest


class _Gaussians(NamedTuple):
    """All Gaussian leaves: mean, 1/σ and log density at the mean in units of their own."""

    nodes: Int[np.ndarray, " n"]
    variables: Int[np.ndarray, " n"]
    location: Float[np.ndarray, "n 1"]
    scale: Float[np.ndarray, "n 1"]
    mean: Float[np.ndarray, "n K 1"]
    factor: Float[np.ndarray, "n K 1"]
    peak: Float[np.ndarray, "n K 1"]


class _Tables(NamedTuple):
    """All Categorical leaves; the first row of ``logs`` is that of missing cells, of zeros."""

    nodes: Int[np.ndarray, " n"]
    variables: Int[np.ndarray, " n"]
    first: Int[np.ndarray, "n 1"]
    states: Int[np.ndarray, "n 1"]
    logs: Float[np.ndarray, "rows K"]


class FewLeafLayer:
    """All leaves of an Einet, as arrays that are made once for its parameters.

    Attributes:
        nodes_of: The leaf nodes of each variable.
        blocks: For each leaf node its block, and its number in there.
    """

    def __init__(self, blocks: list[LeafBlock]) -> None:
        self._gaussians, self._tables = _gaussians_of(blocks), _tables_of(blocks)
        self._kept: dict[Hashable, Any] = {}
        self.nodes_of: dict[int, list[int]] = {}
        for leaves in (self._gaussians, self._tables):
            for node, variable in zip(leaves.nodes, leaves.variables, strict=True):
                self.nodes_of.setdefault(int(variable), []).append(int(node))
        self.blocks = {
            node: (block, number)
            for block in blocks
            for number, node in enumerate(block.leaves.tolist())
        }

    @classmethod
    def of(cls, leaf: LeafLayer) -> FewLeafLayer | None:
        """The leaves of a model as it is now; None where they are others."""
        blocks = leaf.leaf_blocks
        if sum(len(block.leaves) for block in blocks) != leaf.num_nodes:
            # Variables of both kinds in one leaf.
            return None
        for block in blocks:
            if block.columns.shape[1] != 1 or block.group.kind not in (Gaussian, Categorical):
                return None
        return cls(blocks)

    def is_table(self, node: int) -> bool:
        """Whether a leaf is of a Categorical variable."""
        return self.blocks[node][0].group.kind is Categorical

    def once(self, name: Hashable, compute: Callable[[], Result]) -> Result:
        """What follows from the parameters alone, computed unless it is there already."""
        if name not in self._kept:
            # No lock: threads may compute the same at the same time, and either serves.
            self._kept[name] = compute()
        return self._kept[name]

    def write(
        self, x: Float[np.ndarray, "batch variables"], logs: Float[np.ndarray, "nodes K batch"]
    ) -> bool:
        """Write log densities of all leaves, 0 where missing; False where a cell is not served."""
        of = self._gaussians
        if len(of.nodes):
            cells = x[:, of.variables].T
            z = (cells - of.location) / of.scale
            away = (z[:, None] - of.mean) * of.factor
            logs[of.nodes] = np.where(np.isnan(z)[:, None], 0.0, of.peak - 0.5 * away * away)
            if (np.abs(cells) > _LARGEST).any():
                return False
        table = self._tables
        if len(table.nodes):
            cells = x[:, table.variables].T
            missing = np.isnan(cells)
            # What no integer can hold is no state either.
            states = np.where(missing, 0, np.clip(cells, -1, 1 << 53)).astype(np.int64)
            if not (((states == cells) | missing) & (states >= 0) & (states < table.states)).all():
                return False
            at = np.where(missing, 0, table.first + states)
            logs[table.nodes] = table.logs[at].transpose(0, 2, 1)
        return True

    def log_mass(self, node: int, event: Event) -> Float[np.ndarray, " K"] | None:
        """log P_L(E) of a leaf's densities for one event; None where it is not served."""
        block, number = self.blocks[node]
        if isinstance(event, Between) and block.group.kind is Gaussian:
            family = block.group.family.at(block.columns[number])
            stored = block.stored.detach()[:, number].unsqueeze(1)
            ends = (event.lower.reshape(1), event.upper.reshape(1))
            return family.log_prob_between(*ends, stored)[:, 0].numpy()
        if not isinstance(event, States) or block.group.kind is not Categorical:
            return None
        if event.table or event.weights.ndim != 1:
            return None
        table = self.log_table(node)
        states = event.values.numpy().astype(np.int64)
        if (states < 0).any() or (states >= len(table)).any():
            return None
        with np.errstate(divide="ignore"):
            logs = table[states] + np.log(event.weights.numpy())[:, None]
            top = np.maximum(logs.max(0), -1e300)
            return np.log(np.exp(logs - top).sum(0)) + top

    def table(self, node: int) -> Float[np.ndarray, "states K"]:
        """f_L of all states of a leaf's Categorical variable."""
        return self.once(("table", node), lambda: np.exp(self.log_table(node)))

    def log_table(self, node: int) -> Float[np.ndarray, "states K"]:
        """log f_L of all states of a leaf's Categorical variable."""
        tables = self._tables
        place = int(np.flatnonzero(tables.nodes == node)[0])
        first = int(tables.first[place, 0])
        return tables.logs[first : first + int(tables.states[place, 0])]


def _gaussians_of(blocks: list[LeafBlock]) -> _Gaussians:
    """The parameters of all Gaussian leaves, one after the other."""
    parts: list[list[Tensor]] = [[] for _ in range(7)]
    for block in blocks:
        if block.group.kind is not Gaussian:
            continue
        family = block.family
        assert isinstance(family, Gaussian)
        mean, variance = block.stored.detach().unbind(-1)
        peak = -0.5 * torch.log(2 * torch.pi * variance) - family.scale.log()
        of_leaf = (block.leaves, block.group.variables[block.columns[:, 0]])
        units = (
            each.expand(len(block.leaves)).unsqueeze(1) for each in (family.location, family.scale)
        )
        values = (each.T.unsqueeze(-1) for each in (mean, 1 / variance.sqrt(), peak))
        for part, each in zip(parts, (*of_leaf, *units, *values), strict=True):
            part.append(each)
    empty = torch.empty(0)
    joined = (torch.cat(part).contiguous() if part else empty for part in parts)
    nodes, variables, *rest = (each.numpy() for each in joined)
    return _Gaussians(nodes.astype(np.int64), variables.astype(np.int64), *rest)


def _tables_of(blocks: list[LeafBlock]) -> _Tables:
    """The tables of all Categorical leaves, one below the other."""
    nodes, variables, sizes = [], [], []
    rows: list[np.ndarray] = []
    for block in blocks:
        if block.group.kind is not Categorical:
            continue
        family = block.group.family
        assert isinstance(family, Categorical)
        every = torch.arange(len(block.leaves))
        logs = log_states(block, every, torch.zeros_like(every)).permute(1, 2, 0)
        counts = family.at(block.columns[:, 0]).num_categories.expand(len(every)).long().tolist()
        rows += [table[:count].numpy() for table, count in zip(logs, counts, strict=True)]
        nodes += block.leaves.tolist()
        variables += block.group.variables[block.columns[:, 0]].tolist()
        sizes += counts
    starts = np.cumsum([1, *sizes])[:-1]
    width = rows[0].shape[1] if rows else 0
    table = np.concatenate([np.zeros((1, width)), *rows])
    first, states = (np.array(each, dtype=np.int64)[:, None] for each in (starts, sizes))
    return _Tables(np.array(nodes, int), np.array(variables, int), first, states, table)
