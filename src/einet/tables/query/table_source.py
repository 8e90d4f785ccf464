"""A model of a table, as questions see it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from einet.data.events import Between, States, between
from einet.inference.few_rows import MOST_ROWS as MOST_FEW
from einet.inference.few_rows import FewPosterior
from einet.models.base import Model
from einet.tables.binned_marginal import BinnedMarginal
from einet.tables.columns import Binned
from einet.tables.constraints import Box
from einet.tables.evidence import Evidence
from einet.tables.marginal import Marginal
from einet.tables.model import TableModel
from einet.tables.posterior import TablePosterior
from einet.tables.query.asked import asked_columns
from einet.tables.query.columns import AskedColumns
from einet.tables.query.evaluation import Answer, ask
from einet.tables.query.rows import MOST_ROWS, Row, Ways, rows_of
from einet.tables.query.source import Mass, Numbers, Source, total
from einet.tables.schema import Table

__all__ = ["TableSource", "query"]

# Each makes a posterior of its own; more of them are asked for by probabilities of boxes.
_MOST_ALTERNATIVES = 8


def query(model: TableModel, text: str) -> Answer:
    """The exact answer to a question about a table.

    Args:
        model: A model of the table.
        text: The question: ``P(event | condition)``, ``E(column | condition)``, ``median(column |
            …)``, ``quantile(q, column | …)``, ``interval(mass, column | …)``, ``mode(column | …)``
            or ``distribution(column | …)``. Conditions are comparisons of columns with values
            (``30 <= age < 40``, ``sex = Female``, ``job in {nurse, 'night guard'}``), joined by
            ``and``, ``or``, ``not``, parentheses, and commas for "and". Names and values of several
            words need quotes; those of names are double ones or backticks.

    Raises:
        QueryError: The question cannot be read, or not be answered; it says where.

    Example:
        >>> import numpy, pandas
        >>> generator = numpy.random.default_rng(0)
        >>> female = generator.random(400) < 0.5
        >>> height = generator.normal(numpy.where(female, 165, 180), 7)
        >>> frame = pandas.DataFrame({"sex": numpy.where(female, "f", "m"), "height": height})
        >>> model = TableModel.fit(frame, epochs=10)
        >>> query(model, "P(sex=f | height<165)").value > 0.9
        True
        >>> query(model, "P(agee<30)")
        Traceback (most recent call last):
        einet.tables.query.errors.QueryError: there is no column 'agee'; ...
    """
    return ask(model.source, text)


class TableSource(Source):
    """The probabilities of boxes under a model; exact.

    Args:
        model: The model.
        table: What its variables are.
    """

    def __init__(self, model: Model, table: Table) -> None:
        self.model, self.table = model, table
        # Questions are text, but names of columns may be anything.
        self._names = {str(name): name for name in table.names}
        self._columns = asked_columns(table)

    @property
    def columns(self) -> AskedColumns:
        """The columns that can be asked for."""
        return self._columns

    def measure(self, events: Sequence[Sequence[Box]]) -> list[Mass]:
        # Events of one question mostly have columns in common.
        known: Ways = {}
        rows = [self.rows(event, known) for event in events]
        flat = [row for part in rows for row in part]
        logs = log_probs(self.model, flat)
        masses = [
            Mass(row.points, log + row.log_slope) for row, log in zip(flat, logs, strict=True)
        ]
        ends = np.cumsum([len(part) for part in rows]).tolist()
        starts = [0, *ends[:-1]]
        return [total(masses[start:end]) for start, end in zip(starts, ends, strict=True)]

    def rows(self, event: Sequence[Box], known: Ways | None = None) -> list[Row]:
        """All ways for an event to come true; those of single columns may be known from others."""
        rows: list[Row] = []
        for box in event:
            named = {self._names[column]: pieces for column, pieces in box.items()}
            rows += rows_of(self.table, named, known)
            if len(rows) > MOST_ROWS:
                raise ValueError(
                    f"it takes more than {MOST_ROWS:,} disjoint pieces, which is too many"
                )
        return rows

    def marginal(self, column: str, event: Sequence[Box]) -> Numbers | None:
        rows = self.rows(event)
        if len(rows) > _MOST_ALTERNATIVES or any(row.points for row in rows):
            return None
        alternatives = [{**row.values, **row.events} for row in rows]
        nothing = np.full((1, self.model.num_variables), np.nan)
        known = Evidence(nothing, alternatives, self.table.backend)
        posterior = TablePosterior(self.model, self.table, known)
        return _Numbers(posterior.marginal(self._names[column]))

    def sample(self, number: int, event: Sequence[Box], seed: int = 0) -> Tensor:
        """Draw values of the model's variables, given an event.

        Args:
            number: How many rows.
            event: Boxes that do not overlap.
            seed: Seed of all that is random.
        """
        return self._draws(number, event, seed)[0]

    def sample_frame(
        self, number: int, event: Sequence[Box], seed: int = 0, backend: str | None = None
    ) -> Any:
        """Draw rows of the table, given an event.

        Args:
            number: How many rows.
            event: Boxes that do not overlap.
            seed: Seed of all that is random.
            backend: The library of the frame; that of the table by default.
        """
        drawn, rows, way = self._draws(number, event, seed)
        z, cells = drawn.double().cpu().numpy(), {}
        for name, coding in self.table.codings.items():
            if isinstance(coding, Binned):
                variable = self.table.variables(name).start
                random = np.random.default_rng([seed, 2, variable])
                cells[name] = np.empty(number)
                for place, row in enumerate(rows):
                    taken = way == place
                    known = row.values.get(variable, row.events.get(variable))
                    cells[name][taken] = coding.draw(z[taken, variable], known, random)
        return self.table.decode(z, backend, cells)

    def _draws(
        self, number: int, event: Sequence[Box], seed: int
    ) -> tuple[Tensor, list[Row], np.ndarray]:
        """Draws, all ways for the event to come true, and which of them led to each draw."""
        rows = self.rows(event)
        logs = np.array(log_probs(self.model, rows)) + [row.log_slope for row in rows]
        possible = [row.points for row, log in zip(rows, logs, strict=True) if log > -math.inf]
        if not possible:
            raise ValueError("the condition has probability 0 under the model")
        fewest = np.array([row.points for row in rows]) == min(possible)
        # Next to a probability, a density counts for nothing, however large.
        logs = np.where(fewest, logs, -math.inf)
        weights = np.exp(logs - logs.max())
        counts = np.random.default_rng(seed).multinomial(number, weights / weights.sum())
        parts = []
        for place, count in enumerate(counts.tolist()):
            if count:
                x, where = evidence(self.model, [rows[place]])
                posterior = self.model.given(x, where=where) if where else self.model.given(x)
                parts.append(posterior.sample(count, seed=(seed + place) % 2**63)[:, 0])
        drawn = torch.cat(parts)
        order = np.random.default_rng([seed, 1]).permutation(number)
        way = np.repeat(np.arange(len(rows)), counts)[order]
        return drawn[torch.as_tensor(order, device=drawn.device)], rows, way


class _Numbers(Numbers):
    """The marginal of one row."""

    def __init__(self, marginal: Marginal) -> None:
        self._marginal = marginal

    def mean(self) -> float:
        return float(self._marginal.mean()[0])

    def quantile(self, share: float) -> float:
        return float(self._marginal.quantile(share)[0])

    def mode(self) -> float | None:
        marginal = self._marginal
        return float(marginal.mode()[0]) if isinstance(marginal, BinnedMarginal) else None


def log_probs(model: Model, rows: Sequence[Row]) -> list[float]:
    """The log-probability, or log-density, of each of several rows."""
    few = None
    if 0 < len(rows) <= MOST_FEW:
        x = np.full((len(rows), model.num_variables), np.nan)
        for place, row in enumerate(rows):
            x[place, list(row.values)] = list(row.values.values())
        few = FewPosterior.of(model, x, [row.events for row in rows])
    if few is not None:
        return few.log_evidence.tolist()
    groups: dict[frozenset[int], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(frozenset(row.events), []).append(place)
    logs = np.zeros(len(rows))
    # Rows with events of the same variables are asked for together.
    for places in groups.values():
        x, where = evidence(model, [rows[place] for place in places])
        found = model.log_prob(x, where=where) if where else model.log_prob(x)
        logs[places] = found.double().cpu().numpy()
    return logs.tolist()


def evidence(model: Model, rows: Sequence[Row]) -> tuple[Tensor, dict[int, Any]]:
    """Rows with events of the same variables as one batch: values, and events for each row."""
    x = torch.full((len(rows), model.num_variables), torch.nan, dtype=torch.float64)
    for place, row in enumerate(rows):
        for variable, value in row.values.items():
            x[place, variable] = value
    variables = rows[0].events if rows else ()
    where = {variable: _stacked([row.events[variable] for row in rows]) for variable in variables}
    return x.to(model.device), where


def _stacked(events: Sequence[Any]) -> Any:
    """The events of a variable in several rows, as one."""
    if all(isinstance(event, Between) for event in events):
        ends = ([getattr(event, end) for event in events] for end in ("lower", "upper"))
        return between(*map(torch.stack, ends))
    states = torch.cat([event.values for event in events]).unique()
    weights = torch.zeros(len(events), len(states), dtype=torch.float64)
    for place, event in enumerate(events):
        weights[place, torch.searchsorted(states, event.values)] = event.weights
    return States(states, weights, table=False)
