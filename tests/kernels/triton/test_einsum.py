"""The einsum layer forwards: values of sums over outer products (eq. 5)."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from einet.kernels.triton import einsum
from tests.kernels.triton.inner_check import (
    ERROR,
    INF,
    EinsumCase,
    around,
    close,
    on_devices,
    on_precisions,
    on_sizes,
)

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def check(case: EinsumCase, precision: str = "highest") -> None:
    out = case.room()
    einsum.forward(case.weight, case.nodes, case.edges, out, precision)
    close(out.peak, case.peak, precision)
    close(out.v, case.v, precision)
    # A relative error of a value is an absolute one of its logarithm.
    torch.testing.assert_close(out.m, case.m, rtol=1e-14, atol=ERROR[precision])
    assert around(out.v).isnan().all()
    assert around(out.m).isnan().all()
    assert around(out.peak).isnan().all()
    possible = case.m > -INF
    close(out.v.amax(1), possible)


@on_sizes
def test_sizes(device: str, size: tuple[int, ...], unary: bool) -> None:
    check(EinsumCase(size, unary, device))


@on_precisions
@pytest.mark.parametrize("size", [(10, 10, 10, 33), (2, 16, 10, 7), (40, 3, 20, 7)], ids=str)
def test_precisions(size: tuple[int, ...], precision: str, device: str) -> None:
    check(EinsumCase(size, False, device), precision)


@on_precisions
def test_a_precision_is_as_good_as_it_says(device: str, precision: str) -> None:
    """And no better: a mode that did not round would be slow for nothing."""
    case = EinsumCase((10, 10, 10, 33), False, device)
    out = case.room()
    einsum.forward(case.weight, case.nodes, case.edges, out, precision)
    error = (out.peak.double() / case.peak - 1).abs()
    least, most = {"highest": (0.0, 1e-6), "high": (1e-5, 2**-11), "medium": (1e-4, 2**-8)}[
        precision
    ]
    assert least <= error[case.peak > 0].max().item() < most


@on_devices
@pytest.mark.parametrize("size", [(3, 4, 5, 7), (1, 4, 5, 7)], ids=["wide", "narrow"])
def test_impossible_children(size: tuple[int, ...], device: str) -> None:
    """Sample 2 has no possible node, and in sample 3 only some sums have."""
    case = EinsumCase(size, False, device)
    assert (case.m[:, 2] == -INF).all()
    assert (case.m[:, 3] == -INF).any()
    out = case.room()
    einsum.forward(case.weight, case.nodes, case.edges, out, "highest")
    impossible = case.m == -INF
    assert (out.m[impossible] == -INF).all()
    assert (out.peak[impossible] == 0).all()
    assert (out.v.transpose(1, 2)[impossible] == 0).all()


@on_devices
def test_values_that_all_but_vanish(device: str) -> None:
    """Sums of 1e-36, close to the least number that float32 has: scaled up to 1 again."""
    case = EinsumCase((3, 3, 3, 7), False, device)
    case.nodes.v[:, :3] = 1e-18
    out = case.room()
    einsum.forward(case.weight, case.nodes, case.edges, out, "highest")
    close(out.peak, torch.full_like(case.peak, 1e-36), atol=0.0)
    close(out.v, torch.ones_like(out.v))


@on_devices
def test_the_same_twice(device: str) -> None:
    case = EinsumCase((10, 10, 10, 33), False, device)
    first, second = case.room(), case.room()
    for out in (first, second):
        einsum.forward(case.weight, case.nodes, case.edges, out, "highest")
    assert first.v.equal(second.v)
    assert first.m.equal(second.m)
