"""A float32 model on the fused kernels beside its twin: float64, on a CPU, by torch's kernels."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

import einet
from einet.kernels import dispatch
from tests.oracle import NAN, random_rows, tracked

__all__ = ["Twins", "engine", "near"]


@contextmanager
def engine(device: str) -> Iterator[None]:
    """The fused kernels; on a CPU they are interpreted, and fresh memory holds NaN."""
    if device == "cuda":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with dispatch.backend("triton"):
            yield
    finally:
        torch.use_deterministic_algorithms(before)


class Twins:
    """A float32 model on the fused kernels and the same in float64 on torch's."""

    def __init__(
        self,
        graph: einet.RegionGraph,
        family: einet.ExponentialFamily | Sequence[einet.ExponentialFamily],
        num_sums: int,
        device: str,
        **options: Any,
    ) -> None:
        self.device = device
        model = einet.Einet(graph, family, num_sums, dtype=torch.float32, **options)
        data = random_rows(model, 50, seed=1, missing=0.1)
        self.model = model.initialize(data).to(device)
        self.follow()

    def follow(self) -> None:
        """Make the exact one a copy again: rounding adds up over steps."""
        self.exact = copy.deepcopy(self.model).double().cpu()

    def rows(self, count: int, seed: int = 0) -> Tensor:
        """Rows with holes: from three on, one of them all of it."""
        x = random_rows(self.exact, count, seed=seed, missing=0.3)
        if count > 2:
            x[2] = NAN
        return x

    def on(self, value: Any) -> Any:
        return value.to(self.device) if isinstance(value, Tensor) else value

    # -- comparisons ---------------------------------------------------------------------------

    def densities(self, x: Tensor, **labels: Any) -> Tensor:
        with engine(self.device), torch.no_grad():
            found = self.model.log_prob(self.on(x), **labels).double().cpu()
        exact = self.exact.log_prob(x, **labels).detach()
        error = 1e-5 * exact.abs().clamp(min=self.model.num_variables, max=1e300)
        same = (found == exact) | ((found - exact).abs() <= error)
        assert same.all(), f"{found} is not {exact}"
        return found

    def statistics(self, x: Tensor, twice: bool = False, **rows: Any) -> None:
        with engine(self.device):
            found = self.model.e_step(self.on(x), **rows)
            if twice:
                self.model.e_step(self.on(x), into=found, **rows)
        exact = self.exact.e_step(x, **rows)
        for mine, other in zip(found.tensors(), exact.tensors(), strict=True):
            near(mine.double().cpu() / (2 if twice else 1), other)

    def step(self, x: Tensor, step_size: float | Tensor = 0.4, **rows: Any) -> None:
        with engine(self.device):
            found = self.model.em_step(self.on(x), step_size=step_size, **rows)
        exact = self.exact.em_step(x, step_size=float(step_size), **rows)
        near(found.double().cpu(), exact)
        self.parameters()

    def parameters(self, rtol: float = 2e-4) -> None:
        pairs = zip(self.model.named_parameters(), self.exact.parameters(), strict=True)
        for (name, mine), other in pairs:
            near(mine.detach().double().cpu(), other.detach(), rtol, name)

    def gradients(self, x: Tensor) -> None:
        weights = torch.linspace(0.5, 2.0, len(x))
        tracked(self.model)
        tracked(self.exact)
        with engine(self.device):
            log_prob = self.model.log_prob(self.on(x))
            (log_prob * self.on(weights)).sum().backward()
        (self.exact.log_prob(x) * weights).sum().backward()
        pairs = zip(self.model.named_parameters(), self.exact.parameters(), strict=True)
        for (name, mine), other in pairs:
            assert mine.grad is not None
            assert other.grad is not None
            near(mine.grad.double().cpu(), other.grad, 1e-3, name)
        self.model.zero_grad()
        self.exact.zero_grad()

    def queries(self, x: Tensor, full: Tensor, **labels: Any) -> None:
        with engine(self.device):
            mine = self.model.given(self.on(x), **labels)
            found = [
                mine.log_evidence, mine.mean(), mine.variance(), mine.log_marginals(self.on(full))
            ]  # fmt: skip
        other = self.exact.given(x, **labels)
        exact = [other.log_evidence, other.mean(), other.variance(), other.log_marginals(full)]
        for one, two in zip(found, exact, strict=True):
            near(one.double().cpu(), two, 1e-3)


def near(found: Tensor, exact: Tensor, rtol: float = 2e-4, name: str = "") -> None:
    """Within an error relative to each number, or a smaller one to the largest of them."""
    finite = exact[exact.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    torch.testing.assert_close(
        found, exact, rtol=rtol, atol=0.02 * rtol * largest + 1e-6, equal_nan=True,
        msg=lambda message: f"{name}: {message}",
    )  # fmt: skip
