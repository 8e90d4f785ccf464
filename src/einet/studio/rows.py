"""Rows of the table, and one row as evidence: how surprising cells are, and what is likelier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from einet._checks import as_int
from einet.studio.answers import ApiError
from einet.studio.evidence import Terms
from einet.studio.panel import Panel
from einet.studio.panels import Panels
from einet.tables import TablePosterior
from einet.tables.cells import numbers_of
from einet.tables.columns import Binned, Number, Spiked, States
from einet.tables.evidence import Evidence
from einet.tables.frames import as_rows
from einet.tables.marginal import Marginal
from einet.tables.schema import Table

__all__ = ["describe_row", "table_rows"]

# Rows that are sent at once, and draws of what is missing.
_MOST_ROWS, _DRAWS = 500, 20


def table_rows(frame: Any, table: Table, start: Any, count: Any) -> dict[str, Any]:
    """Some rows of a table as JSON has them.

    Args:
        frame: The rows.
        table: What its columns are.
        start: The first of them, counted from 0.
        count: How many.
    """
    start = _whole("start", start, 0)
    count = min(_whole("count", count, 50), _MOST_ROWS)
    some = frame.iloc[start : start + count]
    columns = [_cells(some, table, name) for name in frame.columns]
    rows = [list(cells) for cells in zip(*columns, strict=True)]
    return {
        "total": len(frame),
        "start": start,
        "columns": [str(name) for name in frame.columns],
        "rows": rows,
    }


def _whole(name: str, value: Any, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, str):
        if not value.isdecimal() or len(value) > 15:
            raise ApiError(400, f"{name} must be a whole number, got {value[:40]!r}")
        value = int(value)
    return as_int(name, value, minimum=0)


def _cells(frame: Any, table: Table, name: Any) -> list[Any]:
    """The cells of a column in the terms that evidence is given in."""
    cells = frame[name]
    missing = cells.isna().to_numpy()
    if name in table.codings and table.types[name].is_temporal and len(frame):
        terms = Terms(table, name)
        if terms.coding.is_number:
            numbers = numbers_of(as_rows(frame)[0].get_column(name), table.types[name], name)
            return [
                None if gone else terms.value(x) for x, gone in zip(numbers, missing, strict=True)
            ]
    return [None if gone else cell for cell, gone in zip(cells.tolist(), missing, strict=True)]


def describe_row(panels: Panels, asked: Mapping[str, Any], frame: Any) -> dict[str, Any]:
    """How likely a row is, and what the model makes of each of its cells given all others.

    Args:
        panels: The columns of the model.
        asked: ``cells`` by the names of their columns, null where missing; or the ``index`` of a
            row of the table.
        frame: The table, where there is one.
    """
    index = asked.get("index")
    if index is not None:
        if frame is None:
            raise ApiError(409, "there is no table whose rows fit the model; type the cells in")
        index = as_int("index", index, minimum=0)
        if index >= len(frame):
            raise ApiError(422, f"index must be below {len(frame)}, the number of rows")
        one = frame.iloc[[index]]
        cells = {str(name): _cells(one, panels.table, name)[0] for name in frame.columns}
    else:
        given = asked.get("cells")
        if not isinstance(given, Mapping):
            raise ApiError(400, "a row is given as cells, by the names of columns, or as an index")
        cells = dict(given)
        for name in cells:
            if name not in panels.names:
                raise ApiError(422, f"the table has no column {name[:80]!r}")
    row = _Row(panels, cells)
    return {
        "index": index,
        "log_prob": row.log_prob,
        "cells": [row.told(panel) for panel in panels.panels.values()],
    }


class _Row:
    """One row: what is known of it, and the distribution of each cell given all others.

    Args:
        panels: The columns of the model.
        cells: The row, in the terms of the page.
    """

    def __init__(self, panels: Panels, cells: Mapping[str, Any]) -> None:
        self._model, self._table = panels.model.model, panels.table
        self._given = cells
        self._z = np.full((1, self._table.num_variables), np.nan)
        self._slopes: dict[Any, float] = {}
        self._unknown: set[Any] = set()
        self._cells: dict[Any, np.ndarray] = {}
        for name, panel in panels.panels.items():
            cell = self._encoded(panel, cells.get(str(name)))
            if cell is None:
                continue
            where = self._table.variables(name)
            self._cells[name] = cell
            self._z[:, where.start : where.stop] = panel.coding.encode(cell)
            self._slopes[name] = float(panel.coding.log_slope(cell)[0])
        self._whole = self._posterior(self._z)
        self.log_prob = float(self._whole.log_model_evidence[0]) + sum(self._slopes.values())
        self._draws: Any = None

    def _encoded(self, panel: Panel, value: Any) -> np.ndarray | None:
        """A cell as its column's coding takes it; None where it is missing or never seen."""
        if value is None:
            return None
        if panel.coding.is_number:
            number = value
            if isinstance(value, str) and not panel.terms.is_date:
                raise ApiError(422, f"{str(panel.name)!r} must be a number, got {value[:40]!r}")
            return np.array([panel.terms.number(number)])
        cell = np.empty(1, dtype=object)
        cell[0] = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, list | dict) or bool(panel.coding.is_strange(cell)[0]):
            self._unknown.add(panel.name)
            return None
        return cell

    def _posterior(self, z: np.ndarray) -> TablePosterior:
        return TablePosterior(self._model, self._table, Evidence(z, [{}], "pandas"))

    def told(self, panel: Panel) -> dict[str, Any]:
        """What there is to say of one cell."""
        name = panel.name
        told: dict[str, Any] = {
            "column": str(name),
            "value": self._given.get(str(name)),
            "is_missing": name not in self._cells,
            "is_unknown": name in self._unknown,
            "surprise": None,
            "tail": None,
            "likelier": None,
        }
        others, posterior = self._z, self._whole
        if name in self._cells:
            others = self._z.copy()
            where = self._table.variables(name)
            others[:, where.start : where.stop] = np.nan
            posterior = self._posterior(others)
        if posterior.log_model_evidence[0] == -math.inf:
            # Nothing can be told of what follows from the impossible.
            return {**told, "fill": None}
        answer = panel.answered(posterior, 0.9)
        told["fill"] = {key: answer[key] for key in ("mean", "median", "interval", "mode")}
        told["fill"]["draws"] = None
        if name not in self._cells:
            told["fill"]["draws"] = self._drawn(panel)
            return told
        known = float(self._whole.log_model_evidence[0]) + self._slopes[name]
        told["surprise"] = float(posterior.log_model_evidence[0]) - known
        told |= _compared(panel, posterior.marginal(name), self._cells[name], answer["mode"])
        return told

    def _drawn(self, panel: Panel) -> list[Any]:
        """Draws of a missing cell, together with all others that are."""
        if self._draws is None:
            self._draws = self._whole.sample(_DRAWS, seed=0)
        return _cells(self._draws, self._table, panel.name)


