"""The root: log-likelihoods, their gradients, class posteriors and sums."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from einet.kernels.nodes import Nodes
from einet.kernels.triton import root
from tests.kernels.triton.inner_check import (
    INF,
    interpreted,
    on_devices,
    poisoned,
    random_nodes,
)

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

_CPU = itertools.product((1, 2, 5), (1, 7, 33))
_GPU = itertools.product((1, 3, 10, 256), (1, 7, 100, 500, 3000))
on_sizes = pytest.mark.parametrize(
    ("device", "classes", "batch"),
    [
        *(pytest.param("cpu", *size, marks=interpreted) for size in _CPU),
        *(pytest.param("cuda", *size, marks=pytest.mark.gpu) for size in _GPU),
    ],
)


class Case:
    """Random values of a root, labels and weights, and what float64 makes of them."""

    def __init__(self, classes: int, batch: int, device: str, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        # The root is the last node of its space.
        nodes = random_nodes(3, classes, batch, device, generator)
        self.nodes: Nodes = nodes[-1:]
        prior = torch.rand(classes, generator=generator) + 0.1
        self.log_prior = (prior / prior.sum()).log().to(device)
        self.labels = (torch.arange(batch) * 7 % (classes + 1) - 1).to(device)
        weights = torch.rand(batch, generator=generator, dtype=torch.float64) * 3
        weights[::4] = 0.0
        self.weights = weights.to(device)
        self.device = device
        self.joint = self.nodes.v[0].double().log() + self.nodes.m[0]
        self.joint = self.joint + self.log_prior.double().unsqueeze(-1)

    def check(self, labels: Tensor | None, weights: Tensor | None) -> None:
        classes, batch = self.joint.shape
        joint = self.joint
        if labels is not None:
            of_class = torch.arange(classes, device=self.device).unsqueeze(-1)
            joint = torch.where((labels < 0) | (labels == of_class), joint, -INF)
        log_likelihood = torch.logsumexp(joint, 0)
        share = (joint - log_likelihood.clamp(min=-1e300)).exp()
        weight = torch.ones_like(log_likelihood) if weights is None else weights
        flow = share * weight
        counted = torch.where(weight > 0, weight * log_likelihood, 0.0)
        impossible = ((log_likelihood == -INF) & (weight > 0)).sum()
        sums = torch.stack([counted.sum(), weight.sum(), impossible.double()])
        sums = torch.cat([sums, flow.sum(1)])
        room = poisoned(classes + 1, batch, device=self.device)
        for into in (None, room[1:]):
            found, found_sums = root.finish(self.nodes, self.log_prior, labels, weights, into)
            torch.testing.assert_close(found, log_likelihood, rtol=1e-12, atol=1e-9)
            torch.testing.assert_close(found_sums, sums, rtol=1e-9, atol=1e-9)
        value = self.nodes.v[0].double()
        gradient = torch.where(value > 0, flow / value, 0.0)
        torch.testing.assert_close(room[1:].double(), gradient, rtol=1e-6, atol=1e-30)
        assert room[0].isnan().all()


@on_sizes
@pytest.mark.parametrize("labelled", [False, True], ids=["", "labels"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
def test_sizes(labelled: bool, weighted: bool, device: str, classes: int, batch: int) -> None:
    case = Case(classes, batch, device)
    case.check(case.labels if labelled else None, case.weights if weighted else None)


@on_devices
@pytest.mark.parametrize("classes", [1, 3])
def test_impossible_rows(classes: int, device: str) -> None:
    """They are counted where they have a weight, and nothing flows from them."""
    case = Case(classes, 7, device)
    gradient = poisoned(classes, 7, device=device)
    found, sums = root.finish(case.nodes, case.log_prior, None, None, gradient)
    assert found[2] == -INF
    assert sums[0] == -INF
    assert sums[2] == (found == -INF).sum()
    assert (gradient[:, 2] == 0).all()
    assert not gradient.isnan().any()
    weights = torch.where(found == -INF, 0.0, 1.0).double()
    _, sums = root.finish(case.nodes, case.log_prior, None, weights, gradient)
    assert sums[0].isfinite()
    assert sums[2] == 0
    assert sums[1] == weights.sum()


@on_devices
def test_a_class_that_a_label_names_but_the_row_excludes(device: str) -> None:
    case = Case(3, 7, device)
    case.nodes.v[0, 1, 0] = 0.0
    labels = torch.full((7,), -1, device=device)
    labels[0] = 1
    gradient = poisoned(3, 7, device=device)
    found, sums = root.finish(case.nodes, case.log_prior, labels, None, gradient)
    assert found[0] == -INF
    assert sums[2] == (found == -INF).sum()
    assert (gradient[:, 0] == 0).all()


@on_devices
def test_one_class_is_certain(device: str) -> None:
    case = Case(1, 33, device)
    gradient = poisoned(1, 33, device=device)
    found, _ = root.finish(case.nodes, torch.zeros(1, device=device), None, None, gradient)
    assert gradient[0].equal((found > -INF).float())


@on_devices
def test_no_weight_at_all(device: str) -> None:
    case = Case(2, 7, device)
    weights = torch.zeros(7, dtype=torch.float64, device=device)
    gradient = poisoned(2, 7, device=device)
    found, sums = root.finish(case.nodes, case.log_prior, None, weights, gradient)
    assert (found > -INF).any()
    assert (sums == 0).all()
    assert (gradient == 0).all()
