"""Leaves of a variable with an event: their densities given that, with their posterior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from einet._memory import chunks
from einet.inference.conditioned import Conditioned, WeightedLeaves
from einet.layers.leaf_events import EventPairs, event_pairs

__all__ = ["CutLeaf", "cut_leaves", "has_event"]


@dataclass(frozen=True)
class CutLeaf:
    """One pair of leaf and variable that has an event E.

    Attributes:
        pair: The pair, with its event in each row.
        place: The variable's place among those that are asked for.
        rows: The rows of the evidence.
        posterior: p(L | e) of the pair's entries.
    """

    pair: EventPairs
    place: int
    rows: Int[Tensor, " rows"]
    posterior: Float[Tensor, "K rows"]

    @cached_property
    def _mass(self) -> Float[Tensor, "K _"]:
        """log P_L(E); ∞ of an entry that the event excludes: it has no posterior either."""
        mass = self.pair.log_mass()[:, 0]
        return torch.where(mass > -torch.inf, mass, torch.inf)

    def up_to(self, x: Float[Tensor, "1 rows"]) -> Float[Tensor, " rows"]:
        """Σ_L p(L | e) P_L(X ≤ x | E) over the pair's entries."""
        found = self.pair.log_mass_between(torch.full_like(x, -torch.inf), x)[:, 0]
        return ((found - self._mass).exp() * self.posterior).sum(0)

    def densities(self, points: Float[Tensor, " points"]) -> Float[Tensor, "points rows"]:
        """Σ_L p(L | e) f_L(x | E) over the pair's entries, at points that all rows share."""
        states, rows = points.unsqueeze(0), len(self.rows)
        logs, mass = self.pair.log_prob(states)[:, 0], self._mass.expand(-1, rows)
        total = torch.empty(len(points), rows, dtype=torch.float64, device=points.device)
        for some in chunks(rows, "block", 8 * logs.numel(), points.device):
            shares = (logs.unsqueeze(-1) - mass[:, None, some]).exp()
            total[:, some] = (shares * self.posterior[:, None, some]).sum(0)
        weights = self.pair.weights_at(states)[0]
        return torch.where(weights > 0, total * weights, 0.0)


def cut_leaves(weighted: WeightedLeaves, variables: Int[Tensor, " some"]) -> Iterator[CutLeaf]:
    """The leaves of one Einet that hold some of the variables and have an event for them."""
    events = weighted.events
    if events is None or not len(weighted.share):
        return
    places = {variable: place for place, variable in enumerate(variables.tolist())}
    rows = weighted.rows
    if isinstance(rows, slice):
        rows = torch.arange(rows.start, rows.stop, device=variables.device)
    for pairs in event_pairs(weighted.leaf, events):
        for number, variable in enumerate(pairs.variables.tolist()):
            if variable in places:
                flow = weighted.flow[pairs.nodes[number]].double() * weighted.share
                pair = pairs.at(torch.tensor(number, device=variables.device))
                yield CutLeaf(pair, places[variable], rows, flow)


def has_event(posterior: Conditioned) -> Bool[Tensor, " variables"]:
    """Which variables have an event in the evidence."""
    shape, device = (posterior.model.num_variables,), posterior.model.device
    found = torch.zeros(shape, dtype=torch.bool, device=device)
    events = posterior.evidence.events
    if events is not None:
        found[list(events.all_variables)] = True
    return found
