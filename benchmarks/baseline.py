"""A log-domain Einsum Network that stores every product: the baseline of sec. 3.2.

LibSPN and the early SPFlow keep all values as logarithms, write the log products of an outer
product into memory as nodes of their own, add broadcast log weights and reduce with logsumexp. This
is the same in plain torch, vectorised over each layer of random binary trees, with EM by automatic
differentiation (sec. 3.5). It exists to be compared with, not to be used.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from einet import RegionGraph

__all__ = ["LogDomainNetwork"]

MIN_VARIANCE = 1e-4
MIN_WEIGHT = 1e-12


class LogDomainNetwork(nn.Module):
    """Random binary trees with Gaussian leaves, evaluated and trained in the log domain.

    The leaves' natural parameters θ and log-normalisers A are separate tensors, so that the
    gradient with respect to them yields both expected statistics of EM.

    Args:
        graph: random binary trees whose leaves all have the same number of variables.
        num_sums: K.
        seed: of the initial parameters.
    """

    columns: Tensor

    def __init__(self, graph: RegionGraph, num_sums: int, seed: int = 0) -> None:
        super().__init__()
        scopes = [graph.variables(leaf) for leaf in graph.leaves]
        if len({len(scope) for scope in scopes}) != 1:
            raise ValueError("graph must have leaves with equally many variables")
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("columns", torch.tensor(scopes))
        shape = (*self.columns.shape, num_sums)
        self.theta = nn.Parameter(torch.empty(*shape, 2))
        self.A = nn.Parameter(torch.empty(shape))
        self.set_leaves(torch.randn(shape, generator=generator), torch.ones(shape))

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
        """Two for each Gaussian, one for each weight; mixing one tree takes none."""
        *einsum, mixing = (weight.numel() for weight in self.log_weights)
        return self.theta.numel() + sum(einsum) + (mixing if mixing > 1 else 0)

    def set_leaves(
        self, mean: Float[Tensor, "leaves scope K"], variance: Float[Tensor, "leaves scope K"]
    ) -> None:
        """Write means and variances as θ = (μ/σ², −1/2σ²) and A = μ²/2σ² + log σ."""
        with torch.no_grad():
            self.theta[..., 0] = mean / variance
            self.theta[..., 1] = -0.5 / variance
            self.A.copy_(0.5 * (mean.square() / variance + variance.log()))

    def forward(self, x: Float[Tensor, "batch variables"]) -> Float[Tensor, " batch"]:
        """log p(x)."""
        values = self._leaves(x)
        *einsum_weights, mixing = self.log_weights
        for depth, log_weight in enumerate(einsum_weights, start=1):
            left, right = self.get_buffer(f"children_{depth}").unbind(-1)
            products = values[:, left, :, None] + values[:, right, None, :]
            # [batch, L, 1, K²] + [L, K, K²]: every weighted product lies in memory once more.
            values = torch.logsumexp(products.flatten(2).unsqueeze(2) + log_weight, -1)
        return torch.logsumexp(values.flatten(1) + mixing.flatten(), -1)

    def _leaves(self, x: Float[Tensor, "batch variables"]) -> Float[Tensor, "batch leaves K"]:
        cells = x[:, self.columns].unsqueeze(-1)
        theta_1, theta_2 = self.theta.unbind(-1)
        densities = theta_1 * cells + theta_2 * cells.square() - self.A
        return densities.sum(2) - 0.5 * math.log(2 * math.pi) * self.columns.shape[1]

    def em_step(self, x: Float[Tensor, "batch variables"], step_size: float) -> Float[Tensor, ""]:
        """One step of stochastic EM; the mean log-likelihood before it."""
        log_likelihood = self(x)
        of_theta, of_A, *counts = torch.autograd.grad(
            log_likelihood.sum(), (self.theta, self.A, *self.log_weights)
        )
        with torch.no_grad():
            variance = -0.5 / self.theta[..., 1]
            mean = self.theta[..., 0] * variance
            expected = of_theta / of_A.neg().clamp(min=1e-12).unsqueeze(-1)
            first = mean.lerp(expected[..., 0], step_size)
            second = (variance + mean.square()).lerp(expected[..., 1], step_size)
            self.set_leaves(first, (second - first.square()).clamp(min=MIN_VARIANCE))
            for log_weight, count in zip(self.log_weights, counts, strict=True):
                total = count.sum(-1, keepdim=True).clamp(min=1e-30)
                weight = log_weight.exp().lerp(count / total, step_size)
                log_weight.copy_(weight.clamp(min=MIN_WEIGHT).log())
        return log_likelihood.detach().mean()
