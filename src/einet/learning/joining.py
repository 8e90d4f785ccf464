"""What training does once for all processes: checks, first leaves, callbacks, the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import Any

import torch

from einet._version import __version__
from einet.data.batch import Batch
from einet.data.streams import RowStream
from einet.distributed.team import Team
from einet.engine.initialize_clusters import initialize_from_clusters
from einet.learning.learner import Learner
from einet.learning.snapshot import numbers_by_name
from einet.models.base import Model

__all__ = ["check_joins", "check_joint", "initialize_first", "joint_report", "keep_equal"]


def check_joins(learner: Learner, team: Team) -> None:
    """Raise where a learner would learn from the rows of one process alone."""
    if not team.alone and not learner.joins:
        raise ValueError(
            f"optimizer {type(learner).__name__} does not say how it learns in several processes "
            "(joins is False); give distributed=False, or one of einet's own learners"
        )


def check_joint(
    team: Team,
    model: Model,
    structure: str,
    rows: RowStream,
    valid: RowStream | None,
    learner: Learner,
    settings: dict[str, Any],
) -> None:
    """Raise, in all processes, unless they are about to do the same; the error names what is not.

    Args:
        team: The processes.
        model: The model.
        structure: What tells its structure from others.
        rows, valid: Training and validation rows. Those in memory must be the same everywhere.
        learner: How it learns.
        settings: Further arguments, by name.
    """
    if team.alone:
        return
    team.check_same(
        {
            "the release of einet": __version__,
            "the structure of the model": structure,
            "the model's columns": model.columns,
            "the kind of device": rows.device.type,
            "the variables of train": rows.num_variables,
            "the columns of train": rows.columns if isinstance(rows, Sized) else None,
            "train": _digest(rows),
            "valid": None if valid is None else _digest(valid),
            "optimizer": learner.settings(),
            **settings,
        }
    )


def _digest(rows: RowStream) -> Any:
    """What must be the same of some rows; those of a stream are each process's own."""
    return (len(rows), rows.checksum()) if isinstance(rows, Sized) else "a stream"


def initialize_first(
    model: Model,
    some: Callable[[], Batch],
    seed: int,
    team: Team,
    asked: bool,
    clusters: bool = False,
) -> None:
    """Set the leaves from rows of the first process that has some; all processes begin alike.

    Args:
        model: The model.
        some: Makes rows for it.
        seed: Seed of what is random.
        team: The processes.
        asked: Whether to set the leaves at all; else the first process's model is taken.
        clusters: Whether to begin with clusters of rows.
    """
    begin = _begin_with_clusters if clusters else _begin
    if team.alone:
        if asked:
            begin(model, some(), seed)
        return
    owner = 0
    asked = team.any(asked)
    if asked:
        batch = some()
        counts = team.from_each(len(batch))
        if not any(counts):
            raise ValueError("train must have at least one row, got none in any process")
        owner = next(rank for rank, count in enumerate(counts) if count)
        if team.rank == owner:
            begin(model, batch, seed)
        for _, einet in model.weighted_einets():
            einet.initialized = True
    team.copy_from_(list(numbers_by_name(model).values()), owner)


def _begin(model: Model, rows: Batch, seed: int) -> None:
    model.initialize(rows, seed=seed)


def _begin_with_clusters(model: Model, rows: Batch, seed: int) -> None:
    """Let leaves and sums begin with clusters, every component of a mixture with its own.

    Sums move from the weights they have: models that were made with different seeds stay different.
    """
    rows = model.as_batch(rows, name="train", allow_empty=False, device=None)
    model.check_support(rows, "train")
    for number, (_, einet) in enumerate(model.weighted_einets()):
        generator = torch.Generator().manual_seed((seed + number) % (1 << 63))
        initialize_from_clusters(einet, rows, generator, draw_weights=False)
        einet.initialized = True


def joint_report(team: Team, report: Callable[[Any], None], calls: Sequence[Any]) -> Any:
    """Callbacks of the first process alone; where one says stop, all processes do."""
    if team.alone:
        return report

    def joint(loop: Any) -> None:
        if not calls:
            return
        if team.first:
            report(loop)
        if team.any(loop.stopped_by_callback) and not loop.stopped_by_callback:
            loop.stop()

    return joint


@torch.no_grad()
def keep_equal(model: Model, team: Team) -> None:
    """Take the first process's parameters where those of others have come to differ.

    All make the same update from the same sums; but machines that round differently may drift
    apart, bit by bit.
    """
    if team.alone or team.size == 1:
        return
    sums = [parameter.detach().double().sum().cpu() for parameter in model.parameters()]
    digest = torch.stack(sums).numpy().tobytes()
    if len(set(team.from_each(digest))) > 1:
        team.copy_from_([parameter.data for parameter in model.parameters()])
