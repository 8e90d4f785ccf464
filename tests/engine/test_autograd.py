"""Gradients of the fused log-likelihood, worked out only when they are asked for."""

from __future__ import annotations

import copy

import pytest
import torch

import einet
from einet.kernels import dispatch
from tests.kernels.triton.leaf_check import interpreted
from tests.oracle import tracked

pytestmark = [interpreted, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
NAN = float("nan")


def pair() -> tuple[einet.Einet, einet.Einet, torch.Tensor]:
    graph = einet.random_trees(6, depth=2, replicas=2, seed=0)
    model = einet.Einet(graph, einet.Gaussian(), 3, num_classes=2)
    x = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    x[2, 3] = NAN
    tracked(model.initialize(x))
    return model, copy.deepcopy(model).double(), x


@pytest.mark.parametrize("same", [True, False])
def test_gradients_equal_those_of_float64(same: bool):
    """Whether or not the fused kernels are still in use when gradients are asked for."""
    model, exact, x = pair()
    labels = torch.tensor([0, 1, -1, -1, 0, 1, 1])
    weight = torch.rand(7, generator=torch.Generator().manual_seed(1))
    with dispatch.backend("triton"):
        result = model.log_prob(x, labels=labels)
        if same:
            (result * weight).sum().backward()
    if not same:
        (result * weight).sum().backward()
    wanted = exact.log_prob(x, labels=labels)
    torch.testing.assert_close(result.double(), wanted, rtol=1e-5, atol=1e-5)
    (wanted * weight.double()).sum().backward()
    for mine, theirs in zip(model.parameters(), exact.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-4, atol=1e-4)


def test_only_what_needs_gradients_gets_them():
    model, _, x = pair()
    frozen = model.circuit.sum_layers[0].weight
    frozen.requires_grad_(False)
    with dispatch.backend("triton"):
        model.log_prob(x).sum().backward()
    assert frozen.grad is None
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
