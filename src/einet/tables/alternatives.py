"""The alternatives that evidence leaves, each with a posterior of the model's variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from einet.data.events import States
from einet.families import Gaussian
from einet.models.base import Model
from einet.tables.columns.bin_events import Spot
from einet.tables.evidence import Evidence
from einet.tables.piece import Piece
from einet.tables.schema import Table

__all__ = ["is_certain", "weighted_pieces"]


def weighted_pieces(
    model: Model, table: Table, evidence: Evidence
) -> tuple[list[Piece], Float[np.ndarray, "alternatives rows"], Int[np.ndarray, " rows"]]:
    """A posterior for each alternative, its log weight in every row, and how many points it holds.

    One value of a continuous column is nothing next to an interval or a spike: where alternatives
    differ in how many columns they hold at a value, those with more have the weight 0.

    Args:
        model, table: The model and its schema.
        evidence: What is known of each row.
    """
    known = [_settled(alternative) for alternative in evidence.alternatives]
    rows = []
    for values, _ in known:
        z = evidence.z
        if values:
            z = z.copy()
            z[:, list(values)] = list(values.values())
        rows.append(z)
    pieces = Piece.several(model, rows, [events for _, events in known])
    logs = np.stack([piece.log_evidence for piece in pieces])
    if evidence.log_changes is not None:
        logs = logs + evidence.log_changes[:, None]
    is_continuous = [isinstance(family, Gaussian) for family in table.families()]
    held = np.array(
        [
            sum(is_continuous[v] or isinstance(value, Spot) for v, value in values.items())
            for values, _ in known
        ]
    )
    possible = np.where(logs > -np.inf, held[:, None], np.iinfo(np.int64).max)
    points = np.where(np.isneginf(logs).all(0), 0, possible.min(0))
    return pieces, np.where(held[:, None] == points, logs, -np.inf), points


def is_certain(event: States) -> bool:
    """Whether an event leaves one state, and leaves all of it."""
    return event.values.numel() == 1 and float(event.weights) == 1.0


def _settled(alternative: Mapping[int, Any]) -> tuple[dict[int, float], dict[int, Any]]:
    """What an alternative says: values of variables, and events of others."""
    values = {v: event for v, event in alternative.items() if isinstance(event, float)}
    for variable, event in alternative.items():
        if isinstance(event, States) and is_certain(event):
            values[variable] = float(event.values)
    return values, {v: event for v, event in alternative.items() if v not in values}
