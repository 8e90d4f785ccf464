"""A log-domain Einsum Network that stores every product: the baseline of sec. 3.2.

LibSPN and the early SPFlow keep all values as logarithms, write the log products of an outer
product into memory as nodes of their own, add broadcast log weights and reduce with logsumexp. This
is the same in plain torch, vectorised over each layer of random binary trees, with EM by automatic
differentiation (sec. 3.5): a RAT-SPN. It exists to be compared with, not to be used.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from einet import RegionGraph

__all__ = ["BernoulliLeaves", "GaussianLeaves", "LogDomainNetwork"]

MIN_VARIANCE = 1e-4
MIN_WEIGHT = 1e-12
MIN_PROBABILITY = 1e-6


class Leaves(nn.Module, ABC):
    """Exponential families whose natural parameters θ and log-normalisers A are separate tensors.

    So the gradient with respect to them yields both expected statistics of EM.
    """

    theta: nn.Parameter
    A: nn.Parameter

    @abstractmethod
    def forward(self, cells: Float[Tensor, "batch leaves scope 1"]) -> Tensor:
        """The log densities of cells, ``[batch, leaves, scope, K]``."""

    @abstractmethod
    def move(self, expected: Tensor, step_size: Tensor) -> None:
        """A step towards the expected statistics."""


class GaussianLeaves(Leaves):
    """Gaussians: θ = (μ/σ², −1/2σ²) and A = μ²/2σ² + log σ."""

    def __init__(self, shape: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.empty(*shape, 2))
        self.A = nn.Parameter(torch.empty(shape))
        self.set(torch.randn(shape, generator=generator), torch.ones(shape))

    def set(
        self, mean: Float[Tensor, "leaves scope K"], variance: Float[Tensor, "leaves scope K"]
    ) -> None:
        """Write means and variances."""
        with torch.no_grad():
            self.theta[..., 0] = mean / variance
            self.theta[..., 1] = -0.5 / variance
            self.A.copy_(0.5 * (mean.square() / variance + variance.log()))

    def forward(self, cells: Float[Tensor, "batch leaves scope 1"]) -> Tensor:
        theta_1, theta_2 = self.theta.unbind(-1)
        densities = theta_1 * cells + theta_2 * cells.square() - self.A
        return densities - 0.5 * math.log(2 * math.pi)

    def move(self, expected: Float[Tensor, "leaves scope K 2"], step_size: Tensor) -> None:
        variance = -0.5 / self.theta[..., 1]
        mean = self.theta[..., 0] * variance
        first = mean.lerp(expected[..., 0], step_size)
        second = (variance + mean.square()).lerp(expected[..., 1], step_size)
        self.set(first, (second - first.square()).clamp(min=MIN_VARIANCE))


class BernoulliLeaves(Leaves):
    """Bernoulli variables: θ = log p/(1 − p) and A = −log(1 − p)."""

    def __init__(self, shape: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.empty(*shape, 1))
        self.A = nn.Parameter(torch.empty(shape))
        self.set(0.25 + 0.5 * torch.rand(shape, generator=generator))

    def set(self, probability: Float[Tensor, "leaves scope K"]) -> None:
        """Write probabilities of 1."""
        with torch.no_grad():
            self.theta.copy_(probability.logit().unsqueeze(-1))
            self.A.copy_(-(-probability).log1p())

    def forward(self, cells: Float[Tensor, "batch leaves scope 1"]) -> Tensor:
        return self.theta.squeeze(-1) * cells - self.A

    def move(self, expected: Float[Tensor, "leaves scope K 1"], step_size: Tensor) -> None:
        probability = self.theta.squeeze(-1).sigmoid().lerp(expected.squeeze(-1), step_size)
        self.set(probability.clamp(MIN_PROBABILITY, 1 - MIN_PROBABILITY))


class LogDomainNetwork(nn.Module):
    """Random binary trees, evaluated and trained in the log domain.

    Args:
        graph: random binary trees whose leaves all have the same number of variables.
        num_sums: K.
        seed: of the initial parameters.
        leaves: of which family.
    """

    columns: Tensor

    def __init__(
        self,
        graph: RegionGraph,
        num_sums: int,
        seed: int = 0,
        leaves: type[GaussianLeaves] | type[BernoulliLeaves] = GaussianLeaves,
    ) -> None:
        super().__init__()
        scopes = [graph.variables(leaf) for leaf in graph.leaves]
        if len({len(scope) for scope in scopes}) != 1:
            raise ValueError("graph must have leaves with equally many variables")
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("columns", torch.tensor(scopes))
        self.leaves = leaves((*self.columns.shape, num_sums), generator)

        self.log_weights = nn.ParameterList()
        below = list(graph.leaves)
        for depth, regions in enumerate(graph.layers()[1:], start=1):
            partitions = [p for region in regions for p in graph.partitions_of(region)]
            is_root = regions == (graph.root,)
            position = {region: i for i, region in enumerate(below)}
            pairs = [graph.partitions[p].children for p in partitions]
            if not all(child in position for pair in pairs for child in pair):
                raise ValueError("graph must be random binary trees of one depth")
            children = torch.tensor([[position[child] for child in pair] for pair in pairs])
            self.register_buffer(f"children_{depth}", children)
            sums = 1 if is_root else num_sums
            weights = torch.rand(len(pairs), sums, num_sums**2, generator=generator)
            self.log_weights.append(nn.Parameter((weights / weights.sum(-1, keepdim=True)).log()))
            below = list(regions)
        mixing = torch.full((1, 1, len(graph.partitions_of(graph.root))), 1.0)
        self.log_weights.append(nn.Parameter((mixing / mixing.sum()).log()))

    @property
    def num_parameters(self) -> int:
        """Those of each leaf, one for each weight; mixing one tree takes none."""
        *einsum, mixing = (weight.numel() for weight in self.log_weights)
        return self.leaves.theta.numel() + sum(einsum) + (mixing if mixing > 1 else 0)

    def forward(self, x: Float[Tensor, "batch variables"]) -> Float[Tensor, " batch"]:
        """log p(x)."""
        values = self.leaves(x[:, self.columns].unsqueeze(-1)).sum(2)
        *einsum_weights, mixing = self.log_weights
        for depth, log_weight in enumerate(einsum_weights, start=1):
            left, right = self.get_buffer(f"children_{depth}").unbind(-1)
            products = values[:, left, :, None] + values[:, right, None, :]
            # [batch, L, 1, K²] + [L, K, K²]: every weighted product lies in memory once more.
            values = torch.logsumexp(products.flatten(2).unsqueeze(2) + log_weight, -1)
        return torch.logsumexp(values.flatten(1) + mixing.flatten(), -1)

    def em_step(self, x: Float[Tensor, "batch variables"], step_size: float) -> Float[Tensor, ""]:
        """One step of stochastic EM; the mean log-likelihood before it."""
        log_likelihood = self(x)
        of_theta, of_A, *counts = torch.autograd.grad(
            log_likelihood.sum(), (self.leaves.theta, self.leaves.A, *self.log_weights)
        )
        with torch.no_grad():
            # What no sample reaches stays where it is.
            flow = of_A.neg()
            expected = of_theta / flow.clamp(min=1e-30).unsqueeze(-1)
            self.leaves.move(expected, step_size * (flow > 1e-30).to(flow))
            for log_weight, count in zip(self.log_weights, counts, strict=True):
                total = count.sum(-1, keepdim=True)
                step = step_size * (total > 1e-30).to(total)
                weight = log_weight.exp().lerp(count / total.clamp(min=1e-30), step)
                log_weight.copy_(weight.clamp(min=MIN_WEIGHT).log())
        return log_likelihood.detach().mean()
