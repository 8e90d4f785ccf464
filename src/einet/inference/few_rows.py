"""The posterior given a few rows of evidence, in numpy; see :mod:`einet.engine.few_rows`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from einet.data.events import Event
from einet.engine.few_rows import FewPasses, UpwardFew, few_passes

if TYPE_CHECKING:
    from einet.inference.distribution import Distribution

__all__ = ["MOST_ROWS", "FewLeaves", "FewPosterior"]

#: More rows than these go by torch. Posteriors take more operations there than log densities do: so
#: these are more than in the engine.
MOST_ROWS = 32


class _Part(NamedTuple):
    """One Einet of a model: its passes, and its log p(c, e) with its weight in a mixture."""

    passes: FewPasses
    upward: UpwardFew
    joint: Float[np.ndarray, "classes rows"]


class FewLeaves(NamedTuple):
    """One leaf of a variable, for all rows.

    Attributes:
        passes: Those of its Einet.
        node: The leaf.
        weight: p(L | e) of its densities in each row.
    """

    passes: FewPasses
    node: int
    weight: Float[np.ndarray, "K rows"]


class FewPosterior:
    """p(· | e) for a few rows of evidence: the same answers as those of ``model.given``, sooner.

    Example:
        >>> import einet
        >>> graph = einet.chow_liu(np.eye(3)[[0, 1, 2, 0]])
        >>> model = einet.Einet(graph, einet.Categorical(2), 4, sums="linear").double()
        >>> posterior = FewPosterior.of(model, np.array([[1.0, np.nan, np.nan]]))
        >>> found, given = posterior.probabilities(1), model.given([[1.0, np.nan, np.nan]])
        >>> np.allclose(found, given.probabilities(1))
        True
    """

    def __init__(
        self,
        parts: list[_Part],
        x: Float[np.ndarray, "rows variables"],
        events: Sequence[Mapping[int, Event]],
    ) -> None:
        self._parts, self.x, self.events = parts, x, events
        self._kept_flows: list[np.ndarray] | None = None
        #: log p(e) of each row.
        self.log_evidence = _log_sum(np.concatenate([part.joint for part in parts]))

    @classmethod
    def of(
        cls,
        model: Distribution,
        x: Float[np.ndarray, "rows variables"],
        events: Sequence[Mapping[int, Event]] = (),
    ) -> FewPosterior | None:
        """The posterior of a model; None where the model, or the evidence, are not served.

        Args:
            model: The model.
            x: Rows, NaN where nothing is known.
            events: For each row, events of variables that are NaN there; none by default.
        """
        if not 0 < len(x) <= MOST_ROWS:
            return None
        parts = []
        for log_weight, einet in model.weighted_einets():
            passes = few_passes(einet)
            if passes is None:
                return None
            masses = _masses(passes, events)
            upward = None if masses is None else passes.up(x, masses)
            if upward is None:
                return None
            joint = upward.roots + passes.log_prior + float(log_weight)
            parts.append(_Part(passes, upward, joint))
        return cls(parts, x, events)

    def at(self, row: int) -> FewPosterior:
        """The posterior of one row alone, with no pass of its own."""
        some = slice(row, row + 1)
        parts = [part._replace(joint=part.joint[:, some]) for part in self._parts]
        alone = FewPosterior(parts, self.x[some], self.events[row : row + 1])
        alone._kept_flows = [flow[..., some] for flow in self._flows()]
        return alone

    def _flows(self) -> list[Float[np.ndarray, "_ _ rows"]]:
        """p(L | e) of all leaf entries of every Einet; kept, as all questions need them."""
        flows = self._kept_flows
        if flows is None:
            possible = np.where(self.log_evidence > -np.inf, self.log_evidence, 0.0)
            seeds = [np.exp(part.joint - possible) for part in self._parts]
            flows = [
                part.passes.down(part.upward, seed)
                for part, seed in zip(self._parts, seeds, strict=True)
            ]
            # No lock: threads may go down at the same time, and either result serves.
            self._kept_flows = flows
        return flows

    def leaves(self, variable: int) -> Iterator[FewLeaves]:
        """The leaves of a variable; weights of all of them add up to 1 in every row."""
        for part, flow in zip(self._parts, self._flows(), strict=True):
            for node in part.passes.leaf.nodes_of[variable]:
                yield FewLeaves(part.passes, node, flow[node])

    def leaves_given(self, variable: int, other: int, state: int) -> list[FewLeaves] | None:
        """The same, given also that another variable is in a state where it is unknown.

        Leaves of one product have their densities in common: by Bayes' rule p(L | e, s) is
        proportional to p(L | e) f_L(s), with no further pass. None where two leaves are not of one
        product, or where the other variable has an event.
        """
        if any(other in events for events in self.events):
            return None
        found = []
        open_rows = np.isnan(self.x[:, other])
        for passes, node, weight in self.leaves(variable):
            nodes = passes.leaf.nodes_of[other]
            beside = [each for each in nodes if passes.are_factors(node, each)]
            if len(beside) != 1 or not passes.leaf.is_table(beside[0]):
                return None
            factor = passes.leaf.table(beside[0])[state][:, None]
            found.append(FewLeaves(passes, node, np.where(open_rows, weight * factor, weight)))
        total = np.sum([leaves.weight.sum(0) for leaves in found], axis=0)
        safe = np.where(total > 0, total, 1.0)
        return [leaves._replace(weight=leaves.weight / safe) for leaves in found]

    def probabilities(self, variable: int) -> Float[np.ndarray, "rows states"] | None:
        """p(x_d = s | e) of every state of a Categorical variable; None for others."""
        answer = 0.0
        for passes, node, weight in self.leaves(variable):
            if not passes.leaf.is_table(node):
                return None
            answer = answer + _state_sums(passes.leaf.table(node), weight, *self._known(variable))
        assert isinstance(answer, np.ndarray)
        for row, cell in enumerate(self.x[:, variable].tolist()):
            if cell == cell:
                answer[row] = 0.0
                answer[row, int(cell)] = 1.0
        return answer

    def _known(self, variable: int) -> tuple[list[int], list[Event]]:
        """The rows that have an event of a variable, and these."""
        rows = [row for row, events in enumerate(self.events) if variable in events]
        return rows, [self.events[row][variable] for row in rows]


def _state_sums(
    shares: Float[np.ndarray, "states K"],
    weight: Float[np.ndarray, "K rows"],
    rows: list[int],
    events: list[Event],
) -> Float[np.ndarray, "rows states"]:
    """Σ_k p_k f_k(s), in rows with an event Σ_k p_k f_k(s) 1_E(s) / P_k(E)."""
    answer = (shares @ weight).T
    for row, event in zip(rows, events, strict=True):
        weights = np.zeros(len(shares))
        weights[event.values.numpy().astype(np.int64)] = event.weights.numpy()  # type: ignore[union-attr]
        inside = shares * weights[:, None]
        mass = inside.sum(0)
        answer[row] = inside @ np.divide(
            weight[:, row], mass, out=np.zeros_like(mass), where=mass > 0
        )
    return answer


def _masses(
    passes: FewPasses, events: Sequence[Mapping[int, Event]]
) -> dict[int, Float[np.ndarray, "K rows"]] | None:
    """log P_L(E) of leaves with events in some row; None where an event is not served."""
    masses: dict[int, np.ndarray] = {}
    # Rows of one question mostly have the same events.
    known: dict[tuple[int, int], np.ndarray | None] = {}
    for row, of_row in enumerate(events):
        for variable, event in of_row.items():
            for node in passes.leaf.nodes_of[variable]:
                key = (node, id(event))
                if key not in known:
                    known[key] = passes.leaf.log_mass(node, event)
                mass = known[key]
                if mass is None:
                    return None
                if node not in masses:
                    masses[node] = np.zeros((len(mass), len(events)))
                masses[node][:, row] = mass
    return masses


def _log_sum(joint: Float[np.ndarray, "parts rows"]) -> Float[np.ndarray, " rows"]:
    """log Σ exp over parts; −∞ where all are."""
    largest = np.maximum(joint.max(0), -1e300)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(joint - largest).sum(0)) + largest
