"""Whole models on the fused kernels, in float32, beside the torch path in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

import einet
from einet.data import as_batch
from einet.kernels import dispatch
from tests.kernels.triton.leaf_check import DEVICES
from tests.oracle import random_rows
from tests.structures.strategies import region_graphs

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
on_devices = pytest.mark.parametrize("device", DEVICES)

INF, NAN = math.inf, math.nan
FAMILIES = [
    einet.Gaussian(), einet.Bernoulli(), einet.Categorical(3), einet.Binomial(3), einet.Gamma(),
    einet.Categorical(3),
]  # fmt: skip
GRAPHS = {
    "trees": lambda: einet.random_trees(6, depth=2, replicas=2, seed=0),
    # Its regions have many parents, and many partitions.
    "grid": lambda: einet.poon_domingos((2, 3), delta=1),
}
on_graphs = pytest.mark.parametrize("graph", GRAPHS)


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
        # Not so many distinct rows that a leaf would be left with a variance of 0.
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
            found = self.model.log_likelihood(self.on(x), **labels).double().cpu()
        exact = self.exact.log_likelihood(x, **labels).detach()
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
            _near(mine.double().cpu() / (2 if twice else 1), other)

    def step(self, x: Tensor, step_size: float | Tensor = 0.4, **rows: Any) -> None:
        with engine(self.device):
            found = self.model.em_step(self.on(x), step_size=step_size, **rows)
        exact = self.exact.em_step(x, step_size=float(step_size), **rows)
        _near(found.double().cpu(), exact)
        self.parameters()

    def parameters(self, rtol: float = 2e-4) -> None:
        pairs = zip(self.model.named_parameters(), self.exact.parameters(), strict=True)
        for (name, mine), other in pairs:
            _near(mine.detach().double().cpu(), other.detach(), rtol, name)

    def gradients(self, x: Tensor) -> None:
        weights = torch.linspace(0.5, 2.0, len(x))
        with engine(self.device):
            log_prob = self.model.log_prob(self.on(x))
            (log_prob * self.on(weights)).sum().backward()
        (self.exact.log_prob(x) * weights).sum().backward()
        pairs = zip(self.model.named_parameters(), self.exact.parameters(), strict=True)
        for (name, mine), other in pairs:
            assert mine.grad is not None
            assert other.grad is not None
            _near(mine.grad.double().cpu(), other.grad, 1e-3, name)
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
            _near(one.double().cpu(), two, 1e-3)


def _near(found: Tensor, exact: Tensor, rtol: float = 2e-4, name: str = "") -> None:
    """Within an error relative to each number, or a smaller one to the largest of them."""
    finite = exact[exact.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    torch.testing.assert_close(
        found, exact, rtol=rtol, atol=0.02 * rtol * largest + 1e-6, equal_nan=True,
        msg=lambda message: f"{name}: {message}",
    )  # fmt: skip


# -- structures ------------------------------------------------------------------------------------


@on_devices
@on_graphs
def test_structures(graph: str, device: str) -> None:
    twins = Twins(GRAPHS[graph](), FAMILIES, 4, device, num_leaves=3, num_classes=2)
    x = twins.rows(7)
    labels = torch.tensor([0, 1, -1, 1, 0, -1, -1])
    weights = torch.tensor([0.0, 1.0, 2.5, 0.5, 1.0, 0.0, 3.0])
    twins.densities(x, labels=labels)
    twins.statistics(x, labels=labels, weights=weights)
    twins.step(x, 1.0, labels=labels, weights=weights)
    twins.follow()
    twins.step(x, torch.tensor(0.1))


@on_devices
@on_graphs
def test_queries(graph: str, device: str) -> None:
    twins = Twins(GRAPHS[graph](), FAMILIES, 3, device, num_leaves=4, num_classes=2)
    full = random_rows(twins.exact, 5, seed=3, missing=0.0)
    twins.queries(twins.rows(5), full, labels=torch.tensor([0, 1, -1, -1, 1]))


@on_devices
@on_graphs
def test_gradients(graph: str, device: str) -> None:
    twins = Twins(GRAPHS[graph](), FAMILIES, 3, device, num_leaves=4, num_classes=2)
    twins.gradients(twins.rows(5))


@on_devices
def test_gradients_can_be_asked_for_again(device: str) -> None:
    """A backward pass writes over flows; it must leave values as they are."""
    twins = Twins(GRAPHS["grid"](), einet.Gaussian(), 3, device)
    with engine(device):
        loss = twins.model.log_prob(twins.on(twins.rows(5))).sum()
    parameters = list(twins.model.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    second = torch.autograd.grad(loss, parameters)
    assert all(a.equal(b) for a, b in zip(first, second, strict=True))


@on_devices
@settings(max_examples=6)
@given(
    graph=region_graphs(max_variables=5, max_regions=8, max_partitions=2),
    num_sums=st.sampled_from([1, 3]),
    num_leaves=st.sampled_from([1, 3]),
    num_classes=st.sampled_from([1, 2]),
    shift=st.integers(0, 5),
)
def test_random_structures(
    graph: einet.RegionGraph,
    num_sums: int,
    num_leaves: int,
    num_classes: int,
    shift: int,
    device: str,
) -> None:
    families = [FAMILIES[(i + shift) % 6] for i in range(graph.num_variables)]
    twins = Twins(graph, families, num_sums, device, num_leaves=num_leaves, num_classes=num_classes)
    x = twins.rows(4)
    twins.densities(x)
    twins.gradients(x)
    twins.step(x)


@on_devices
def test_several_steps(device: str) -> None:
    """Without a correction on the way: errors do not grow."""
    twins = Twins(GRAPHS["trees"](), einet.Gaussian(), 4, device)
    x = twins.rows(20)
    before = twins.densities(x).sum()
    for number in range(5):
        with engine(device):
            twins.model.em_step(twins.on(x), step_size=0.5 / (1 + number))
        twins.exact.em_step(x, step_size=0.5 / (1 + number))
    twins.parameters(rtol=2e-3)
    twins.follow()
    assert twins.densities(x).sum() > before
    with engine(device):
        assert abs(twins.model.log_normalizer().item()) < 1e-5


@on_devices
@pytest.mark.parametrize("K", [1, 10, 16])
def test_numbers_of_entries(K: int, device: str) -> None:
    twins = Twins(einet.random_trees(4, 2, 2, seed=1), einet.Gaussian(), K, device)
    x = twins.rows(9)
    twins.densities(x)
    twins.statistics(x, twice=True)
    twins.step(x)


@on_devices
@pytest.mark.parametrize(("sums", "leaves"), [(257, 3), (3, 257)])
def test_more_entries_than_fit_a_tile(sums: int, leaves: int, device: str) -> None:
    """They are left to torch, all but leaves on their own."""
    graph = einet.random_trees(4, 2, 1, seed=1)
    twins = Twins(graph, einet.Gaussian(), sums, device, num_leaves=leaves)
    x = twins.rows(4)
    with engine(device):
        batch = as_batch(twins.on(x.float()), 4)
        assert not twins.model.upward(batch)[0].fused
    twins.densities(x)
    twins.statistics(x)
    twins.gradients(x)
    twins.step(x)


@on_devices
def test_the_kernels_are_in_use(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), einet.Gaussian(), 3, device)
    with engine(device):
        batch = as_batch(twins.on(twins.rows(3)), 6)
        assert twins.model.upward(batch)[0].fused
        assert not twins.model.upward(batch, maximise=True)[0].fused
    with dispatch.backend("torch"):
        assert not twins.model.upward(batch)[0].fused


# -- rows ------------------------------------------------------------------------------------------


@on_devices
def test_a_batch_in_pieces(device: str, monkeypatch) -> None:
    for name in ("_CPU_PIECE_BYTES", "_GPU_PIECE_BYTES"):
        monkeypatch.setattr(f"einet.model.{name}", 1)
    twins = Twins(einet.random_trees(4, 1, 2), einet.Gaussian(), 3, device)
    x = twins.rows(70)
    assert len(twins.model.pieces(70)) == 2
    twins.densities(x)
    twins.step(x)


@on_devices
def test_log_likelihoods_in_one_launch(device: str) -> None:
    """What is replayed on a GPU."""
    twins = Twins(GRAPHS["grid"](), FAMILIES, 3, device, num_classes=3)
    x, labels = twins.rows(5), torch.tensor([0, -1, 2, -1, 1])
    batch = as_batch(twins.on(x), 6, labels=twins.on(labels), num_classes=3)
    with engine(device):
        found = twins.model.row_log_likelihood(batch)
    assert found.dtype == torch.float64
    _near(found.cpu(), twins.exact.log_likelihood(x, labels=labels).detach(), 1e-5)


@on_devices
def test_impossible_rows_add_nothing(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), FAMILIES, 3, device, num_classes=2)
    x = twins.rows(7)
    x[1, 0], x[3, 1], x[4, 2], x[6, 4] = INF, 0.5, 3.0, -1.0
    good = [0, 2, 5]
    found = twins.densities(x)
    assert (found == -INF).tolist() == [row not in good for row in range(7)]
    with engine(device):
        statistics = twins.model.e_step(twins.on(x))
        without = twins.model.e_step(twins.on(x[good]))
        assert statistics.impossible == 4
        assert statistics.log_likelihood == -INF
        for one, two in zip(statistics.tensors()[3:], without.tensors()[3:], strict=True):
            _near(one.double(), two.double(), 1e-5)
        mean = twins.model.em_step(twins.on(x), step_size=0.5)
    assert mean == -INF
    twins.exact.em_step(x[good], step_size=0.5)
    twins.parameters()


@on_devices
def test_a_batch_of_impossible_rows_changes_nothing(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), einet.Bernoulli(), 3, device, num_classes=2)
    before = [p.detach().clone() for p in twins.model.parameters()]
    with engine(device):
        twins.model.em_step(torch.full((3, 6), 0.5, device=device), step_size=1.0)
    after = list(twins.model.parameters())
    assert all(p.isfinite().all() for p in after)
    assert all(a.equal(b) for a, b in zip(before, after, strict=True))


@on_devices
def test_rows_that_count_for_nothing_add_nothing(device: str) -> None:
    """Not even where they hold infinite, impossible or missing values."""
    twins = Twins(GRAPHS["grid"](), [einet.Gaussian(), *[einet.Bernoulli()] * 5], 3, device)
    x = twins.rows(6)
    x[1, 0], x[2, 1], x[4] = INF, 0.5, NAN
    weights = torch.tensor([1.0, 0.0, 0.0, 2.0, 0.0, 1.0])
    with engine(device):
        statistics = twins.model.e_step(twins.on(x), weights=twins.on(weights))
        assert statistics.impossible == 0
        assert statistics.rows == 4
        mean = twins.model.em_step(twins.on(x), weights=twins.on(weights), step_size=0.5)
    kept = [0, 3, 5]
    exact = twins.exact.em_step(x[kept], weights=weights[kept], step_size=0.5)
    _near(mean.double().cpu(), exact)
    twins.parameters()


@on_devices
def test_classes_without_rows_keep_their_weights(device: str) -> None:
    twins = Twins(GRAPHS["trees"](), einet.Gaussian(), 3, device, num_classes=2)
    x = twins.rows(5)
    before = copy.deepcopy(twins.model)
    twins.step(x, 0.5, labels=torch.zeros(5, dtype=torch.long))
    layers = zip(twins.model.circuit.sum_layers, before.circuit.sum_layers, strict=True)
    tops = [(layer, old) for layer, old in layers if layer.target == "top"]
    assert tops
    for layer, old in tops:
        assert layer.weight[:, 1].equal(old.weight[:, 1])
        assert not layer.weight[:, 0].equal(old.weight[:, 0])


@on_devices
def test_far_away(device: str) -> None:
    """Log-densities of −1e12, and finite parameters after learning from them."""
    twins = Twins(GRAPHS["grid"](), einet.Gaussian(), 3, device)
    x = twins.rows(6)
    x[1, 3], x[3, :4], x[4, 5] = 1e6, -1e6, 1e4
    found = twins.densities(x)
    assert found[1] < -1e10
    with engine(device):
        statistics = twins.model.e_step(twins.on(x))
        assert all(t.isfinite().all() for t in statistics.tensors())
        assert statistics.impossible == 0
        for _ in range(2):
            assert twins.model.em_step(twins.on(x), step_size=0.5).isfinite()
    assert all(p.isfinite().all() for p in twins.model.parameters())
    twins.follow()
    twins.densities(x)


@on_devices
def test_nothing_observed(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), FAMILIES, 3, device, num_classes=2)
    x = torch.full((3, 6), NAN, dtype=torch.float64)
    leaves = [block.stored.detach().clone() for block in twins.model.leaf.leaf_blocks]
    twins.step(x)
    for block, old in zip(twins.model.leaf.leaf_blocks, leaves, strict=True):
        assert block.stored.equal(old)
    assert twins.densities(x).abs().max() < 1e-5


@on_devices
def test_a_mask(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), einet.Categorical(3), 3, device)
    x = random_rows(twins.exact, 5, missing=0.0).long()
    observed = torch.arange(30).view(5, 6) % 3 > 0
    exact = twins.exact.log_prob(x, observed)
    with engine(device), torch.no_grad():
        found = twins.model.log_prob(twins.on(x), twins.on(observed))
        # What lies under a mask is never looked at.
        x[~observed] = 99
        assert twins.model.log_prob(twins.on(x), twins.on(observed)).equal(found)
    _near(found.double().cpu(), exact.detach(), 1e-5)


@on_devices
def test_one_row_at_a_time_is_all_at_once(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), einet.Gaussian(), 3, device)
    x = twins.on(twins.rows(3))
    with engine(device), torch.no_grad():
        alone = torch.cat([twins.model.log_prob(row[None]) for row in x])
        torch.testing.assert_close(alone, twins.model.log_prob(x), rtol=1e-6, atol=1e-5)


@on_devices
def test_samples(device: str) -> None:
    twins = Twins(GRAPHS["grid"](), FAMILIES, 3, device, num_classes=2)
    x = twins.rows(4)
    with engine(device), torch.no_grad():
        drawn = twins.model.given(twins.on(x)).sample(3, seed=0)
        assert twins.model.log_prob(drawn[0]).isfinite().all()
        assert twins.model.log_prob(twins.model.sample(4, seed=0)).isfinite().all()
        assert twins.model.given(twins.on(x)).mode().isfinite().all()
    known = ~x.isnan()
    torch.testing.assert_close(drawn[0].cpu()[known].double(), x[known], rtol=1e-6, atol=0)
