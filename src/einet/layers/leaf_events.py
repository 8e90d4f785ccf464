r"""Leaves under events: everything that is asked of a density whose variable has one.

A variable with an event E is integrated out over E: its densities count by their masses
:math:`P_L(E) = \int_E f_L` in place of :math:`f_L(x)`, and given the event they are
:math:`f_L(x)\,1_E(x) / P_L(E)`. With soft evidence :math:`1_E` is a weight for each state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from einet._memory import chunks
from einet.data.batch_events import Events, StateColumn
from einet.families import ExponentialFamily
from einet.layers.leaf_block import LeafBlock

if TYPE_CHECKING:
    from einet.layers.leaf import LeafLayer

__all__ = [
    "EventPairs",
    "IntervalPairs",
    "StatePairs",
    "event_pairs",
    "log_masses",
    "log_states",
    "without_events",
]

# Sums of relative probabilities above this have all their digits.
_SMALLEST_SUM = 1e-250


@dataclass(frozen=True)
class EventPairs(ABC):
    """Some pairs of leaf and variable of one block, whose variables have an event.

    Answers are ``[K, pairs, rows]``, or ``[K, pairs, 1]`` where the event is the same in all rows.

    Attributes:
        block: The block.
        leaf: Which of its leaves.
        position: Which of their variables.
    """

    block: LeafBlock
    leaf: Int[Tensor, " pairs"]
    position: Int[Tensor, " pairs"]

    @property
    def nodes(self) -> Int[Tensor, " pairs"]:
        """The leaves as nodes of the circuit."""
        return self.block.leaves[self.leaf]

    @property
    def variables(self) -> Int[Tensor, " pairs"]:
        """The variables, by their numbers in the model."""
        return self.block.group.variables[self.block.columns[self.leaf, self.position]]

    @property
    def family(self) -> ExponentialFamily:
        """The family, for values ``[pairs, rows]``."""
        return self.block.group.family.at(self.block.columns[self.leaf, self.position, None])

    @property
    def stored(self) -> Float[Tensor, "K pairs 1 P"]:
        """The parameters, in float64."""
        return self.block.by_leaf.detach()[:, self.leaf, self.position].double().unsqueeze(2)

    @abstractmethod
    def at(self, number: Int[Tensor, ""]) -> EventPairs:
        """One of the pairs."""

    @abstractmethod
    def log_mass(self) -> Float[Tensor, "K pairs rows"]:
        """log P_L(E)."""

    @abstractmethod
    def log_peak(self) -> Float[Tensor, "K pairs rows"]:
        """The largest log density in E."""

    @abstractmethod
    def moments(self) -> tuple[Float[Tensor, "K pairs rows"], Float[Tensor, "K pairs rows"]]:
        """Mean and variance given E; NaN where P_L(E) is 0, and of categories."""

    @abstractmethod
    def log_mass_between(
        self, lower: Float[Tensor, "pairs rows"], upper: Float[Tensor, "pairs rows"]
    ) -> Float[Tensor, "K pairs rows"]:
        """log P_L(E, lower ≤ x ≤ upper)."""

    @abstractmethod
    def weights_at(self, states: Float[Tensor, "#pairs states"]) -> Float[Tensor, "pairs states _"]:
        """1_E of states, or their weights, for each row (or for all)."""

    def log_prob(self, x: Float[Tensor, "pairs rows"]) -> Float[Tensor, "K pairs rows"]:
        """log f_L(x), without the event."""
        if self.block.group.family.kernel != "table":
            return self.family.log_prob(x, self.stored)
        # One-hot statistics of all rows would take the number of states as often.
        logs = log_states(self.block, self.leaf, self.position)
        states = x.clamp(0, logs.shape[-1] - 1).long().expand(len(logs), -1, -1)
        return logs.gather(-1, states) + self.family.log_h(x)

    def log_prob_between(
        self, lower: Float[Tensor, "pairs rows"], upper: Float[Tensor, "pairs rows"]
    ) -> Float[Tensor, "K pairs rows"]:
        """log P_L(lower ≤ x ≤ upper | E); −∞ where P_L(E) is 0."""
        mass = self.log_mass()
        return torch.where(mass > -torch.inf, self.log_mass_between(lower, upper) - mass, mass)


@dataclass(frozen=True)
class IntervalPairs(EventPairs):
    """Pairs whose variables lie between bounds."""

    lower: Float[Tensor, "pairs rows"]
    upper: Float[Tensor, "pairs rows"]

    def at(self, number: Int[Tensor, ""]) -> IntervalPairs:
        which = number.unsqueeze(0)
        bounds = (self.lower[which], self.upper[which])
        return IntervalPairs(self.block, self.leaf[which], self.position[which], *bounds)

    def log_mass(self) -> Float[Tensor, "K pairs rows"]:
        return self.family.log_prob_between(self.lower, self.upper, self.stored)

    def log_peak(self) -> Float[Tensor, "K pairs rows"]:
        mode = self.family.mode_between(self.lower, self.upper, self.stored)
        filler = torch.full_like(mode, self.block.group.family.filler)
        logs = self.family.log_prob(torch.where(mode.isnan(), filler, mode), self.stored)
        return torch.where(mode.isnan(), -torch.inf, logs)

    def moments(self) -> tuple[Float[Tensor, "K pairs rows"], Float[Tensor, "K pairs rows"]]:
        return self.family.moments_between(self.lower, self.upper, self.stored)

    def log_mass_between(
        self, lower: Float[Tensor, "pairs rows"], upper: Float[Tensor, "pairs rows"]
    ) -> Float[Tensor, "K pairs rows"]:
        lower, upper = torch.maximum(lower, self.lower), torch.minimum(upper, self.upper)
        return self.family.log_prob_between(lower, upper, self.stored)

    def weights_at(self, states: Float[Tensor, "#pairs states"]) -> Float[Tensor, "pairs states _"]:
        x = states.unsqueeze(-1)
        return ((self.lower.unsqueeze(1) <= x) & (x <= self.upper.unsqueeze(1))).double()


@dataclass(frozen=True)
class StatePairs(EventPairs):
    """Pairs of a variable with weights for some of its states."""

    column: StateColumn

    def at(self, number: Int[Tensor, ""]) -> StatePairs:
        which = number.unsqueeze(0)
        return StatePairs(self.block, self.leaf[which], self.position[which], self.column)

    @property
    def _logs(self) -> Float[Tensor, "K pairs states"]:
        return log_states(self.block, self.leaf, self.position, self.column.values)

    def log_mass(self) -> Float[Tensor, "K pairs rows"]:
        found = _log_weighted(self._logs, self.column.weights)
        return torch.where(self.column.free, 0.0, found)

    def log_peak(self) -> Float[Tensor, "K pairs rows"]:
        each = self._logs.unsqueeze(2) + self.column.weights.log()
        return torch.where(self.column.free, 0.0, each.amax(-1))

    def moments(self) -> tuple[Float[Tensor, "K pairs rows"], Float[Tensor, "K pairs rows"]]:
        each = self._logs.unsqueeze(2) + self.column.weights.log()
        # −∞ throughout gives NaN, as it should.
        share, values = each.softmax(-1), self.column.values
        mean = share @ values
        variance = (share * (values - mean.unsqueeze(-1)).square()).sum(-1)
        # NaN where states are no numbers.
        meaning = 0 * self.family.mean(self.stored)
        return mean + meaning, variance + meaning

    def log_mass_between(
        self, lower: Float[Tensor, "pairs rows"], upper: Float[Tensor, "pairs rows"]
    ) -> Float[Tensor, "K pairs rows"]:
        values, weights = self.column.values, self.column.weights.log()
        inside = (lower.unsqueeze(-1) <= values) & (values <= upper.unsqueeze(-1))
        each = self._logs.unsqueeze(2) + torch.where(inside, weights, -torch.inf)
        return each.logsumexp(-1)

    def weights_at(self, states: Float[Tensor, "#pairs states"]) -> Float[Tensor, "pairs states _"]:
        values, x = self.column.values, states[0].contiguous()
        place = torch.searchsorted(values, x).clamp(max=len(values) - 1)
        found = torch.where(values[place] == x, self.column.weights[:, place], 0.0)
        return found.T.expand(len(self.leaf), -1, -1)


def log_states(
    block: LeafBlock,
    leaf: Int[Tensor, " pairs"],
    position: Int[Tensor, " pairs"],
    states: Float[Tensor, "*K_pairs states"] | None = None,
) -> Float[Tensor, "K pairs states"]:
    """log f_L of states of some pairs: the same for all, or ``[K, pairs, states]``.

    Of all states by default, for families with tables.
    """
    column = block.columns[leaf, position]
    stored = block.by_leaf.detach()[:, leaf, position].double()
    family = block.group.family.at(column.unsqueeze(-1))
    x = states if states is None or states.ndim > 1 else states.expand(len(column), -1)
    if family.kernel != "table":
        assert x is not None
        return family.log_prob(x, stored.unsqueeze(-2))
    # One-hot statistics of all states would take the square of their number.
    of_pairs = block.group.family.at(column)
    theta = of_pairs.theta_of(stored)
    logs = theta - of_pairs.A(theta).unsqueeze(-1)
    if x is None:
        return logs
    place = x.clamp(0, theta.shape[-1] - 1).long().expand(len(logs), -1, -1)
    return logs.gather(-1, place) + family.log_h(x)


def _log_weighted(
    logs: Float[Tensor, "K pairs states"], weights: Float[Tensor, "rows states"]
) -> Float[Tensor, "K pairs rows"]:
    """log Σ_s w_s exp(logs_s): a matrix product, or sums of logarithms where that underflows."""
    top = logs.amax(-1, keepdim=True).clamp(min=torch.finfo(logs.dtype).min)
    sums = (logs - top).exp() @ weights.T
    found = sums.log() + top
    lost = (sums < _SMALLEST_SUM) & (weights.sum(-1) > 0)
    if bool(lost.any()):
        K, pair, row = lost.nonzero(as_tuple=True)
        for some in chunks(len(K), "block", 16 * logs.shape[-1], logs.device):
            each = logs[K[some], pair[some]] + weights[row[some]].log()
            found[K[some], pair[some], row[some]] = each.logsumexp(-1)
    return found


# -- all pairs of a leaf layer ---------------------------------------------------------------------


def event_pairs(leaf: LeafLayer, events: Events) -> Iterator[EventPairs]:
    """All pairs of leaf and variable that have an event, some at a time."""
    device = leaf.leaf_blocks[0].columns.device
    lower, upper = events.lower, events.upper
    if _alike(lower) and _alike(upper):
        lower, upper = lower[:1], upper[:1]
    columns = [_shortened(column) for column in events.states]
    place = torch.full((leaf.num_variables,), -1, device=device)
    place[list(events.variables)] = torch.arange(len(events.variables), device=device)
    for block in leaf.leaf_blocks:
        K, variables = block.stored.shape[0], block.group.variables[block.columns]
        number = place[variables]
        if events.variables:
            at, position = (number >= 0).nonzero().unbind(1)
            for some in chunks(len(at), "block", 8 * K * lower.shape[0], device):
                which = number[at[some], position[some]]
                bounds = (lower.T[which], upper.T[which])
                yield IntervalPairs(block, at[some], position[some], *bounds)
        for column in columns:
            at, position = (variables == column.variable).nonzero().unbind(1)
            size = max(column.weights.shape[0], len(column.values))
            for some in chunks(len(at), "block", 8 * K * size, device):
                yield StatePairs(block, at[some], position[some], column)


def _alike(tensor: Tensor) -> bool:
    """Whether all rows are the same, so that one of them does."""
    return len(tensor) > 0 and bool((tensor == tensor[:1]).all())


def _shortened(column: StateColumn) -> StateColumn:
    if not _alike(column.weights) or not _alike(column.free):
        return column
    some = column.weights[:1], column.free[:1]
    return StateColumn(column.variable, column.values, *some, column.table)


def log_masses(
    leaf: LeafLayer, events: Events, peaks: bool = False
) -> Float[Tensor, "leaf_nodes K rows"]:
    """Σ log P_L(E) over the variables of each leaf that have an event (float64).

    With ``peaks``, of their largest log densities in place of masses.
    """
    rows = events.lower.shape[0]
    total = events.lower.new_zeros(leaf.num_nodes, leaf.num_entries, rows)
    for pairs in event_pairs(leaf, events) if rows else ():
        logs = pairs.log_peak() if peaks else pairs.log_mass()
        total.index_add_(0, pairs.nodes, logs.transpose(0, 1).expand(-1, -1, rows).contiguous())
    return total


def without_events(block: LeafBlock, events: Events | None) -> Bool[Tensor, " pairs"] | None:
    """Which pairs of a block have no event; None where all are without."""
    if events is None:
        return None
    variables = block.group.variables[block.columns].reshape(-1)
    named = torch.tensor(events.all_variables, device=variables.device)
    return ~torch.isin(variables, named)
