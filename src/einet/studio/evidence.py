"""What the page says is known, as constraints of a table's columns."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any

from einet._checks import shown
from einet.studio.answers import ApiError
from einet.tables import TableModel, TablePosterior
from einet.tables.cells import CellType
from einet.tables.columns import Binned, Constant, Identifier, Number, Spiked, States
from einet.tables.constraints import Interval, Pieces, Values, complement, intersection, union
from einet.tables.schema import Table

__all__ = ["Known", "Terms", "as_known", "posterior_of"]

#: Pieces of some columns, by their names in the table.
Known = Mapping[Any, Pieces]

_OPS = ("is", "between", "among")
# More are no evidence that anybody clicked together.
_MOST_EVIDENCE, _MOST_VALUES = 1000, 10_000
# Ways for evidence to come true, each of which takes passes of its own.
_MOST_ALTERNATIVES = 256


class Terms:
    """A column's values between JSON and the table.

    Dates are told as ISO text and on axes as milliseconds since 1970, which are both understood;
    times of day and durations as seconds.

    Args:
        table: The table.
        name: The name of the column.
    """

    def __init__(self, table: Table, name: Any) -> None:
        self.name, self.coding, self.cells = name, table.coding(name), table.types[name]
        self.is_date = self.coding.is_number and self.cells.name in ("Datetime", "Date")
        #: What a number of the table is in the units of an axis.
        self.unit = 1.0
        if self.coding.is_number and self.cells.is_temporal:
            self.unit = self.cells.per_unit / (1e3 if self.is_date else 1e6)
        number = self.coding.number if isinstance(self.coding, Spiked) else self.coding
        decimals = number.decimals if isinstance(number, Number | Binned) else None
        self.is_whole = self.cells.is_whole or (decimals is not None and decimals <= 0)

    def number(self, value: Any, what: str = "value") -> float:
        """A number of the table, from JSON."""
        if self.is_date and isinstance(value, str):
            return _instant(value, self.cells, self.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            wanted = "a date such as 2020-01-31" if self.is_date else "a number"
            raise ApiError(
                422, f"{what} of {str(self.name)!r} must be {wanted}, got {shown(value)}"
            )
        return float(value) / self.unit

    def axis(self, number: float) -> float | int | None:
        """A number of the table in the units of an axis."""
        if not math.isfinite(number):
            return None
        value = number * self.unit
        return int(value) if value == int(value) and self.is_whole else value

    def value(self, value: Any) -> Any:
        """A value of the table as JSON tells it."""
        if not self.coding.is_number or value is None:
            return value
        number = float(value)
        if not math.isfinite(number):
            return None
        if self.is_date:
            return _iso(number, self.cells)
        shown_value = number * self.unit
        is_whole = self.is_whole and shown_value == int(shown_value)
        return int(shown_value) if is_whole else shown_value

    def pieces(self, op: str, given: Mapping[str, Any]) -> Pieces:
        """What one evidence says of the column."""
        coding = self.coding
        if op == "between":
            return self._between(given.get("lower"), given.get("upper"))
        values = [given.get("value")] if op == "is" else given.get("values")
        if not isinstance(values, list) or not 0 < len(values) <= _MOST_VALUES:
            raise ApiError(422, f"values of {str(self.name)!r} must be a list of at least one")
        if coding.is_number:
            return union(Interval.at(self.number(value)) for value in values)
        assert isinstance(coding, States)
        return (Values([self._state(value) for value in values]),)

    def domain(self) -> list[Any] | None:
        """All values of a column of categories; None of one of numbers."""
        return list(self.coding.values) if isinstance(self.coding, States) else None

    def _between(self, lower: Any, upper: Any) -> Pieces:
        coding = self.coding
        if coding.is_number:
            low = -math.inf if lower is None else self.number(lower, "lower")
            high = math.inf if upper is None else self.number(upper, "upper")
            if low > high:
                raise ApiError(422, f"lower of {str(self.name)!r} must not be above upper")
            return (Interval(low, high),)
        assert isinstance(coding, States)
        if not coding.ordered:
            raise ApiError(422, f"the values of {str(self.name)!r} have no order to lie between")
        first = 0 if lower is None else coding.values.index(self._state(lower))
        last = len(coding.values) - 1
        last = last if upper is None else coding.values.index(self._state(upper))
        if first > last:
            raise ApiError(422, f"lower of {str(self.name)!r} must not come after upper")
        return (Values(coding.values[first : last + 1]),)

    def _state(self, value: Any) -> Any:
        assert isinstance(self.coding, States)
        for known in self.coding.values:
            # True is 1 to Python, but not to whoever asks.
            if known == value and isinstance(known, bool) == isinstance(value, bool):
                return known
        raise ApiError(422, f"{str(self.name)!r} has no value {shown(value)}")


def as_known(table: Table, evidence: Any, skip: Any = None) -> Known:
    """What is known of columns, all evidence of a column taken together.

    Args:
        table: The table.
        evidence: A list of ``{"column", "op", "negated"}`` with ``value``, ``values``, or ``lower``
            and ``upper``.
        skip: A column whose evidence is left out.
    """
    if evidence is None:
        evidence = []
    if not isinstance(evidence, list) or len(evidence) > _MOST_EVIDENCE:
        raise ApiError(400, f"evidence must be a list of at most {_MOST_EVIDENCE} objects")
    names = {str(name): name for name in table.names}
    known: dict[Any, Pieces] = {}
    for given in evidence:
        if not isinstance(given, Mapping) or given.get("op") not in _OPS:
            raise ApiError(400, "evidence must hold objects whose op is is, between or among")
        column = given.get("column")
        if not isinstance(column, str) or column not in names:
            raise ApiError(422, f"the table has no column {shown(column)}")
        name = names[column]
        if isinstance(table.coding(name), Constant | Identifier):
            raise ApiError(422, f"the model knows nothing of {column!r}, which was left out")
        terms = Terms(table, name)
        pieces = terms.pieces(given["op"], given)
        if given.get("negated"):
            domain = None if terms.coding.is_number else terms.domain()
            pieces = complement(pieces, domain)
        if name in known:
            pieces = intersection(known[name], pieces)
        if not pieces:
            raise ApiError(422, f"no value of {column!r} is all that is said of it")
        known[name] = pieces
    return {name: pieces for name, pieces in known.items() if name != skip or skip is None}


def posterior_of(model: TableModel, known: Known) -> TablePosterior:
    """All columns given what is known; refused where that cannot be."""
    count = math.prod(len(model.table.alternatives(name, known[name])) for name in known)
    if count > _MOST_ALTERNATIVES:
        raise ApiError(
            422,
            f"what is known comes true in {count:,} ways, more than the {_MOST_ALTERNATIVES} that "
            "are taken; say fewer single numbers",
        )
    try:
        posterior = model.given(dict(known))
    except ValueError as error:
        if "no cell can be" in str(error):
            raise ApiError(422, _impossible(list(known))) from None
        raise
    if posterior.log_evidence[0] == -math.inf:
        raise ApiError(422, _impossible(list(known)))
    return posterior


def _impossible(names: Sequence[Any]) -> str:
    listed = ", ".join(repr(str(name)) for name in names)
    return f"what is said of {listed} has probability 0 under the model"


def _instant(text: str, cells: CellType, name: Any) -> float:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ApiError(
            422, f"{str(name)!r} must have dates such as 2020-01-31, got {shown(text)}"
        ) from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return (moment - dt.datetime(1970, 1, 1)) / dt.timedelta(microseconds=1) / cells.per_unit


def _iso(number: float, cells: CellType) -> str | None:
    try:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=number * cells.per_unit)
    except OverflowError:
        # Python has no dates after the year 9999.
        return None
    if cells.per_unit % 86_400_000_000 == 0:
        # Means of days lie between them.
        return (moment + dt.timedelta(hours=12)).date().isoformat()
    text = moment.isoformat(timespec="seconds" if cells.per_unit >= 1_000_000 else "milliseconds")
    return text + ("Z" if cells.zone is not None else "")
