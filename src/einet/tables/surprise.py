"""How surprising each cell of a table is, given all others of its row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from einet.tables.frames import as_frame
from einet.tables.model import TableModel

__all__ = ["cell_surprise"]


def cell_surprise(model: TableModel, frame: Any) -> dict[str, np.ndarray]:
    r"""The surprise of every cell, in nats, for each column that the model knows:

    .. math:: -\log p(x_j \mid x_{-j}) = \log p(x_{-j}) - \log p(x)

    It counts what a cell adds to that of its row: the most surprising cells are what makes a row an
    outlier. Numbers count with their densities, so that it may be negative. It is NaN where a cell
    is missing, and infinite where the model holds it for impossible.

    Args:
        model: The model.
        frame: Rows; see :class:`~einet.tables.Table` for columns that are absent or unknown.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"a": ["x", "y"] * 50, "b": ["x", "y"] * 50})
        >>> model = TableModel.fit(frame, epochs=20)
        >>> strange = cell_surprise(model, pandas.DataFrame({"a": ["x", "x"], "b": ["x", "y"]}))
        >>> bool(strange["b"][1] > strange["b"][0])
        True
    """
    data = as_frame(frame)[0]
    table = model.table
    z = torch.from_numpy(table.encode(data))
    whole = _log_prob(model, z)
    surprise = {}
    for name, variables in _columns(model):
        rest = z.clone()
        rest[:, variables] = torch.nan
        known = ~z[:, variables].isnan().all(1).numpy()
        change = np.zeros(len(z))
        if name in data.columns:
            change = table.log_density_change(data.select(name))
        without = _log_prob(model, rest)
        # Where the others are impossible already, this cell is no news.
        news = np.where(np.isneginf(without), 0.0, without - whole - change)
        surprise[str(name)] = np.where(known, news, np.nan)
    return surprise


def _columns(model: TableModel) -> Iterator[tuple[Any, list[int]]]:
    for name in model.table.modelled:
        yield name, list(model.table.variables(name))


def _log_prob(model: TableModel, z: torch.Tensor) -> np.ndarray:
    return model.model.log_prob(z).double().cpu().numpy()
