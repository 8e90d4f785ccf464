"""Data and sizes that structures are asked to be made of."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import einet
from einet.data import Batch
from einet.structures.arguments import as_rows, as_variables, check_size


def test_rows_have_zero_where_they_are_missing():
    batch = as_rows([[1.0, None], [2.0, 3.0]], None, [1.0, 0.5])
    assert batch.x.tolist() == [[1, 0], [2, 3]]
    assert as_rows(Batch(torch.ones(2, 3)), None, None).x.equal(torch.ones(2, 3))
    for data in ([1.0], torch.empty(3, 0)):
        with pytest.raises(ValueError, match=r"data must have shape \[rows, variables\], got"):
            as_rows(data, None, None)
    with pytest.raises(TypeError, match="data must be an array of numbers"):
        as_rows([[1.0], [1.0, 2.0]], None, None)
    with pytest.raises(ValueError, match="weights must not be 0 throughout"):
        as_rows([[1.0]], None, [0.0])


def test_numbers_of_variables():
    assert as_variables(5) == 5
    with pytest.raises(ValueError, match="num_variables must make at most 2147483647 variables"):
        as_variables(2**31)
    with pytest.raises(ValueError, match="num_variables must be an integer >= 1"):
        as_variables(0)


def test_graphs_that_nobody_would_wait_for():
    check_size("depth", 10_000, 100_000, 1_000_000)
    for call in (
        lambda: check_size("depth and replicas", 1000, 10**400, 10**400),
        lambda: einet.random_trees(10, depth=2, replicas=10**12),
        lambda: einet.random_trees(2**31 - 1, depth=30, replicas=3),
        lambda: einet.poon_domingos((512, 512), delta=1),
        lambda: einet.poon_domingos((1 << 30,), delta=1),
        lambda: einet.poon_domingos((256, 256), delta=[128, 1]),
        lambda: einet.chow_liu([[0, 1], [1, 0]], trees=10**12),
    ):
        with pytest.raises(ValueError, match="ask for a graph over .* which is too large"):
            call()


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=2),
    st.lists(st.integers(1, 5), min_size=1, max_size=2, unique=True),
)
def test_boxes_are_counted_before_they_are_made(shape, delta):
    delta = sorted(delta, reverse=True)
    counted = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sys.modules[einet.poon_domingos.__module__],
            "check_size",
            lambda *sizes: counted.append(sizes),
        )
        graph = einet.poon_domingos(shape, delta)
    ((_, variables, regions, partitions),) = counted
    assert variables == graph.num_variables
    if len(delta) == 1:
        assert (regions, partitions) == (len(graph.scopes), len(graph.partitions))
    else:
        # Cells at the border are smaller than those that are counted, and some serve two steps.
        assert regions >= len(graph.scopes) / 2
        assert partitions >= len(graph.partitions) / 2
