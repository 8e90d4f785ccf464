"""All columns of a model: how the data fill their bins, and what evidence makes of them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from einet._checks import as_number
from einet.studio.answers import ApiError
from einet.studio.evidence import Known, as_known, posterior_of
from einet.studio.panel import Panel
from einet.tables import TableModel, TablePosterior
from einet.tables.cells import numbers_of, objects_of
from einet.tables.columns import Constant, States
from einet.tables.frames import as_rows, column_names
from einet.tables.information import column_information

__all__ = ["Panels"]

# More columns than these would take minutes, pair by pair.
_MOST_PAIRED = 150


class Panels:
    """All columns of a model of a table.

    Args:
        model: The model.
    """

    def __init__(self, model: TableModel) -> None:
        self.model, self.table = model, model.table
        prior = model.given()
        self.panels = {name: Panel(model, name, prior) for name in self.table.modelled}
        self.names = {str(name): name for name in self.table.names}
        self._prior = prior

    def panel(self, column: Any) -> Panel:
        """The panel of a column, by its name in the page."""
        name = self.names.get(column) if isinstance(column, str) else None
        if name not in self.panels:
            raise ApiError(422, f"the model knows no column {column!r}")
        return self.panels[name]

    def columns(self, frame: Any = None) -> dict[str, Any]:
        """All columns, with how the data lie in them and what the model makes of them."""
        told = []
        prior = self._answers(self._prior, list(self.panels), 0.9)
        for name in self.table.names:
            if name not in self.panels:
                coding = self.table.coding(name)
                is_constant = isinstance(coding, Constant)
                values = [coding.value] if is_constant and coding.value is not None else None
                kind = "constant" if is_constant else "left out"
                told.append({"name": str(name), "kind": kind, "values": values,
                             "description": coding.describe()})  # fmt: skip
                continue
            panel = self.panels[name]
            data = None if frame is None else self._shares(panel, frame)
            told.append({**panel.described(), "data": data, "prior": prior[str(name)]})
        return {"columns": told}

    def known(self, evidence: Any) -> Known:
        """What evidence of the page says."""
        return as_known(self.table, evidence)

    def marginals(self, evidence: Any, columns: Any = None, mass: Any = 0.9) -> dict[str, Any]:
        """All columns given evidence, and how likely that is."""
        began = time.perf_counter()
        mass = as_number("mass", mass, above=0, at_most=1 - 1e-9)
        names = list(self.panels)
        if columns is not None:
            if not isinstance(columns, list):
                raise ApiError(400, "columns must be a list of names")
            names = [self.panel(column).name for column in columns]
        known = self.known(evidence)
        posterior = posterior_of(self.model, known) if known else self._prior
        log = float(posterior.log_evidence[0])
        points = int(posterior.points[0])
        return {
            "log_evidence": log,
            "probability": math.exp(min(0.0, log)) if not points else None,
            "density": math.exp(min(log, 700.0)) if points else None,
            "columns": self._answers(posterior, names, mass),
            "milliseconds": 1000 * (time.perf_counter() - began),
        }

    def information(self, known: Known) -> dict[str, Any]:
        """How much all pairs of columns tell of one another, in nats."""
        if len(self.panels) > _MOST_PAIRED:
            raise ApiError(
                422,
                f"pairs are looked at in tables of up to {_MOST_PAIRED} columns, and this has "
                f"{len(self.panels)}",
            )
        posterior = posterior_of(self.model, known)
        bins = {name: panel.bins for name, panel in self.panels.items()}
        nats = column_information(posterior, bins)
        is_states = np.array([isinstance(panel.coding, States) for panel in self.panels.values()])
        return {
            "columns": [str(name) for name in bins],
            "nats": nats,
            "is_exact": is_states[:, None] & is_states,
        }

    def _answers(
        self, posterior: TablePosterior, names: Sequence[Any], mass: float
    ) -> dict[str, Any]:
        return {str(name): self.panels[name].answered(posterior, mass) for name in names}

    def _shares(self, panel: Panel, frame: Any) -> dict[str, Any] | None:
        """How the known cells of a table lie in a column's parts."""
        data = as_rows(frame)[0]
        if panel.name not in column_names(data):
            return None
        series, cells = data.get_column(panel.name), self.table.types[panel.name]
        try:
            if panel.coding.is_number:
                values = numbers_of(series, cells, panel.name)
            else:
                values = objects_of(series, panel.name)
        except (TypeError, ValueError):
            # Another table's column of the same name.
            return None
        place = panel.bins.place(values)
        counts = np.bincount(place[place >= 0], minlength=len(panel.bins))
        return panel.masses(counts / max(1, counts.sum()))
