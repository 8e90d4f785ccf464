"""Rows in the type they came in, and as a model sees them."""

import numpy as np
import pytest
import torch

from einet.data import source as module
from einet.data.batch import Batch
from einet.data.source import Source

CPU = torch.device("cpu")
NAN = float("nan")


def rows(count: int = 20, variables: int = 3) -> torch.Tensor:
    return torch.randn(count, variables, generator=torch.Generator().manual_seed(0))


def test_parts_hold_every_row_once(monkeypatch):
    monkeypatch.setattr(module, "_CPU_PART_BYTES", 100)
    x = rows()
    source = Source(x, None, 3, CPU)
    parts = list(source.parts())
    assert [len(part) for part in parts] == [8, 8, 4]
    assert torch.cat([part.x for part in parts]).equal(x)
    assert all(part.observed is None for part in parts)
    order = torch.tensor([19, 0, 7])
    assert torch.cat([part.x for part in source.parts(order)]).equal(x[order])


def test_means_leave_out_what_is_missing():
    x = rows().double()
    x[::3, 0], x[:, 2] = NAN, NAN
    source = Source(x, None, 3, CPU)
    torch.testing.assert_close(source.mean, x.nanmean(0).nan_to_num(0.0))
    (centred,) = source.centred()
    torch.testing.assert_close(centred, (x - source.mean).nan_to_num(0.0).float())
    (part,) = source.parts()
    assert part.observed is not None
    assert part.observed.equal(~x.isnan())


def test_bytes_with_a_mask_and_a_transform():
    x = torch.arange(12, dtype=torch.uint8).view(4, 3)
    seen = x % 5 > 0
    source = Source(x.numpy(), seen, 3, CPU, lambda x: x / 10)
    assert source.whole.x.dtype == torch.uint8
    (part,) = source.parts()
    assert part.observed is not None
    assert part.observed.equal(seen)
    torch.testing.assert_close(part.x, x / 10)
    # What a transform makes NaN is missing too.
    source = Source(x, None, 3, CPU, lambda x: torch.where(x == 4, NAN, x.float()))
    (part,) = source.parts()
    assert part.observed is not None
    assert part.observed.equal(x != 4)


def test_far_from_the_origin():
    x = 1e6 + rows().double()
    (centred,) = Source(x, None, 3, CPU).centred()
    torch.testing.assert_close(centred, (x - x.mean(0)).float())


def test_checksums_tell_rows_apart():
    x = rows()
    other = x.clone()
    other[3, 1] += 0.5
    swapped = x[[1, 0, *range(2, 20)]]
    sums = [Source(y, None, 3, CPU).checksum for y in (x, other, swapped, x[:, [1, 0, 2]])]
    assert len({tuple(each) for each in sums}) == 4
    assert Source(x.clone(), None, 3, CPU).checksum == sums[0]


def test_every_part_is_checked(monkeypatch):
    monkeypatch.setattr(module, "_CPU_PART_BYTES", 100)
    names = []
    Source(rows(), None, 3, CPU, None, lambda part, name: names.append((name, len(part))))
    assert names == [("train", 8), ("train[8:]", 8), ("train[16:]", 4)]


def test_bad_rows():
    with pytest.raises(ValueError, match=r"valid must have shape \[rows, 3\]"):
        Source(np.zeros((4, 2)), None, 3, CPU, name="valid")
    with pytest.raises(ValueError, match="train must have at least one row"):
        Source(np.zeros((0, 3)), None, 3, CPU)
    with pytest.raises(TypeError, match="transform"):
        Source(rows(), None, 3, CPU, 255)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"transform must keep the shape .*\[20, 3\], got \[20\]"):
        Source(rows(), None, 3, CPU, lambda x: x.sum(1))
    with pytest.raises(ValueError, match="got list"):
        Source(rows(), None, 3, CPU, lambda x: x.tolist())  # type: ignore[arg-type]


def test_weights_stay_with_their_rows():
    source = Source(rows(), None, 3, CPU, lambda x: 2 * x)
    given = Batch(rows(4), weights=torch.ones(4))
    assert source.seen(given).weights is given.weights