def _compared(panel: Panel, marginal: Marginal, cell: np.ndarray, mode: Any) -> dict[str, Any]:
    """How far out a cell lies, and what would have been likelier."""
    find = partial(_weight, panel, marginal)
    if isinstance(panel.coding, States):
        shares = marginal.shares[0]
        here = shares[int(panel.coding.encode(cell)[0, 0])]
        best = float(shares.max())
        # All values that are no likelier than this one.
        tail = float(shares[shares <= here * (1 + 1e-12)].sum())
        factor = best / here if here > 0 else None
        return {"tail": min(1.0, tail),
                "likelier": {"value": mode, "probability": best, "factor": factor}}  # fmt: skip
    x = float(cell[0])
    below = float(marginal.cdf(cell)[0])
    step = panel.number.step or np.spacing(abs(x))
    above = 1 - float(marginal.cdf(np.array([x - step]))[0])
    best = panel.terms.number(mode) if mode is not None else x
    (mass, is_mass), (mass_here, is_mass_here) = find(best), find(x)
    alike = is_mass == is_mass_here and mass_here > 0
    return {
        "tail": min(1.0, 2 * min(below, above)),
        "likelier": {
            "value": mode,
            "probability": mass if is_mass else None,
            "factor": mass / mass_here if alike else None,
        },
    }


def _weight(panel: Panel, marginal: Marginal, x: float) -> tuple[float, bool]:
    """The probability of a number that has one, or its density; and which of both it is."""
    coding, number = panel.coding, panel.number
    assert isinstance(number, Number | Binned)
    if isinstance(coding, Spiked) and x in coding.spikes:
        return float(marginal.shares[0, 1 + int(np.searchsorted(coding.spikes, x))]), True
    if number.decimals is not None:
        ends = marginal.cdf(np.array([x])), marginal.cdf(np.array([x - number.step]))
        return max(0.0, float(ends[0][0] - ends[1][0])), True
    share = marginal.shares[0, 0] if isinstance(coding, Spiked) else 1.0
    return float(share * panel.density(marginal, np.array([x]))[0]), False
