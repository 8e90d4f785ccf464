"""The E-step of an Einet, piece by piece, and its sum over processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from einet.data.batch import Batch
from einet.distributed.reduction import Reduction
from einet.distributed.team import Team
from einet.engine import replay
from einet.engine.statistics import EinetStatistics

if TYPE_CHECKING:
    from einet.engine.passes import Passes

__all__ = ["e_step"]

# A recorded pass saves about a millisecond of launches; to send so many bytes takes longer.
_WORTH = 16 << 20


@torch.no_grad()
def e_step(model: Passes, batch: Batch, into: EinetStatistics, team: Team) -> None:
    """Add the expected statistics of checked rows, and replace them by those of all processes.

    Sums of a layer set out to the others as soon as the backward pass has completed them, while it
    goes on with the layers below. A process without rows takes part with zeros.

    Args:
        model: The model, the same in all processes.
        batch: The rows of this process.
        into: What to add to.
        team: The processes.
    """
    pieces, recorded = model.pieces(len(batch)), model._is_replayed(batch)
    reduction = None if team.alone else Reduction(team, into.as_completed())
    for number, rows in enumerate(pieces):
        last = number == len(pieces) - 1
        if reduction is not None and last and not (recorded and reduction.nbytes < _WORTH):
            model.expect_(batch[rows], into, reduction)
        elif recorded:
            replay.expect(model, batch[rows], into)
        else:
            model.expect_(batch[rows], into)
    if reduction is not None:
        reduction.finish()
        for leaf in into.leaves:
            leaf.empty = False
