"""Buckets set out in one order, whatever is complete first."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from einet.distributed import reduction as reductions
from einet.distributed.reduction import Reduction
from einet.distributed.team import Team


class Doubling(Team):
    """Two processes that have the same: a sum doubles what there is, once it is waited for."""

    alone = False  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Tensor] = []

    def begin_sum_(self, tensor: Tensor) -> Any:
        self.sent.append(tensor)
        return tensor

    def wait(self, work: Any) -> None:
        work *= 2


@given(st.data())
def test_every_tensor_is_summed_once(data: st.DataObject) -> None:
    kinds = st.sampled_from([torch.float32, torch.float64])
    sizes = data.draw(st.lists(st.tuples(st.integers(0, 9), kinds), min_size=1, max_size=12))
    tensors = [torch.arange(size, dtype=kind) + 1 for size, kind in sizes]
    before = [tensor.clone() for tensor in tensors]
    order = data.draw(st.permutations(range(len(tensors))))
    told = data.draw(st.integers(0, len(tensors)))
    most, reductions._BUCKET = reductions._BUCKET, data.draw(st.sampled_from([1, 40, 10**6]))
    try:
        team = Doubling()
        reduction = Reduction(team, tensors)
        for number in order[:told]:
            reduction.ready(number)
        early = len(team.sent)
        reduction.finish()
    finally:
        reductions._BUCKET = most
    for tensor, one in zip(tensors, before, strict=True):
        assert torch.equal(tensor, 2 * one)
    # In the order they were given in, however they became complete.
    flat = [tensor.double() / 2 for tensor in team.sent]
    assert torch.equal(torch.cat(flat), torch.cat([one.double() for one in before]))
    if told == len(tensors):
        assert early == len(team.sent)


def test_nothing_is_sent_before_what_comes_first() -> None:
    team = Doubling()
    reduction = Reduction(team, [torch.ones(1), torch.ones(1, dtype=torch.float64)])
    reduction.ready(1)
    assert not team.sent
    reduction.ready(0)
    assert len(team.sent) == 2
    reduction.finish()
