"""The posterior of a mixture."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.engine.passes import Passes
from einet.engine.root import log_sum, responsibilities
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
        """The components."""

    @abstractmethod
    def component_log_prob(self, batch: Batch) -> Float[Tensor, "components batch"]:
        """log w_m p_m(x) of every component (float64)."""

    @abstractmethod
    def as_batch(self, x: Any, observed: Any = None) -> Batch:
        """What a method was given, checked and on the model's device."""

    def given(self, x: Any, observed: Any = None) -> MixturePosterior:
        """The distribution of everything, given the observed cells of each row."""
        return MixturePosterior(self, self.as_batch(x, observed))

    def weighted_einets(self) -> list[tuple[Float[Tensor, ""], Passes]]:
        return [
            (log_weight + inner, einet)
            for log_weight, model in zip(self.log_weights.double(), self.models, strict=True)
            for inner, einet in model.weighted_einets()
        ]


class MixturePosterior(Posterior):
    """p(· | e) of a mixture: the components' posteriors, weighted by p(m | e)."""

    model: MixtureDistribution

    @cached_property
    @torch.no_grad()
    def _joint(self) -> Float[Tensor, "components batch"]:
        return self.model.component_log_prob(self.evidence)

    @cached_property
    def _log_evidence(self) -> Float[Tensor, " batch"]:
        return log_sum(self._joint)

    @cached_property
    def responsibilities(self) -> Float[Tensor, "components batch"]:
        """p(m | e) of every component."""
        self.check_possible()
        return responsibilities(self._joint)

    def _parts(self) -> list[tuple[Tensor, Posterior, Tensor]]:
        """The rows each component can explain, its posterior there, and its share of them."""
        parts = []
        for model, share in zip(self.model.models, self.responsibilities, strict=True):
            rows = (share > 0).nonzero().flatten()
            if rows.numel():
                parts.append((rows, model.given(self.evidence[rows]), share[rows]))
        return parts

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        parts = [
            (rows, p.mean().double(), p.variance().double(), w) for rows, p, w in self._parts()
        ]
        mean = torch.zeros_like(self.evidence.x, dtype=torch.float64)
        for rows, its_mean, _, share in parts:
            mean[rows] += share.unsqueeze(-1) * its_mean
        variance = torch.zeros_like(mean)
        for rows, its_mean, its_variance, share in parts:
            spread = its_variance + (its_mean - mean[rows]) ** 2
            variance[rows] += share.unsqueeze(-1) * spread
        return mean, variance

    def mean(self) -> Float[Tensor, "batch variables"]:
        return self.keep_evidence(self._moments[0].to(self.result_dtype))

    def variance(self) -> Float[Tensor, "batch variables"]:
        return self._moments[1].masked_fill(self.evidence.mask, 0.0).to(self.result_dtype)

    def log_marginals(self, x: Any, observed: Any = None) -> Float[Tensor, "batch variables"]:
        query = self.as_query(x, observed)
        shape, kind = self.evidence.x.shape, torch.float64
        total = torch.full(shape, -torch.inf, dtype=kind, device=self.model.device)
        for rows, posterior, share in self._parts():
            logs = posterior.log_marginals(query[rows]).double()
            total[rows] = torch.logaddexp(total[rows], logs + share.log().unsqueeze(-1))
        return self.answer_marginals(query, total)

    def probabilities(self, variable: int) -> Float[Tensor, "batch states"]:
        variable = self.as_variable(variable)
        total: Tensor | None = None
        for rows, posterior, share in self._parts():
            table = posterior.probabilities(variable).double() * share.unsqueeze(-1)
            if total is None:
                total = table.new_zeros(len(self), table.shape[1])
            total[rows] += table
        if total is None:
            raise ValueError("there is no row of evidence to ask about")
        return total.to(self.model.dtype)

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
        for number, model in enumerate(self.model.models):
            mine = chosen == number
            counts = mine.sum(0)
            rows = (counts > 0).nonzero().flatten()
            if not rows.numel():
                continue
            # As many for every row as the row that needs most; the surplus is thrown away.
            most = int(counts.max())
            posterior = model.given(self.evidence[rows])
            drawn = posterior.sample(most, leaves=leaves, seed=generator)
            for_row = torch.arange(most, device=counts.device).unsqueeze(-1) < counts[rows]
            # Transposed, both masks list their cells row by row.
            result.transpose(0, 1)[mine.T] = drawn.transpose(0, 1)[for_row.T].to(result.dtype)
        return self.keep_evidence(result)

    def mode(self) -> Float[Tensor, "batch variables"]:
        """The best of the components' modes under the mixture; approximate like each of them."""
        self.check_possible()
        best = torch.full((len(self),), -torch.inf, dtype=torch.float64, device=self.model.device)
        result = torch.empty_like(self.evidence.x, dtype=self.result_dtype)
        for rows, posterior, _ in self._parts():
            point = posterior.mode().to(result.dtype)
            with torch.no_grad():
                value = self.model.log_prob(point).double()
            better = value > best[rows]
            best[rows[better]] = value[better]
            result[rows[better]] = point[better]
        return self.keep_evidence(result)
