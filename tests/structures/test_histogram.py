"""Histograms of both ways against numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.structures.histogram import _scattered, histogram


@given(st.integers(0, 20), st.integers(0, 3), st.integers(1, 9), st.integers(0, 2**31))
def test_both_ways_agree_with_numpy(rows: int, columns: int, count: int, seed: int):
    generator = np.random.default_rng(seed)
    numbers = generator.integers(0, count, (rows, columns))
    weights = generator.random((rows, columns)) * generator.choice([1e-9, 1.0, 1e12])
    tensor = torch.as_tensor(numbers, dtype=torch.int32)
    flat = tensor.flatten().long()
    expected = np.bincount(numbers.ravel(), minlength=count)
    assert histogram(tensor, count).tolist() == expected.tolist()
    assert _scattered(flat, count, None).tolist() == expected.tolist()
    expected = np.bincount(numbers.ravel(), weights.ravel(), minlength=count)
    for found in (
        histogram(tensor, count, torch.as_tensor(weights)),
        _scattered(flat, count, torch.as_tensor(weights)),
    ):
        assert found.dtype == torch.float64
        bound = 1e-14 * max(float(weights.sum()), 1e-300)
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=bound)


@pytest.mark.gpu
def test_a_gpu_adds_in_no_order_but_the_same():
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(7, (50_000, 8), generator=generator, dtype=torch.int32).cuda()
    weights = torch.rand(50_000, 8, generator=generator, dtype=torch.float64).cuda()
    first, second = (histogram(numbers, 7, weights) for _ in range(2))
    assert torch.equal(first, second)
    torch.testing.assert_close(first.cpu(), histogram(numbers.cpu(), 7, weights.cpu()))
