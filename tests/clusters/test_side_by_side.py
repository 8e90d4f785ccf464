"""Einets as one: every one of them must do what it does by itself."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import einet
from einet.clusters.side_by_side import SideBySide, stacked
from einet.data.batch import Batch, as_batch
from tests.oracle import random_rows
from tests.structures.strategies import region_graphs
from tests.twins import engine

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

GRID = einet.poon_domingos((2, 3), delta=1)
FAMILIES = [
    einet.Gaussian(), einet.Bernoulli(), einet.Categorical(3), einet.Binomial(3), einet.Gamma(),
    einet.Categorical(3),
]  # fmt: skip
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
PRIOR = einet.Prior(sums=2.0, leaves=0.5)


class Three:
    """Three Einets, one place that is not used, and rows of which the second has fewer."""

    def __init__(self, graph: einet.RegionGraph, families, missing: float = 0.2, **options) -> None:
        dtype, device = options.pop("dtype", torch.float64), options.pop("device", "cpu")
        self.models = []
        for seed in range(3):
            model = einet.Einet(graph, families, 3, seed=seed, dtype=torch.float64, **options)
            model.initialize(random_rows(model, 30, seed=seed, missing=0.1), seed=seed)
            self.models.append(model.to(device=device, dtype=dtype))
        self.many = SideBySide(self.models[0], 4)
        for number, model in enumerate(self.models):
            self.many.take(number, model)
        first = copy.deepcopy(self.models[0]).double().cpu()
        rows = [random_rows(first, 7, seed=seed, missing=missing) for seed in range(4)]
        self.x = torch.stack(rows, 1).to(device)
        self.weights = torch.ones(7, 4, dtype=torch.float64, device=device)
        self.weights[4:, 1], self.weights[:, 3] = 0.0, 0.0

    def rows(self, number: int) -> Tensor:
        return self.x[self.weights[:, number] > 0, number]

    @property
    def batch(self) -> Batch:
        batch = as_batch(self.x.flatten(0, 1), self.x.shape[2])
        return stacked(batch, self.weights)

    def step(self, step_size: float = 0.3, prior: einet.Prior | None = None) -> Tensor:
        """Of the many; then of the models."""
        each = [None] * 3
        counts = None
        if prior is not None:
            each = [prior.pseudo_counts(m, self.rows(n)) for n, m in enumerate(self.models)]
            counts = self.many.pseudo_counts(each, self.models)
        sums = self.many.step(self.batch, step_size, counts).clone()
        for number, model in enumerate(self.models):
            mean = model.em_step(self.rows(number), step_size=step_size, prior=each[number])
            near = 1e-10 if model.dtype == torch.float64 else 1e-4
            assert sums[0, number].item() / sums[1, number].item() == pytest.approx(
                mean.item(), rel=near, abs=near
            )
        assert sums[:, 3].tolist() == [0.0, 0.0]
        return sums

    def compare(self, rtol: float, atol: float) -> None:
        """The numbers of all models with those of the many."""
        for number, model in enumerate(self.models):
            given = copy.deepcopy(model)
            self.many.give(number, given)
            for mine, theirs in zip(
                given.state_dict().items(), model.state_dict().items(), strict=True
            ):
                assert mine[0] == theirs[0]
                torch.testing.assert_close(mine[1], theirs[1], rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize(("sums", "leaves"), [("einsum", 3), ("einsum", 2), ("linear", 3)])
@pytest.mark.parametrize("prior", [None, PRIOR], ids=["", "prior"])
def test_steps_are_those_of_each_alone(sums: str, leaves: int, prior: einet.Prior | None):
    three = Three(GRID, FAMILIES, sums=sums, num_leaves=leaves)
    for step_size in (0.3, 1.0):
        three.step(step_size, prior)
        three.compare(rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=12)
@given(region_graphs(), st.sampled_from(["einsum", "linear"]))
def test_any_structure(graph: einet.RegionGraph, sums: str):
    three = Three(graph, einet.Gaussian(), sums=sums)
    three.step()
    three.compare(rtol=1e-8, atol=1e-10)


def test_all_cells_known_and_all_missing():
    three = Three(GRID, einet.Bernoulli(), missing=0.0)
    three.step()
    three.compare(rtol=1e-9, atol=1e-12)
    three = Three(GRID, einet.Bernoulli(), missing=1.0)
    three.step()
    three.compare(rtol=1e-9, atol=1e-12)


def test_impossible_rows_count_for_nobody():
    three = Three(GRID, einet.Bernoulli(), missing=0.0)
    three.x[2, 1] = 7.0
    sums = three.step()
    assert sums[0, 1] == -torch.inf
    assert sums[0, 0].isfinite()
    three.compare(rtol=1e-9, atol=1e-12)


def test_numbers_come_and_go_unchanged():
    three = Three(GRID, FAMILIES)
    three.compare(rtol=0, atol=0)
    three.many.take(2, three.models[0])
    three.models[2] = three.models[0]
    three.compare(rtol=0, atol=0)


def test_precision_follows():
    models = [einet.Einet(GRID, einet.Gaussian(), 2, precision=p) for p in ("highest", "medium")]
    many = SideBySide(models[0], 2)
    assert many.circuit.precision == "highest"
    many.take(1, models[1])
    assert many.circuit.precision == "medium"


def test_made_in_inference_mode():
    three = Three(GRID, einet.Gaussian())
    with torch.inference_mode():
        many = SideBySide(three.models[0], 4)
    for number, model in enumerate(three.models):
        many.take(number, model)
    three.many = many
    three.step()
    three.compare(rtol=1e-9, atol=1e-12)


def test_classes_are_refused():
    model = einet.Einet(GRID, einet.Gaussian(), 2, num_classes=3)
    with pytest.raises(ValueError, match="one class each, got 3"):
        SideBySide(model, 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("sums", "prior", "families"),
    [("einsum", PRIOR, FAMILIES[:3]), ("linear", None, FAMILIES[3:])],
    ids=["einsum-prior", "linear"],
)
def test_on_the_fused_kernels(device: str, sums: str, prior: einet.Prior | None, families: list):
    pytest.importorskip("triton")
    # A row of three cells, halved in two ways: small, as an interpreter runs the kernels here.
    graph = einet.poon_domingos((1, 3), delta=1)
    with engine(device):
        three = Three(graph, families, sums=sums, dtype=torch.float32, device=device)
        assert three.many.is_fused
        # On a GPU the second step is recorded, and the third replayed.
        for _ in range(4 if device == "cuda" else 1):
            three.step(0.3, prior)
    three.compare(rtol=2e-3, atol=1e-4)
