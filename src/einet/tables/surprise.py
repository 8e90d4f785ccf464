"""How surprising each cell of a table is, given all others of its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from einet.tables.frames import as_rows
from einet.tables.model import TableModel

__all__ = ["cell_surprise"]


def cell_surprise(model: TableModel, frame: Any) -> dict[str, np.ndarray]:
    r"""The surprise of every cell, in nats, for each column that the model knows:

    .. math:: -\log p(x_j \mid x_{-j}) = \log p(x_{-j}) - \log p(x)

    It counts what a cell adds to that of its row: the most surprising cells are what makes a row an
    outlier. Numbers count with their densities, so that it may be negative. It is NaN where a cell
    is missing, and infinite where the model holds it for impossible.

    All cells of all rows are answered by one pass up and one down the model
    (:meth:`einet.Einet.surprise`). Only numbers beside spikes take two more for each column that
    has them, as such a cell is two variables.

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
    data, table = as_rows(frame)[0], model.table
    z = torch.from_numpy(table.encode(data))
    cells = model.model.surprise(z).double().cpu().numpy()
    missing = z.isnan().numpy()
    surprise, known = {}, table.cells(data)
    for name in table.modelled:
        variables = list(table.variables(name))
        # The first of them says whether there is a number: it is known where the cell is.
        news = cells[:, variables[0]].copy()
        both = np.flatnonzero(~missing[:, variables].any(1))
        if len(variables) > 1 and len(both):
            news[both] = _without(model, z[both], variables)
        # Where the others are impossible already, this cell is no news.
        news = np.where(np.isnan(news), 0.0, news)
        if name in known:
            news = news - table.coding(name).log_slope(known[name])
        surprise[str(name)] = np.where(missing[:, variables].all(1), np.nan, news)
    return surprise


def _without(model: TableModel, z: Tensor, variables: list[int]) -> Float[np.ndarray, " rows"]:
    """log p(x_{-j}) − log p(x) of rows without all variables of a column, NaN where both are −∞."""
    rest = z.clone()
    rest[:, variables] = torch.nan
    whole, without = (model.model.log_prob(rows).double().cpu().numpy() for rows in (z, rest))
    return np.where(np.isneginf(without), np.nan, without - whole)
