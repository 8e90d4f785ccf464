"""Every family, and random shapes, through the fused leaves."""

from __future__ import annotations

import pytest
import torch

import einet
from tests.kernels.triton.leaf_check import DEVICES, NAN, Both, graph_of, interpreted, normal_rows

pytest.importorskip("scipy")
pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families.cases import CASES, Case

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
on_devices = pytest.mark.parametrize("device", DEVICES)


@on_devices
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_family(case: Case, device: str) -> None:
    columns = [
        case.draw(reference, 9, seed) for seed, reference in enumerate((case.references * 3)[:3])
    ]
    x = torch.stack(columns, 1).float()
    if case.chart == "logit":
        x = x.clamp(1e-6, 1 - 1e-6)
    both = Both(graph_of(2, 1), case.family, len(case.stored), device)
    for model in (both.fused, both.exact):
        for block in model.leaf.leaf_blocks:
            block.stored.data.copy_(case.parameters.float().unsqueeze(1).expand_as(block.stored))
    x[0, 1], x[3] = NAN, NAN
    for row, value in enumerate(case.outside[:2]):
        x[4 + row, row] = value
    both.values(x)
    flow = both.flow()
    both.statistics(flow)
    both.step(flow, 0.5, rtol=2e-4)


@on_devices
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_families_that_differ_by_variable(case: Case, device: str) -> None:
    x = torch.ones(5, 3)
    if case.chart == "logit":
        x *= 0.4
    x[1, 0], x[2] = NAN, NAN
    Both(graph_of(2, 1), case.several, 3, device).all(x)


@interpreted
@settings(max_examples=8)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    K=st.integers(1, 20),
    batch=st.integers(1, 40),
    missing=st.sampled_from([0.0, 0.3, 1.0]),
    kind=st.sampled_from(["gaussian", "table", "product", "binary", "several"]),
    step_size=st.sampled_from([0.05, 0.5, 1.0]),
)
def test_random_shapes(
    sizes: list[int], K: int, batch: int, missing: float, kind: str, step_size: float
) -> None:
    num = sum(sizes)
    x = normal_rows(batch, num, seed=K, missing=missing)
    whole = (x * 2).round().clamp(0, 2)
    family: einet.ExponentialFamily | list[einet.ExponentialFamily] = einet.Gaussian()
    if kind in ("table", "product"):
        x, family = whole, einet.Categorical(3) if kind == "table" else einet.Binomial(2)
    elif kind == "binary":
        x, family = whole.clamp(max=1), einet.Bernoulli()
    elif kind == "several":
        kinds = (einet.Gaussian(), einet.Categorical(3), einet.Bernoulli())
        family = [kinds[i % 3] for i in range(num)]
        order = torch.arange(num) % 3
        x = torch.where(order == 1, whole, torch.where(order == 2, whole.clamp(max=1), x))
    data = normal_rows(9, num).nan_to_num(0.0).abs().round().clamp(max=1)
    Both(graph_of(*sizes), family, K, data=data).all(x, step_size=step_size)
