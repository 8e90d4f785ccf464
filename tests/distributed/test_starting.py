"""Joining processes, and what is refused."""

from __future__ import annotations

import pytest
import torch

import einet
from tests.distributed import cases


def test_without_others_nothing_changes() -> None:
    with einet.distributed.start() as device:
        assert not torch.distributed.is_initialized()
        assert device.type == ("cuda" if torch.cuda.is_available() else "cpu")
        assert einet.distributed.is_first()
        cases.fitted(cases.model(), cases.data(), epochs=1)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="backend must be"), einet.distributed.start("mpi"):
        pass
    with pytest.raises(ValueError, match="timeout"), einet.distributed.start(timeout=0):
        pass
    if not torch.cuda.is_available():
        refused = pytest.raises(ValueError, match="nccl needs a GPU for each of 1 processes")
        with refused, einet.distributed.start("nccl"):
            pass
    with pytest.raises(ValueError, match="distributed is True, but no group of processes"):
        cases.fitted(cases.model(), cases.data(), distributed=True)


def test_sums_of_one_process_are_not_taken_for_those_of_all() -> None:
    class Some(einet.distributed.Team):
        alone = False  # type: ignore[assignment]

    model = cases.model()
    earlier = model.e_step(cases.data())
    with pytest.raises(ValueError, match="into is of this process, and team asks for sums of all"):
        model.e_step(cases.data(), into=earlier, team=Some())
