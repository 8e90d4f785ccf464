"""Rows in the type they came in, and as a model sees them."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from einet.data.batch import Batch, as_batch
from einet.data.streams import Rows, even_parts
from tests.budgets import limit

CPU = torch.device("cpu")
NAN = float("nan")


def rows_of(x, observed=None, transform=None, check=None, name="train") -> Rows:
    batch = as_batch(x, 3, observed, name=name, allow_empty=False, scan=False)
    return Rows(batch, CPU, transform, check, name)


def rows(count: int = 20, variables: int = 3) -> torch.Tensor:
    return torch.randn(count, variables, generator=torch.Generator().manual_seed(0))


def test_parts_hold_every_row_once(monkeypatch):
    limit(monkeypatch, "rows", 100)
    x = rows()
    source = rows_of(x)
    parts = list(source.parts())
    assert [len(part) for part in parts] == [8, 8, 4]
    assert torch.cat([part.x for part in parts]).equal(x)
    assert all(part.observed is None for part in parts)
    order = torch.tensor([19, 0, 7])
    assert torch.cat([part.x for part in source.parts(order)]).equal(x[order])


def test_means_leave_out_what_is_missing():
    x = rows().double()
    x[::3, 0], x[:, 2] = NAN, NAN
    source = rows_of(x)
    torch.testing.assert_close(source.mean, x.nanmean(0).nan_to_num(0.0))
    (centred,) = source.centred()
    torch.testing.assert_close(centred, (x - source.mean).nan_to_num(0.0).float())
    (part,) = source.parts()
    assert part.observed is not None
    assert part.observed.equal(~x.isnan())


def test_bytes_with_a_mask_and_a_transform():
    x = torch.arange(12, dtype=torch.uint8).view(4, 3)
    known = x % 5 > 0
    source = rows_of(x.numpy(), known, lambda x: x / 10)
    assert source.given.x.dtype == torch.uint8
    (part,) = source.parts()
    assert part.observed is not None
    assert part.observed.equal(known)
    torch.testing.assert_close(part.x, x / 10)
    # What a transform makes NaN is missing too.
    source = rows_of(x, None, lambda x: torch.where(x == 4, NAN, x.float()))
    (part,) = source.parts()
    assert part.observed is not None
    assert part.observed.equal(x != 4)


def test_far_from_the_origin():
    x = 1e6 + rows().double()
    (centred,) = rows_of(x).centred()
    torch.testing.assert_close(centred, (x - x.mean(0)).float())


def test_checksums_tell_rows_apart():
    x = rows()
    other = x.clone()
    other[3, 1] += 0.5
    swapped = x[[1, 0, *range(2, 20)]]
    far = x[[*range(10, 20), *range(10)]]
    sums = [rows_of(y).checksum() for y in (x, other, swapped, far, x[:, [1, 0, 2]])]
    sums += [rows_of(x, x > 0).checksum(), rows_of(x, None, lambda x: 2 * x).checksum()]
    assert len(set(sums)) == 7
    assert rows_of(x.clone()).checksum() == sums[0]
    weighted = [Rows(Batch(x, weights=w), CPU).checksum() for w in (x[:, 0].abs(), x[:, 1].abs())]
    assert len({*weighted, sums[0]}) == 3


def test_every_part_is_checked(monkeypatch):
    limit(monkeypatch, "rows", 100)
    names = []
    rows_of(rows(), None, None, lambda part, name: names.append((name, len(part))))
    assert names == [("train", 8), ("train[8:]", 8), ("train[16:]", 4)]


def test_bad_rows():
    with pytest.raises(ValueError, match=r"valid must have shape \[rows, 3\]"):
        rows_of(np.zeros((4, 2)), name="valid")
    with pytest.raises(ValueError, match="train must have at least one row"):
        rows_of(np.zeros((0, 3)))
    with pytest.raises(TypeError, match="transform"):
        rows_of(rows(), None, 255)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"transform must keep the shape .*\[20, 3\], got \[20\]"):
        rows_of(rows(), None, lambda x: x.sum(1))
    with pytest.raises(ValueError, match="got list"):
        rows_of(rows(), None, lambda x: x.tolist())  # type: ignore[arg-type]


def test_weights_stay_with_their_rows():
    source = Rows(Batch(rows(), weights=torch.arange(20) + 1.0), CPU, lambda x: 2 * x)
    (part,) = source.parts(torch.tensor([3, 1]))
    assert part.weights is not None
    assert part.weights.tolist() == [4.0, 2.0]
    some = source.subset(torch.tensor([5, 6]), torch.tensor([0.5, 0.25]))
    (part,) = some
    assert part.weights is not None
    assert part.weights.tolist() == [0.5, 0.25]
    torch.testing.assert_close(part.x, 2 * rows()[5:7])


def test_rows_that_do_not_count_are_left_out():
    x, names = rows(4), []

    def check(part: Batch, name: str) -> None:
        names.append(name)
        assert not part.mask[1].any()

    source = Rows(Batch(x, weights=torch.tensor([1.0, 0.0, 2.0, 1.0])), CPU, check=check)
    (part,) = source
    assert part.x.equal(x[[0, 2, 3]])
    assert names == ["train"]
    assert part.observed is None
    with pytest.raises(ValueError, match="weights must not be 0 throughout"):
        Rows(Batch(x, weights=torch.zeros(4)), CPU)


def test_a_mask_that_hides_nothing_is_dropped():
    """As those are that come with any data on a GPU."""
    whole = Rows(Batch(rows(), torch.ones(20, 3, dtype=torch.bool)), CPU)
    assert all(part.observed is None for part in whole)


@given(st.integers(1, 10**5), st.integers(1, 10**4))
def test_parts_are_even(count: int, most: int):
    parts = even_parts(count, most)
    sizes = [part.stop - part.start for part in parts]
    assert parts[0].start == 0
    assert parts[-1].stop == count
    assert all(one.stop == two.start for one, two in pairwise(parts))
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == -(-count // most)


def test_mini_batches_hold_every_row_once():
    source = rows_of(rows())
    batches = list(source.mini_batches(6, torch.Generator().manual_seed(1)))
    assert [len(batch) for batch in batches] == [5] * 4
    together = torch.cat([batch.x for batch in batches])
    assert not together.equal(rows())
    assert together[together[:, 0].argsort()].equal(rows()[rows()[:, 0].argsort()])
    in_order = torch.cat([batch.x for batch in source.mini_batches(6, None)])
    assert in_order.equal(rows())


def test_some_rows():
    source = rows_of(rows(), transform=lambda x: 2 * x)
    some = source.some(7, torch.Generator().manual_seed(0)).x
    assert len(some) == 7
    assert all((2 * rows() == row).all(1).any() for row in some)
    assert source.some(50, torch.Generator()).x.equal(2 * rows())
