"""Sums over processes, begun while others are still being computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from einet.distributed.team import Team

__all__ = ["Reduction"]

# Small tensors travel together until they make up so many bytes: each journey costs as much as
# about this many, with gloo on one machine and with NCCL between several.
_BUCKET = 1 << 20


@dataclass
class _Bucket:
    """Tensors of one type that travel together."""

    tensors: list[Tensor] = field(default_factory=list)
    #: How many of them are not complete yet.
    left: int = 0
    flat: Tensor | None = None
    work: Any = None

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


class Reduction:
    """Replaces tensors by their sums over all processes, bucket by bucket.

    Buckets set out in one order on all processes, whatever becomes complete first on each of them.

    Args:
        team: The processes.
        tensors: What is summed, in the order in which it will be complete. All processes have
            tensors of the same shapes.

    Example:
        >>> from einet.distributed.team import ALONE
        >>> reduction = Reduction(ALONE, [torch.ones(2)])
        >>> reduction.ready(0)
        >>> reduction.finish()
    """

    def __init__(self, team: Team, tensors: Sequence[Tensor]) -> None:
        self._team, self._sent = team, 0
        self._buckets: list[_Bucket] = []
        self._bucket_of: list[int] = []
        self._complete = [False] * len(tensors)
        #: How much there is to send.
        self.nbytes = sum(tensor.nbytes for tensor in tensors)
        for tensor in tensors if not team.alone else ():
            last = self._buckets[-1] if self._buckets else None
            if last is None or last.nbytes >= _BUCKET or last.tensors[0].dtype != tensor.dtype:
                last = _Bucket()
                self._buckets.append(last)
            last.tensors.append(tensor)
            last.left += 1
            self._bucket_of.append(len(self._buckets) - 1)

    def ready(self, *numbers: int) -> None:
        """These tensors are complete: nothing will be added to them any more."""
        if self._team.alone:
            return
        for number in numbers:
            if not self._complete[number]:
                self._complete[number] = True
                self._buckets[self._bucket_of[number]].left -= 1
        while self._sent < len(self._buckets) and not self._buckets[self._sent].left:
            self._send(self._buckets[self._sent])
            self._sent += 1

    def _send(self, bucket: _Bucket) -> None:
        one = bucket.tensors[0]
        if len(bucket.tensors) == 1 and one.is_contiguous():
            bucket.flat = one
        else:
            bucket.flat = torch.cat([tensor.reshape(-1) for tensor in bucket.tensors])
        bucket.work = self._team.begin_sum_(bucket.flat)

    def finish(self) -> None:
        """Take all as complete, and wait for the sums."""
        if self._team.alone:
            return
        self.ready(*range(len(self._complete)))
        for bucket in self._buckets:
            self._team.wait(bucket.work)
            assert bucket.flat is not None
            if bucket.flat is not bucket.tensors[0]:
                parts = bucket.flat.split([tensor.numel() for tensor in bucket.tensors])
                for tensor, part in zip(bucket.tensors, parts, strict=True):
                    tensor.copy_(part.view(tensor.shape))
        self._buckets.clear()
