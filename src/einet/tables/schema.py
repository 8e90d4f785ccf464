"""Tables: a schema read off a data frame, by which rows become values of a model's variables."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from einet._checks import check_choice, shown
from einet.families import ExponentialFamily
from einet.tables.cells import CellType, numbers_of, objects_of
from einet.tables.columns import Coding, Identifier, coding_from_dict
from einet.tables.constraints import Constraint
from einet.tables.frames import ARRAY, as_frame, as_rows, build_frame, column_names, usable_backend
from einet.tables.schema_frames import (
    TableWarning,
    check_names,
    lacking,
    notes_of,
    read_column,
    with_names,
)
from einet.tables.specification import Column, as_specification

__all__ = ["Strange", "Table", "TableWarning"]

#: What to do about cells that the table cannot hold; see :meth:`Table.encode`.
Strange: TypeAlias = Literal["warn", "refuse", "ignore"]

_VERSION = 1


class Table:
    """The schema of a table: what its columns are, and the model's variables behind them.

    ``Table.of(frame)`` reads it off a data frame. A column becomes one variable of a model, or two
    where some of its numbers are states of their own (spikes), or none where there is nothing to
    learn from it. Frames may be of pandas, polars or Arrow; answers come back as what was given,
    with its names, types and categories.

    **What is documented to happen.** A missing cell is a missing variable, always. A category
    that was never seen counts as missing; a number beyond the bounds of its column has density 0,
    and as evidence it counts as the nearest one that is possible; :meth:`encode` warns of both. A
    column that is absent counts as missing in every row, one that the table does not know is
    ignored; where a frame has both, a warning names them, as one may be a misspelling of the other.

    Args:
        columns: Name, coding and type of cells of every column, in their order.
        backend: The library that answers are frames of.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"age": [22.5, 38.25, None] * 8, "sex": ["m", "f", "f"] * 8})
        >>> table = Table.of(frame)
        >>> table
        Table of 2 columns, 2 variables
          age: 2 numbers: 22.5, 38.25
          sex: 2 categories: f, m
        >>> table.encode(frame)[:3]
        array([[ 0.,  1.], [ 1.,  0.], [nan,  0.]])
        >>> table.decode(table.encode(frame)).equals(frame)
        True
    """

    def __init__(
        self, columns: Sequence[tuple[Any, Coding, CellType]], backend: str = "pandas"
    ) -> None:
        self.backend = backend
        self.codings = {name: coding for name, coding, _ in columns}
        self.types = {name: kind for name, _, kind in columns}
        if len(self.codings) != len(columns):
            raise ValueError("columns must have a different name each")
        sizes = [coding.num_variables for coding in self.codings.values()]
        starts = [0, *accumulate(sizes)]
        self._variables = {
            name: range(start, start + size)
            for name, start, size in zip(self.codings, starts, sizes, strict=False)
        }
        #: The number of variables of a model of the table.
        self.num_variables = starts[-1]

    @classmethod
    def of(cls, frame: Any, columns: Mapping[Any, Any] | None = None) -> Table:
        """Read a schema off a data frame.

        Args:
            frame: A pandas, polars or Arrow table, a dict of columns, or an array.
            columns: What some columns are, where the data do not tell: the name of a kind, or a
                :class:`~einet.tables.Column`, by the name of the column.

        Example:
            >>> import pandas
            >>> frame = pandas.DataFrame({"age": range(20, 80), "grade": ["b", "a", "c"] * 20})
            >>> Table.of(frame, columns={"age": Column("integer", lower=0), "grade": "ordered"})
            Table of 2 columns, 2 variables
              age: integers, at least 0
              grade: 3 ordered categories: a, b, c
        """
        data, backend = as_frame(frame)
        names = column_names(data)
        if not names or not len(data):
            raise ValueError(
                f"frame must have rows and columns to learn from, got {len(data)} rows and "
                f"{len(names)} columns"
            )
        corrections = dict(columns or {})
        for name in corrections:
            if name not in names:
                raise ValueError(f"columns names {name!r}, but frame {lacking(name, names)}")
        parts = []
        for name in names:
            given = as_specification(name, corrections.get(name, Column()))
            coding, kind, warning = read_column(data.get_column(name), given, name)
            if warning is not None:
                warnings.warn(f"column {name!r}: {warning}", TableWarning, stacklevel=2)
            parts.append((name, coding, kind))
        return cls(parts, backend)

    # -- what there is -----------------------------------------------------------------------------

    @property
    def names(self) -> list[Any]:
        """The names of all columns, those that are left out too.

        Example:
            >>> import pandas
            >>> table = Table.of(pandas.DataFrame({"sex": ["f", "m"] * 10, "of": ["us"] * 20}))
            >>> table.names, table.modelled  # there is nothing to learn from a constant
            (['sex', 'of'], ['sex'])
        """
        return list(self.codings)

    @property
    def modelled(self) -> list[Any]:
        """The names of the columns that have variables.

        Example:
            >>> import pandas
            >>> Table.of(pandas.DataFrame({"sex": ["f", "m"] * 10, "of": ["us"] * 20})).modelled
            ['sex']
        """
        return [name for name, variables in self._variables.items() if len(variables)]

    def variables(self, column: Any) -> range:
        """The numbers of a column's variables.

        Args:
            column: The name of the column.

        Example:
            >>> import pandas
            >>> table = Table.of(pandas.DataFrame({"a": ["x", "y"] * 10, "b": ["x", "y"] * 10}))
            >>> table.variables("b")
            range(1, 2)
        """
        self.coding(column)
        return self._variables[column]

    def coding(self, column: Any) -> Coding:
        """How a column becomes variables.

        Args:
            column: The name of the column.

        Example:
            >>> import pandas
            >>> Table.of(pandas.DataFrame({"sex": ["f", "m"] * 10})).coding("sex").describe()
            '2 categories: f, m'
        """
        if column not in self.codings:
            raise ValueError(f"the table {lacking(column, self.names)}")
        return self.codings[column]

    def families(self) -> list[ExponentialFamily]:
        """The family of every variable.

        Example:
            >>> import pandas
            >>> table = Table.of(
            ...     pandas.DataFrame({"sex": ["f", "m"] * 10, "size": [1.5, 2.25, 3.1, 0.7] * 5})
            ... )
            >>> [type(family).__name__ for family in table.families()]
            ['Categorical', 'Categorical']
        """
        return [family for coding in self.codings.values() for family in coding.families()]

    # -- there and back ----------------------------------------------------------------------------

    def encode(
        self, frame: Any, *, strange: Strange = "warn", seed: int | None = None
    ) -> Float[np.ndarray, "rows variables"]:
        """The variables' values of all rows (float64), NaN where missing.

        Args:
            frame: Rows; see :class:`Table` for columns that it lacks or has beside.
            strange: Categories never seen count as missing, and numbers that cannot be as the
                nearest that can: ``"warn"`` of them, ``"refuse"`` them, or ``"ignore"`` it.
            seed: For learning: numbers on a grid are spread at random over their grid intervals.

        Example:
            >>> import pandas
            >>> table = Table.of(pandas.DataFrame({"sex": ["f", "m"] * 10}))
            >>> table.encode(pandas.DataFrame({"sex": ["m", None]}))
            array([[ 1.], [nan]])
        """
        check_choice("strange", strange, ("warn", "refuse", "ignore"))
        data = self._frame(frame)
        jitter = None if seed is None else np.random.default_rng(seed)
        parts, notes = [np.empty((len(data), 0))], []
        given = set(column_names(data))
        for name, coding in self.codings.items():
            if isinstance(coding, Identifier):
                continue
            cells = self._cells(data, name) if name in given else None
            if cells is None:
                parts.append(np.full((len(data), coding.num_variables), np.nan))
                continue
            notes += [] if strange == "ignore" else notes_of(name, coding, cells)
            parts.append(coding.encode(cells, jitter))
        if notes:
            if strange == "refuse":
                raise ValueError(f"frame holds what its table cannot: {'; '.join(notes)}")
            warnings.warn("; ".join(notes), TableWarning, stacklevel=2)
        return np.concatenate(parts, 1)

    def log_density_change(self, frame: Any) -> Float[np.ndarray, " rows"]:
        """What a model's densities lack of the table's: log abs(dz/dx), summed over known cells.

        It is −∞ where a number lies beyond the bounds of its column.

        Args:
            frame: The rows.

        Example:
            >>> import pandas
            >>> frame = pandas.DataFrame({"size": np.linspace(1.0, 2.0, 60) ** 2})
            >>> table = Table.of(frame)
            >>> table.log_density_change(frame).shape
            (60,)
            >>> table.log_density_change(pandas.DataFrame({"size": [-1.0]}))  # no size is below 0
            array([-inf])
        """
        total = np.zeros(len(self._frame(frame)))
        for name, cells in self.cells(frame).items():
            total += self.codings[name].log_slope(cells)
        return total

    def cells(self, frame: Any) -> dict[Any, np.ndarray]:
        """The cells of a frame as codings take them, of each modelled column that it has.

        Args:
            frame: The rows.

        Example:
            >>> import pandas
            >>> table = Table.of(pandas.DataFrame({"size": [1.5, 2.5, 4.0] * 9, "sex": ["f"] * 27}))
            >>> table.cells(pandas.DataFrame({"size": [4.0, None]}))
            {'size': array([ 4., nan])}
        """
        data = self._frame(frame)
        given = set(column_names(data))
        return {name: self._cells(data, name) for name in self.modelled if name in given}

    def decode(
        self,
        values: Any,
        backend: str | None = None,
        cells: Mapping[Any, np.ndarray] | None = None,
    ) -> Any:
        """A data frame of variables' values; identifiers are left out.

        Args:
            values: ``[rows, variables]``; NaN becomes a missing cell.
            backend: The library of the frame; that of the table by default.
            cells: The cells of columns of which more is known than their variables say, such as
                where in its bin a number lies; without, it is the middle of the bin.

        Example:
            >>> import pandas
            >>> Table.of(pandas.DataFrame({"sex": ["f", "m"] * 10})).decode([[1.0], [0.0]])
              sex
            0   m
            1   f
        """
        z = np.asarray(values, dtype=np.float64)
        if z.ndim != 2 or z.shape[1] != self.num_variables:
            raise ValueError(
                f"values must have shape [rows, {self.num_variables}], got {list(z.shape)}"
            )
        columns = []
        for name, coding in self.codings.items():
            if not isinstance(coding, Identifier):
                where = self._variables[name]
                if cells is not None and name in cells:
                    found = cells[name]
                else:
                    found = coding.decode(z[:, where.start : where.stop])
                columns.append((name, found, self.types[name]))
        return build_frame(columns, usable_backend(backend or self.backend), len(z))

    def build(
        self, columns: Mapping[Any, np.ndarray], rows: int, backend: str | None = None
    ) -> Any:
        """A data frame of some columns, given their cells.

        Args:
            columns: The cells of each column, by its name.
            rows: How many rows the frame has.
            backend: The library of the frame; that of the table by default.

        Example:
            >>> import pandas
            >>> table = Table.of(pandas.DataFrame({"sex": ["f", "m"] * 10, "age": [20, 30] * 10}))
            >>> table.build({"age": np.array([20.0, 30.0])}, rows=2)["age"].tolist()
            [20, 30]
        """
        parts = [(name, cells, self.types[name]) for name, cells in columns.items()]
        return build_frame(parts, usable_backend(backend or self.backend), rows)

    def alternatives(self, column: Any, pieces: Sequence[Constraint]) -> list[dict[int, Any]]:
        """What a constraint of a column means to the model: events by the number of the variable.

        They exclude one another: the probability of the constraint is the sum of theirs. No
        alternative at all is a constraint that no cell satisfies. A plain number in place of an
        event is a point of a continuous variable, which has a density but no probability.

        Args:
            column: The name of the column.
            pieces: Intervals of a column of numbers, sets of values of one of categories.

        Example:
            >>> import pandas
            >>> from einet.tables.constraints import Values
            >>> table = Table.of(pandas.DataFrame({"size": ["S", "M", "L"] * 10}))
            >>> len(table.alternatives("size", [Values(["S", "M"])]))  # one event of two states
            1
            >>> table.alternatives("size", [])
            []
        """
        coding, start = self.coding(column), self._variables[column].start
        try:
            found = coding.alternatives(pieces)
        except (TypeError, ValueError) as error:
            raise type(error)(f"column {column!r}: {error}") from error
        return [{start + n: event for n, event in events.items()} for events in found]

    # -- files -------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The schema in plain values that JSON can say.

        Example:
            >>> import pandas
            >>> table = Table.of(pandas.DataFrame({"sex": ["f", "m"] * 10}))
            >>> list(table.to_dict()), table.to_dict()["columns"][0]["name"]
            (['version', 'backend', 'columns'], 'sex')
        """
        columns = [
            {"name": name, "type": self.types[name].to_dict(), **coding.to_dict()}
            for name, coding in self.codings.items()
        ]
        return {"version": _VERSION, "backend": self.backend, "columns": columns}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Table:
        """The schema that :meth:`to_dict` told of, checked.

        Args:
            plain: What :meth:`to_dict` told.

        Raises:
            ValueError: It is none, or of a newer release.

        Example:
            >>> import pandas
            >>> table = Table.of(pandas.DataFrame({"sex": ["f", "m"] * 10}))
            >>> Table.from_dict(table.to_dict()) == table
            True
        """
        version = plain.get("version") if isinstance(plain, Mapping) else None
        if version != _VERSION:
            raise ValueError(f"version of a table must be {_VERSION}, got {shown(version)}")
        try:
            columns = [
                (column["name"], coding_from_dict(column), CellType.from_dict(column["type"]))
                for column in plain["columns"]
            ]
            return cls(columns, str(plain["backend"]))
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"the description of a table is damaged: {error!r}") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lines = [f"Table of {len(self.codings)} columns, {self.num_variables} variables"]
        lines += [f"  {name}: {coding.describe()}" for name, coding in self.codings.items()]
        return "\n".join(lines)

    def _frame(self, frame: Any) -> Any:
        """A frame of this table, with a warning where a name may be misspelt."""
        data, backend = as_rows(frame)
        if backend == ARRAY:
            data = with_names(data, self.names, rename=self.backend != ARRAY)
        check_names(column_names(data), self.names, self.modelled)
        return data

    def _cells(self, data: Any, name: Any) -> np.ndarray:
        """The cells of a column as its coding takes them."""
        if self.codings[name].is_number:
            return numbers_of(data.get_column(name), self.types[name], name)
        return objects_of(data.get_column(name), name)
