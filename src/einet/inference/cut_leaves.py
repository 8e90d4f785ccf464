"""Leaves of a variable with an event: their densities given that, with their posterior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from einet._memory import chunks
from einet.inference.bracketing import first_not_below
from einet.inference.conditioned import Conditioned, WeightedLeaves
from einet.layers.leaf_events import EventPairs, IntervalPairs, event_pairs

__all__ = ["CutLeaf", "alike_rows", "cut_leaves", "has_event"]

# Steps in which the first bits of a quantile are found: panels need no more.
_ROUNDS = 36


@dataclass(frozen=True)
class CutLeaf:
    """One pair of leaf and variable that has an event E.

    Attributes:
        pair: The pair, with its event in each row.
        place: The variable's place among those that are asked for.
        rows: The rows of the evidence.
        posterior: p(L | e) of the pair's entries.
        mass: log P_L(E); ∞ of an entry that the event excludes: it has no posterior either.
    """

    pair: EventPairs
    place: int
    rows: Int[Tensor, " rows"]
    posterior: Float[Tensor, "K rows"]
    mass: Float[Tensor, "K _"]

    @classmethod
    def of(
        cls,
        pair: EventPairs,
        place: int,
        rows: Int[Tensor, " rows"],
        posterior: Float[Tensor, "K rows"],
    ) -> CutLeaf:
        """The pair with the probabilities of its event."""
        mass = pair.log_mass()[:, 0]
        mass = torch.where(mass > -torch.inf, mass, torch.inf)
        return cls(pair, place, rows, posterior, mass)

    def up_to(self, x: Float[Tensor, "1 rows"]) -> Float[Tensor, " rows"]:
        """Σ_L p(L | e) P_L(X ≤ x | E) over the pair's entries."""
        found = self.pair.log_mass_between(torch.full_like(x, -torch.inf), x)[:, 0]
        return ((found - self.mass).exp() * self.posterior).sum(0)

    def densities(self, points: Float[Tensor, " points"]) -> Float[Tensor, "points rows"]:
        """Σ_L p(L | e) f_L(x | E) over the pair's entries, at points that all rows share."""
        states, rows = points.unsqueeze(0), len(self.rows)
        logs, mass = self.pair.log_prob(states)[:, 0], self.mass.expand(-1, rows)
        total = torch.empty(len(points), rows, dtype=torch.float64, device=points.device)
        for some in chunks(rows, "block", 8 * logs.numel(), points.device):
            shares = (logs.unsqueeze(-1) - mass[:, None, some]).exp()
            total[:, some] = (shares * self.posterior[:, None, some]).sum(0)
        weights = self.pair.weights_at(states)[0]
        return torch.where(weights > 0, total * weights, 0.0)

    @property
    def is_alike(self) -> bool:
        """Whether the event is the same in all rows, an interval."""
        return isinstance(self.pair, IntervalPairs) and self.pair.lower.shape[1] == 1

    def up_to_points(self, points: Float[Tensor, " points"]) -> Float[Tensor, "points rows"]:
        """Σ_L p(L | e) P_L(X ≤ x | E) over the pair's entries, at points that all rows share."""
        return self._shares(points[:, None, None, None])[..., 0, 0] @ self.posterior

    def quantiles(self, levels: Sequence[float]) -> Float[Tensor, "levels entries"]:
        """Where P_L(X ≤ x | E) of each entry that the event admits reaches some levels."""
        asked = torch.tensor(levels, dtype=torch.float64, device=self.mass.device)
        asked = asked.view(-1, 1, 1, 1).expand(-1, len(self.mass), -1, -1).contiguous()
        reached = first_not_below(self._shares, asked, False, _ROUNDS)[1][..., 0, 0]
        return reached[:, self.mass[:, 0] < torch.inf].clamp(*self.ends)

    def log_peak(self) -> Float[Tensor, ""]:
        """The log of the highest density of any entry, given the event."""
        return (self.pair.log_peak()[:, 0] - self.mass).max()

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds that all rows have."""
        assert isinstance(self.pair, IntervalPairs)
        return float(self.pair.lower), float(self.pair.upper)

    def _shares(self, x: Float[Tensor, "points _ 1 1"]) -> Float[Tensor, "points K 1 1"]:
        """P_L(X ≤ x | E) of the pair's entries, at points for each or for all of them."""
        assert isinstance(self.pair, IntervalPairs)
        upper = torch.minimum(x, self.pair.upper)
        # Below the interval there is nothing.
        inside = torch.maximum(upper, self.pair.lower)
        found = self.pair.family.log_prob_between(self.pair.lower, inside, self.pair.stored)
        found = torch.where(upper < self.pair.lower, -torch.inf, found)
        return (found - self.mass.view(-1, 1, 1)).exp().clamp(max=1.0)


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
                yield CutLeaf.of(pair, places[variable], rows, flow)


def has_event(posterior: Conditioned) -> Bool[Tensor, " variables"]:
    """Which variables have an event in the evidence."""
    shape, device = (posterior.model.num_variables,), posterior.model.device
    found = torch.zeros(shape, dtype=torch.bool, device=device)
    events = posterior.evidence.events
    if events is not None:
        found[list(events.all_variables)] = True
    return found


def alike_rows(
    posterior: Conditioned, variables: Sequence[int]
) -> list[Int[Tensor, " rows"] | None]:
    """The rows of a posterior by the intervals that some variables are known to lie in.

    None stands for all rows: where they have the same intervals, or none at all.
    """
    events = posterior.evidence.events
    if events is None or not len(posterior):
        return [None]
    places = [n for n, variable in enumerate(events.variables) if variable in variables]
    if not places:
        return [None]
    bounds = torch.cat([events.lower[:, places], events.upper[:, places]], 1)
    kinds, number = bounds.unique(dim=0, return_inverse=True)
    if len(kinds) <= 1:
        return [None]
    return [(number == kind).nonzero().flatten() for kind in range(len(kinds))]
