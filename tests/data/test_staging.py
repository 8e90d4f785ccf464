"""Rows on their way to a device."""

from itertools import chain

import pytest
import torch

from einet.data.batch import Batch, as_batch
from einet.data.staging import Staging, pinned_copy

CPU = torch.device("cpu")


def test_parts_in_an_order():
    x = torch.arange(8.0).view(4, 2)
    staging = Staging(Batch(x, labels=torch.arange(4)), CPU)
    one, two = staging.batches([slice(0, 1), slice(1, 3)], torch.tensor([3, 0, 2]))
    assert one.x.equal(x[[3]])
    assert two.x.equal(x[[0, 2]])
    assert two.labels is not None
    assert two.labels.tolist() == [0, 2]
    assert pinned_copy(torch.arange(3), CPU).tolist() == [0, 1, 2]


@pytest.mark.gpu
@pytest.mark.parametrize("share", [1.0, 0.0], ids=["resident", "staged"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_mini_batches_on_a_gpu(share: float, shuffled: bool, monkeypatch: pytest.MonkeyPatch):
    """Right also if the GPU is kept busy, and without waiting for it."""
    monkeypatch.setattr("einet.data.staging._RESIDENT_SHARE", share)
    device = torch.device("cuda", 0)
    generator = torch.Generator().manual_seed(0)
    batch = as_batch(
        torch.randn(4000, 50, generator=generator),
        50,
        weights=torch.rand(4000, generator=generator),
    )
    order = torch.randperm(4000, generator=generator) if shuffled else None
    cuts = [slice(start, start + 300) for start in range(0, 4000, 300)]
    busy, sums = torch.randn(2000, 2000, device=device), []
    parts = Staging(batch, device).batches(cuts, order)
    # The order of the rows is moved first.
    first = next(parts)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for part in chain([first], parts):
            for _ in range(5):
                busy = busy @ busy / 100
            assert part.weights is not None
            sums.append(part.x.double().sum(1) * part.weights)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert batch.weights is not None
    expected = batch.x.double().sum(1) * batch.weights
    expected = expected if order is None else expected[order]
    torch.testing.assert_close(torch.cat(sums).cpu(), expected)
