"""Whatever is given becomes a tensor, a mask and names."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from einet.data.arrays import as_given

NAN = math.nan


def masked_tensor(values, mask):
    with warnings.catch_warnings():
        # Those of torch are a prototype, and say so.
        warnings.simplefilter("ignore")
        return torch.masked.masked_tensor(values, mask)


def test_masked_tensors():
    mask = torch.tensor([[True, False], [True, True]])
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    given = as_given(masked_tensor(values, mask), "x")
    assert type(given.values) is torch.Tensor
    assert given.known is None
    torch.testing.assert_close(given.values, torch.tensor([[1.0, NAN], [3.0, 4.0]]), equal_nan=True)
    whole = as_given(masked_tensor(values.long(), mask), "x")
    assert whole.values.tolist() == [[1, 0], [3, 4]]
    assert whole.known is not None
    assert whole.known.tolist() == mask.tolist()
    complete = as_given(masked_tensor(values, torch.ones_like(mask)), "x")
    assert complete.known is None
    assert complete.values.equal(values)


def test_lists_of_rows_that_have_masks_or_graphs():
    rows = [np.ma.array([1, 9], mask=[False, True]), np.ma.array([3, 4])]
    given = as_given(rows, "x")
    assert given.values.tolist() == [[1, 0], [3, 4]]
    assert given.known is not None
    assert given.known.tolist() == [[True, False], [True, True]]
    row = torch.ones(2, requires_grad=True)
    assert as_given([row, row], "x").values.tolist() == [[1, 1], [1, 1]]
    assert not as_given((row, row), "x").values.requires_grad
    with pytest.raises(TypeError, match="x must be an array of numbers"):
        as_given([row, torch.ones(3)], "x")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_the_narrowest_floats_are_widened(dtype):
    given = as_given(torch.tensor([[0.5, NAN]]).to(dtype), "x")
    assert given.values.dtype == torch.float32
    assert given.values[0, 0] == 0.5
    assert given.values.isnan().tolist() == [[False, True]]


def test_unsigned_tensors():
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        assert as_given(torch.tensor([7], dtype=dtype), "x").values.equal(torch.tensor([7]))
    large = torch.tensor([3, 2**64 - 1, 2**63 + 1], dtype=torch.uint64)
    with pytest.raises(ValueError, match="x must hold whole numbers.*got 18446744073709551615"):
        as_given(large, "x")
    largest = torch.tensor([2**63 - 1], dtype=torch.uint64)
    assert as_given(largest, "x").values.tolist() == [2**63 - 1]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.eye(2).to_sparse(), r"a sparse one \(torch.sparse_coo\); x.to_dense"),
        (torch.eye(2, dtype=torch.cfloat), "hold real numbers, got torch.complex64"),
        (torch.empty(2, 2, device="meta"), "one without values"),
    ],
)
def test_tensors_that_hold_no_plain_numbers(tensor, message):
    with pytest.raises(TypeError, match=f"^x must .*{message}"):
        as_given(tensor, "x")


def test_nested_tensors_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ragged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    with pytest.raises(TypeError, match="x must be a plain tensor of numbers, got a nested one"):
        as_given(ragged, "x")


def test_graphs_are_kept_where_they_are_wanted():
    x = torch.ones(2, 2, requires_grad=True)
    assert as_given(x, "x", differentiable=True).values is x
    assert not as_given(x, "x").values.requires_grad


def test_what_is_lent():
    memory = np.ones((2, 2))
    assert as_given(memory, "x").lent
    assert as_given(torch.ones(2), "x").lent
    assert (
        as_given(pd.Series(memory[0]), "x").lent
        or not pd.Series(memory[0]).to_numpy().flags.writeable
    )
    for fresh in (
        [1.0],
        memory.astype(np.uint32),
        memory.astype(object),
        np.broadcast_to(memory, (3, 2, 2)),
    ):
        assert not as_given(fresh, "x").lent
    hidden = np.ma.array(memory, mask=np.eye(2))
    given = as_given(hidden, "x")
    assert not given.lent
    memory[:] = 5
    assert given.values[0, 1] == 1


def test_large_integers_are_rounded_by_the_leaves_and_not_before():
    given = as_given(np.array([[2**53 + 1]]), "x")
    assert given.values.item() == 2**53 + 1
