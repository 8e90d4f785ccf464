"""The columns of a table as questions see them."""

from __future__ import annotations

from typing import Any

from einet.tables.cells import CellType
from einet.tables.columns import Binned, Coding, Constant, Identifier, Number, Spiked, States
from einet.tables.query.columns import AskedColumn, AskedColumns
from einet.tables.schema import Table

__all__ = ["asked_columns"]

_SECOND = 1_000_000


def asked_columns(table: Table) -> AskedColumns:
    """All columns of a table.

    Args:
        table: The table.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"age": [22.5, 38.25] * 8, "sex": ["m", "f"] * 8})
        >>> columns = asked_columns(Table.of(frame))
        >>> columns["age"].values, columns["sex"].values
        ((22.5, 38.25), ('f', 'm'))
    """
    columns: dict[str, AskedColumn] = {}
    for name in table.names:
        if str(name) in columns:
            raise ValueError(f"columns must have distinct names to be asked for, got {name!r}")
        columns[str(name)] = _asked(str(name), table.coding(name), table.types[name])
    return columns


def _asked(name: str, coding: Coding, kind: CellType) -> AskedColumn:
    values: tuple[Any, ...] = ()
    if isinstance(coding, States):
        values = tuple(coding.values)
    elif isinstance(coding, Constant) and coding.value is not None:
        values = (coding.value,)
    number = coding.number if isinstance(coding, Spiked) else coding
    if isinstance(coding, Identifier) or (not values and not isinstance(number, Number | Binned)):
        # Names of rows, or a column without any value.
        return AskedColumn(name, "left out")
    if not coding.is_number:
        flags = all(isinstance(value, bool) for value in values)
        ordered = isinstance(coding, States) and coding.ordered and not flags
        return AskedColumn(name, "boolean" if flags else "category", values, ordered)
    what: Any = {"Datetime": "date", "Date": "date", "Time": "time"}.get(kind.name, "number")
    unit = kind.per_unit / _SECOND if kind.is_temporal else 1
    if not isinstance(number, Number | Binned):
        values = tuple(int(value) for value in values) if kind.is_whole else values
        return AskedColumn(name, what, values, lower=min(values), upper=max(values), unit=unit)
    spikes = tuple(coding.spikes.tolist()) if isinstance(coding, Spiked) else ()
    return AskedColumn(
        name,
        what,
        step=None if number.decimals is None else _step(number.decimals),
        lower=min([number.smallest, *spikes]),
        upper=max([number.largest, *spikes]),
        spikes=spikes,
        unit=unit,
    )


def _step(decimals: int) -> float | int:
    return 10**-decimals if decimals <= 0 else 10.0**-decimals
