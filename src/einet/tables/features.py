"""Rows of a table as points whose distances mean something: what clusters are found by."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float

from einet.tables.columns import Coding, States
from einet.tables.schema import Table

__all__ = ["features_of"]


def features_of(
    table: Table, z: Float[np.ndarray, "rows variables"]
) -> Float[np.ndarray, "rows features"]:
    """Rows as numbers in which every column has a variance of 1 in all.

    Columns with an order, spikes among their numbers or not, become the normal quantiles of their
    ranks; categories without one become a feature each. What is missing is at the mean.

    Args:
        table: The schema; at least one of its columns has variables.
        z: Encoded rows.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"a": [1.0, 2.0, 2.0, 9.0], "b": ["x", "y", "z", None]})
        >>> table = Table.of(frame, columns={"a": "states"})
        >>> features_of(table, table.encode(frame)).round(1)
        array([[-1.4,  0.9, -0.5, -0.5],
               [ 0. , -0.5,  0.9, -0.5],
               [ 0. , -0.5, -0.5,  0.9],
               [ 1.4,  0. ,  0. ,  0. ]])
    """
    parts = []
    for name in table.modelled:
        where, coding = table.variables(name), table.coding(name)
        values = z[:, where.start : where.stop]
        known = ~np.isnan(values[:, 0])
        if isinstance(coding, States) and not coding.has_order:
            part = (values == np.arange(len(coding.values))).astype(np.float64)
        else:
            part = _scores(coding, values, known)
        if known.any():
            part[known] -= part[known].mean(0)
        part[~known] = 0.0
        variance = part.var(0).sum()
        parts.append(part / np.sqrt(variance) if variance > 0 else part)
    return np.concatenate(parts, 1)


def _scores(
    coding: Coding, values: Float[np.ndarray, "rows variables"], known: Bool[np.ndarray, " rows"]
) -> Float[np.ndarray, "rows 1"]:
    """The normal quantile of each cell's rank; cells of the same value share the middle one."""
    cells = coding.decode(values) if coding.is_number else values[:, 0]
    scores = np.zeros((len(values), 1))
    if known.any():
        _, which, sizes = np.unique(cells[known], return_inverse=True, return_counts=True)
        middle = (np.cumsum(sizes) - sizes / 2) / sizes.sum()
        scores[known, 0] = torch.special.ndtri(torch.from_numpy(middle)).numpy()[which]
    return scores
