"""The posterior of one Einet."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from einet.data.batch import Batch
from einet.engine.passes import Passes
from einet.engine.root import join, responsibilities
from einet.inference import moments
from einet.inference.distribution import Distribution
from einet.inference.posterior import Posterior
from einet.inference.sampling import Leaves, as_generator, best, draw
from einet.layers import Descent

__all__ = ["EinetDistribution", "EinetPosterior"]

# Samples drawn at once: enough to be fast, few enough for their choices to fit in memory.
_CELLS_AT_ONCE = 1 << 23


class EinetDistribution(Passes, Distribution):
    """One Einet as a distribution that can be asked."""

    @abstractmethod
    def as_batch(self, x: Any, observed: Any = None, *, labels: Any = None) -> Batch:
        """What a method was given, checked and on the model's device."""

    def given(self, x: Any, observed: Any = None, *, labels: Any = None) -> EinetPosterior:
        """The distribution of everything, given the observed cells of each row.

        Args:
            x, observed: The evidence; as in :meth:`log_prob`.
            labels: The class of each row where it is known too, −1 where not.
        """
        return EinetPosterior(self, self.as_batch(x, observed, labels=labels))

    def weighted_einets(self) -> list[tuple[Float[Tensor, ""], Passes]]:
        return [(self.log_class_prior.new_zeros((), dtype=torch.float64), self)]


class EinetPosterior(Posterior):
    """p(· | e) of an Einet: one upward pass, and one downward where needed.

    Example:
        >>> import einet, torch
        >>> model = einet.Einet(einet.random_trees(3, depth=1, replicas=2), einet.Bernoulli(), 4)
        >>> posterior = model.given(torch.tensor([[1.0, float("nan"), float("nan")]]))
        >>> posterior.sample(5, seed=0).shape
        torch.Size([5, 1, 3])
        >>> torch.allclose(posterior.mean()[:, 1], posterior.probabilities(1)[:, 1])
        True
    """

    model: EinetDistribution

    def _joint(
        self, root: Float[Tensor, "classes batch"], batch: Batch
    ) -> Float[Tensor, "classes batch"]:
        """log p(c, x) of every class that the labels admit."""
        return join(root, self.model.log_class_prior, batch.labels)

    @torch.no_grad()
    def _flow(self, rows: slice) -> Float[Tensor, "leaf_nodes leaves batch"]:
        """p_L of every leaf entry for some rows of the evidence."""
        piece = self.evidence[rows]
        values, root = self.model.upward(piece)
        return self.model.downward(values, responsibilities(self._joint(root, piece)))

    # -- expectations --------------------------------------------------------------------------

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        self.check_possible()
        parts = [
            moments.mean_and_variance(self.model.leaf, self._flow(rows))
            for rows in self.model.pieces(len(self))
        ]
        if not parts:
            nothing = self.evidence.x.new_empty(self.evidence.x.shape, dtype=torch.float64)
            return nothing, nothing.clone()
        mean, variance = (torch.cat(part) for part in zip(*parts, strict=True))
        return mean, variance

    def mean(self) -> Float[Tensor, "batch variables"]:
        return self.keep_evidence(self._moments[0].to(self.result_dtype))

    def variance(self) -> Float[Tensor, "batch variables"]:
        return self._moments[1].masked_fill(self.evidence.mask, 0.0).to(self.result_dtype)

    def log_marginals(self, x: Any, observed: Any = None) -> Float[Tensor, "batch variables"]:
        self.check_possible()
        query = self.as_query(x, observed)
        parts = [
            moments.marginals(self.model.leaf, self._flow(rows), query[rows])
            for rows in self.model.pieces(len(self))
        ]
        return self.answer_marginals(query, torch.cat(parts) if parts else query.x.double())

    def probabilities(self, variable: int) -> Float[Tensor, "batch states"]:
        variable = self.as_variable(variable)
        self.check_possible()
        parts = [
            moments.state_probabilities(self.model.leaf, self._flow(rows), variable)
            for rows in self.model.pieces(len(self))
        ]
        if not parts:
            states = self.model.families[variable].num_states or 0
            return torch.empty(0, states, dtype=self.model.dtype, device=self.model.device)
        answer = torch.cat(parts)
        known = self.evidence.mask[:, variable, None]
        states = torch.arange(answer.shape[1], device=answer.device)
        certain = (self.evidence.x[:, variable, None].double() == states).double()
        return torch.where(known, certain, answer).to(self.model.dtype)

    # -- points --------------------------------------------------------------------------------

    @torch.no_grad()
    def sample(
        self, n: int, leaves: Leaves = "sample", seed: int | torch.Generator | None = None
    ) -> Float[Tensor, "n batch variables"]:
        n = self.as_count(n, leaves)
        self.check_possible()
        generator = as_generator(seed, self.model.device)
        shape = (n, len(self), self.model.num_variables)
        result = self.evidence.x.new_empty(shape, dtype=self.result_dtype)
        how = {"how": "sample", "generator": generator} if leaves == "sample" else {"how": "mean"}
        for rows in self.model.pieces(len(self)):
            piece = self.evidence[rows]
            known = piece.observed is None or bool(piece.observed.any())
            values, root = self.model.upward(piece)
            classes = responsibilities(self._joint(root, piece)).T
            step = max(1, _CELLS_AT_ONCE // (len(piece) * self.model.num_variables))
            for start in range(0, n, step):
                count = min(step, n - start)
                descent = Descent(draw(generator), values=values if known else None)
                weights = classes.repeat(count, 1)
                points = self._points(descent, descent.pick(weights), **how)
                result[start : start + count, rows] = points.view(count, len(piece), -1)
        return self.keep_evidence(result)

    @torch.no_grad()
    def mode(self) -> Float[Tensor, "batch variables"]:
        self.check_possible()
        parts = []
        for rows in self.model.pieces(len(self)):
            piece = self.evidence[rows]
            values, root = self.model.upward(piece, maximise=True)
            descent = Descent(best, maximise=True, values=values)
            parts.append(self._points(descent, best(self._joint(root, piece).T), how="mode"))
        return self.keep_evidence(
            torch.cat(parts) if parts else self.evidence.x.to(self.model.dtype)
        )

    def _points(self, descent: Descent, classes: Tensor, **how: Any) -> Tensor:
        """Follow the choices from the roots to the leaves and read a value off each."""
        visits = self.model.circuit.descend(classes, descent)
        shape = (classes.shape[0], self.model.num_variables)
        points = torch.empty(shape, dtype=self.result_dtype, device=self.model.device)
        self.model.leaf.draw_(visits, points, **how)
        return points
