"""The posterior of a mixture."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from einet.data.batch import Batch
from einet.engine.passes import Passes
from einet.engine.root import join, log_sum, responsibilities
from einet.inference.conditioned import WeightedLeaves
from einet.inference.distribution import Distribution
from einet.inference.posterior import Posterior
from einet.inference.sampling import Leaves, as_generator, draw

__all__ = ["MixtureDistribution", "MixturePosterior"]


class MixtureDistribution(Distribution):
    """A mixture of distributions that can be asked."""

    log_weights: Float[Tensor, " components"]

    @property
    @abstractmethod
    def models(self) -> Sequence[Distribution]:
        """The components.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> parts = [einet.Einet(graph, einet.Gaussian(), 3, seed=seed) for seed in (0, 1)]
            >>> einet.Mixture(parts).models == parts
            True
        """

    @abstractmethod
    def component_log_prob(self, batch: Batch) -> Float[Tensor, "components batch"]:
        """log w_m p_m(x) of every component (float64).

        Args:
            batch: The rows.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> parts = [einet.Einet(graph, einet.Gaussian(), 3, seed=seed) for seed in (0, 1)]
            >>> model = einet.Mixture(parts)
            >>> x = model.as_batch([[0.5, float("nan")]])
            >>> torch.allclose(model.component_log_prob(x).logsumexp(0), model.batch_log_prob(x))
            True
        """

    def given(self, x: Any = None, observed: Any = None, *, where: Any = None) -> MixturePosterior:
        """The distribution of everything, given the observed cells of each row, and events.

        Args:
            x, observed, where: The evidence; as in :meth:`log_prob`.
        """
        batch = self.as_batch(x, observed, where=where, own=True, events=True)
        return self.conditioned_on(batch)

    def conditioned_on(self, evidence: Batch, room: int | None = None) -> MixturePosterior:
        return MixturePosterior(self, evidence, room)

    @property
    def recorded(self) -> bool:
        """Whether :meth:`component_log_prob` replays recordings, as on a GPU.

        They are faster than passes, but leave nothing for further questions.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> einet.Mixture([einet.Einet(graph, einet.Gaussian(), num_sums=3)]).recorded
            False
        """
        return self.log_weights.is_cuda

    @torch.no_grad()
    def log_joint(self, batch: Batch) -> Float[Tensor, " batch"]:
        if self.recorded:
            joint = self.component_log_prob(batch)
        else:
            joint = self.weighted([model.log_joint(batch) for model in self.models])
        return log_sum(joint)

    def weighted(
        self, log_probs: Sequence[Float[Tensor, " batch"]]
    ) -> Float[Tensor, "components batch"]:
        """log w_m p_m from log p_m of every component (float64).

        Args:
            log_probs: log p_m of each component.

        Example:
            >>> import einet
            >>> graph = einet.random_trees(num_variables=2, depth=1, replicas=1)
            >>> parts = [einet.Einet(graph, einet.Gaussian(), 3, seed=seed) for seed in (0, 1)]
            >>> model = einet.Mixture(parts, weights=[0.25, 0.75])
            >>> model.weighted([torch.zeros(1), torch.zeros(1)]).exp()  # of two densities of 1
            tensor([[0.2500],
                    [0.7500]], dtype=torch.float64)
        """
        return join(torch.stack(list(log_probs)), self.log_weights)

    def weighted_einets(self) -> list[tuple[Float[Tensor, ""], Passes]]:
        return [
            (log_weight + inner, einet)
            for log_weight, model in zip(self.log_weights.double(), self.models, strict=True)
            for inner, einet in model.weighted_einets()
        ]


@dataclass(frozen=True)
class Part:
    """What one component has to do with the evidence.

    Attributes:
        number: Which component it is.
        rows: The rows that it can explain.
        posterior: Its posterior given those.
        share: p(component | e) of each of them.
    """

    number: int
    rows: Int[Tensor, " rows"]
    posterior: Posterior
    share: Float[Tensor, " rows"]


class MixturePosterior(Posterior):
    """p(· | e) of a mixture: the components' posteriors, weighted by p(m | e)."""

    model: MixtureDistribution

    @torch.no_grad()
    def find_log_evidence(self) -> Float[Tensor, " batch"]:
        return log_sum(self._joint())

    @property
    def responsibilities(self) -> Float[Tensor, "components batch"]:
        """p(m | e) of every component."""
        self.check_possible()
        return responsibilities(self._joint())

    @torch.no_grad()
    def _joint(self) -> Float[Tensor, "components batch"]:
        """log w_m p_m(e) of every component."""
        return self.kept.once("joint", self._find_joint)

    def _find_joint(self) -> Float[Tensor, "components batch"]:
        if self.model.recorded:
            return self.model.component_log_prob(self.evidence)
        return self.model.weighted([each.exact_log_evidence for each in self._components()])

    def _components(self) -> list[Posterior]:
        """The posterior of each component given all rows."""
        models = self.model.models
        room = self.room // len(models)
        return self.kept.once(
            "components", lambda: [each.conditioned_on(self.evidence, room) for each in models]
        )

    def _parts(self) -> list[Part]:
        """What the components have to do with the evidence; those that explain none of it not."""
        self.check_possible()
        return self.kept.once("parts", self._find_parts)

    def _find_parts(self) -> list[Part]:
        parts = []
        for number, share in enumerate(self.responsibilities):
            rows = (share > 0).nonzero().flatten()
            if self.model.recorded and rows.numel():
                room = self.room * len(rows) // (len(self) * len(self.model.models))
                posterior = self.model.models[number].conditioned_on(self.evidence[rows], room)
            elif rows.numel():
                posterior = self._components()[number]
                posterior = posterior if len(rows) == len(self) else posterior.at(rows)
            else:
                continue
            parts.append(Part(number, rows, posterior, share[rows]))
        # What these kept of rows that they do not explain is of no more use.
        self.kept.drop("components")
        return parts

    def at(self, rows: slice | Int[Tensor, " rows"]) -> MixturePosterior:
        some = MixturePosterior(self.model, self.evidence[rows], self.room)
        parts = self._parts()
        place = torch.full((len(self),), -1, device=self.model.device)
        place[rows] = torch.arange(len(some), device=place.device)
        some.kept.put("joint", self._joint()[:, rows])
        some.kept.put("parts", [part for each in parts for part in _within(each, place)])
        return some

    @torch.no_grad()
    def weighted_leaves(self) -> Iterator[WeightedLeaves]:
        for part in self._parts():
            for leaves in part.posterior.weighted_leaves():
                rows, share = part.rows[leaves.rows], part.share[leaves.rows] * leaves.share
                yield WeightedLeaves(rows, share, leaves.leaf, leaves.flow, leaves.events)

    # -- points --------------------------------------------------------------------------------

    @torch.no_grad()
    def sample(
        self, n: int, leaves: Leaves = "sample", seed: int | torch.Generator | None = None
    ) -> Float[Tensor, "n batch variables"]:
        """Independent draws: first a component from p(m | e), then from that component."""
        n = self.as_count(n, leaves)
        generator = as_generator(seed, self.model.device)
        weights = self.responsibilities.T
        shape = (n, len(self), self.model.num_variables)
        result = torch.empty(shape, dtype=self.result_dtype, device=self.model.device)
        chosen = draw(generator)(weights.repeat(n, 1)).view(n, len(self))
        for part in self._parts():
            of_part = chosen == part.number
            counts = of_part.sum(0)
            rows = (counts > 0).nonzero().flatten()
            if not rows.numel():
                continue
            # As many for every row as the row that needs most; the surplus is thrown away.
            most = int(counts.max())
            within = torch.searchsorted(part.rows, rows)
            whole = len(rows) == len(part.rows)
            posterior = part.posterior if whole else part.posterior.at(within)
            drawn = posterior.sample(most, leaves=leaves, seed=generator)
            for_row = torch.arange(most, device=counts.device).unsqueeze(-1) < counts[rows]
            # Transposed, both masks list their cells row by row.
            result.transpose(0, 1)[of_part.T] = drawn.transpose(0, 1)[for_row.T].to(result.dtype)
        return self.keep_evidence(result)

    @torch.no_grad()
    def mode(self) -> Float[Tensor, "batch variables"]:
        """The best of the components' modes under the mixture; approximate like each of them."""
        best = torch.full((len(self),), -torch.inf, dtype=torch.float64, device=self.model.device)
        result = torch.empty_like(self.evidence.x, dtype=self.result_dtype)
        for part in self._parts():
            point = part.posterior.mode().to(result.dtype)
            value = self.model.log_joint(Batch(point))
            events = self.evidence[part.rows].events
            if events is not None:
                # Soft evidence has its say about points too; in their intervals they lie anyway.
                soft = replace(
                    events, variables=(), lower=events.lower[:, :0], upper=events.upper[:, :0]
                )
                unknown = ~self.evidence.mask[part.rows]
                value = value + soft.log_weight(point, unknown).sum(1)
            better = value > best[part.rows]
            best[part.rows[better]] = value[better]
            result[part.rows[better]] = point[better]
        return self.keep_evidence(result)


def _within(part: Part, place: Int[Tensor, " batch"]) -> list[Part]:
    """A part for some rows only, given their new numbers and −1 for all others.

    There is none for a component that explains none of these rows.
    """
    inside = (place[part.rows] >= 0).nonzero().flatten()
    if not inside.numel():
        return []
    rows = place[part.rows[inside]]
    return [Part(part.number, rows, part.posterior.at(inside), part.share[inside])]
