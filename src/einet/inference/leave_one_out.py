r"""The probability of each row without each one of its cells, by one pass up and one down.

A circuit is linear in the leaves of any one variable, p(x) = Σ_L g_L f_L(x_j) over the leaves L
that hold variable j, where g_L does not depend on x_j. Without the cell every f_L(x_j) is 1, so

.. math:: p(x_{-j}) = \sum_L g_L = p(x) \sum_L p_L / f_L(x_j)

with the posterior p_L of each leaf, which the downward pass finds. Of an outlier the leaf that all
other cells speak for may have no more than e⁻⁸⁰⁰ of another one's density. Then p_L is a number
that no float holds, and yet p_L / f_L is most of the sum. So three things are done:

* the passes are made in float64, whatever the type of the parameters;
* a leaf's entries count as no less than e⁻²⁵⁰ of the largest, with which p_L can be held and
  divided again. That raises p(x) by the posterior of what was raised, which is there to be read;
* where this is not next to nothing, or where flows are below what float64 resolves and could
  matter, and where p(x) = 0, the cell is asked the plain way: log p of the row without it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from einet._memory import chunks
from einet.data.batch import Batch
from einet.engine.passes import Passes
from einet.engine.root import join, log_sum, responsibilities
from einet.inference.densities import leaf_log_values, log_densities
from einet.inference.log_sums import LogSums
from einet.kernels.nodes import scaled
from einet.layers import LeafBlock, Values

__all__ = ["LeftOut", "leave_one_out"]

# The least value of an entry, in parts of the largest of its leaf.
_LEAST = math.exp(-250)
# Flows above this are right: what passes lose to underflow is far less.
_RESOLVED = math.exp(-600)
# How much of the posterior may belong to entries that were raised. Without a cell it could be more,
# by what one factor of a product can differ in: that of a sum is bounded by the floor of weights,
# that of a leaf which is multiplied as it is by what float32 holds.
_MOST_RAISED = math.exp(-150)
_LEAST_WEIGHT = 1e-13
# What may be missing from the log of a sum.
_TOLERANCE = 1e-9


class LeftOut(NamedTuple):
    """What leaving out each cell does to the probability of a row (float64).

    Attributes:
        log_prob: log p of each row.
        without: log p of each row without each of its cells.
        gain: The latter less the former, with digits that the difference would lose.

    Of missing cells the last two say nothing.
    """

    log_prob: Float[Tensor, " batch"]
    without: Float[Tensor, "batch variables"]
    gain: Float[Tensor, "batch variables"]


def leave_one_out(einet: Passes, batch: Batch) -> LeftOut:
    """log p(x) and log p(x without x_j) of every row and cell, jointly with labels.

    Args:
        einet: One Einet.
        batch: Rows that have been checked, beside it.
    """
    passes = _ExactPasses(einet)
    kind = {"dtype": torch.float64, "device": batch.x.device}
    log_prob = torch.empty(len(batch), **kind)
    without, gain = torch.empty(batch.x.shape, **kind), torch.empty(batch.x.shape, **kind)
    unsure = torch.zeros(batch.x.shape, dtype=torch.bool, device=batch.x.device)
    for rows in passes.pieces(len(batch)):
        log_prob[rows], gain[rows], unsure[rows] = _piece(passes, batch[rows])
    torch.add(log_prob.unsqueeze(1), gain, out=without)
    row, cell = (unsure & batch.mask).nonzero().unbind(1)
    again = row.unique()
    log_prob[again] = passes.log_prob(batch[again])
    without[row, cell] = _one_by_one(passes, batch, row, cell)
    gain[row, cell] = without[row, cell] - log_prob[row]
    return LeftOut(log_prob, without, gain)


class _ExactPasses:
    """The passes of an Einet in float64, from log values of its leaves."""

    def __init__(self, einet: Passes) -> None:
        self.einet, self.leaf, self.circuit = einet, einet.leaf, einet.circuit
        self.weights = [weight.detach().double() for weight in einet.circuit.weights]
        least = min(float(weight.min()) for weight in self.weights)
        #: How much of a row's posterior may have been raised.
        self.most_raised = _MOST_RAISED if least >= _LEAST_WEIGHT else 0.0

    def pieces(self, rows: int) -> list[slice]:
        """Slices of rows whose values, and flows, fit a bounded memory."""
        bytes_each = 2 * 8 * self.circuit.num_body * self.circuit.width
        return list(chunks(rows, "values", bytes_each, self.einet.device, least=16))

    def up(
        self,
        v: Float[Tensor, "leaf_nodes K batch"],
        m: Float[Tensor, "leaf_nodes batch"],
        labels: Int[Tensor, " batch"] | None,
    ) -> tuple[Values, Float[Tensor, "classes batch"]]:
        """Values of all nodes and log p(c, x), from scaled values of the leaves."""
        values = self.circuit.empty_values(v.shape[-1], v)
        nodes, entries = v.shape[:2]
        values.body.v[:nodes, :entries], values.body.m[:nodes] = v, m
        root = self.circuit.propagate_(self.weights, values)
        return values, join(root, self.einet.log_class_prior, labels)

    def log_prob(self, batch: Batch) -> Float[Tensor, " batch"]:
        """log p of rows, the plain way."""
        parts = [batch.x.new_empty(0, dtype=torch.float64)]
        for rows in self.pieces(len(batch)):
            piece = batch[rows]
            v, m = scaled(leaf_log_values(self.leaf, piece), torch.float64)
            parts.append(log_sum(self.up(v, m, piece.labels)[1]))
        return torch.cat(parts)


def _piece(
    passes: _ExactPasses, batch: Batch
) -> tuple[
    Float[Tensor, " batch"], Float[Tensor, "batch variables"], Bool[Tensor, "batch variables"]
]:
    """log p of some rows, the gain of leaving out each cell, and which of them may be wrong."""
    logs = leaf_log_values(passes.leaf, batch)
    v, m = scaled(logs, torch.float64)
    raised = v < _LEAST
    v.clamp_(min=_LEAST)
    values, joint = passes.up(v, m, batch.labels)
    log_prob = log_sum(joint)
    flow = passes.circuit.backpropagate_(passes.weights, values, responsibilities(joint), None)
    share = torch.where(raised, flow, 0.0).sum((0, 1))
    unsure = ~log_prob.isfinite() | (raised.any(0).any(0) & (share >= passes.most_raised))
    at_least = _sums_without(passes, batch, logs, m, flow / v)
    at_most = _sums_without(passes, batch, logs, m, flow.clamp_(min=_RESOLVED) / v)
    # Not "more than": a comparison with NaN is False.
    close = at_most - at_least <= _TOLERANCE
    return log_prob, at_least, unsure.unsqueeze(1) | ~close


def _sums_without(
    passes: _ExactPasses,
    batch: Batch,
    logs: Float[Tensor, "leaf_nodes K batch"],
    m: Float[Tensor, "leaf_nodes batch"],
    slopes: Float[Tensor, "leaf_nodes K batch"],
) -> Float[Tensor, "batch variables"]:
    """log Σ_L p_L / f_L(x_j) of every cell.

    Args:
        passes: The Einet.
        batch: The rows.
        logs, m: Log values of the leaves, and the largest of each leaf.
        slopes: ∂log p(x)/∂v of leaf values v·exp(m).
    """
    leaf = passes.leaf
    total = LogSums(leaf.num_variables, m)
    sizes = torch.zeros(leaf.num_nodes, dtype=torch.long, device=m.device)
    for block in leaf.leaf_blocks:
        sizes[block.leaves] += block.columns.shape[1]
    shares: Tensor | None = None
    for block in leaf.leaf_blocks:
        variables = block.group.variables[block.columns]
        if bool((sizes[block.leaves] == 1).all()):
            # Without its only cell a leaf is 1.
            sums = slopes[block.leaves].sum(1).log() - m[block.leaves]
            total.add_(variables[:, 0], slice(0, len(batch)), sums)
        else:
            shares = logs - m.unsqueeze(1) + slopes.log() if shares is None else shares
            _add_several(block, batch, shares, total)
    return total.log().T


def _add_several(
    block: LeafBlock, batch: Batch, shares: Float[Tensor, "leaf_nodes K batch"], total: LogSums
) -> None:
    """Add log p_L / f_L(x_j), given log p_L, of leaves that may hold more than one variable."""
    variables = block.group.variables[block.columns]
    for part, piece, own in log_densities(block, batch):
        terms = shares[block.leaves[part]][:, :, piece].unsqueeze(1) - own
        total.add_(variables[part].reshape(-1), piece, terms.logsumexp(2).flatten(0, 1))


def _one_by_one(
    passes: _ExactPasses, batch: Batch, row: Int[Tensor, " cells"], cell: Int[Tensor, " cells"]
) -> Float[Tensor, " cells"]:
    """log p of rows without one cell each."""
    parts = [batch.x.new_empty(0, dtype=torch.float64)]
    for some in passes.pieces(len(row)):
        rows = batch[row[some]]
        mask = rows.mask.clone()
        mask[torch.arange(len(rows), device=mask.device), cell[some]] = False
        parts.append(passes.log_prob(replace(rows, observed=mask)))
    return torch.cat(parts)
