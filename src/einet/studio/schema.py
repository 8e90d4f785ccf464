"""What the columns of a table are, as the page shows them and as they can be corrected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from einet.studio.answers import ApiError
from einet.studio.files import Data
from einet.tables.cells import CellType
from einet.tables.columns import Binned, Coding, Constant, Identifier, Number, Spiked, States

__all__ = ["corrections", "describe_schema", "kind_of", "kinds_for"]

_EXAMPLES = 5
# So many rows are looked at for examples.
_LOOKED_AT = 1000

_NUMBERS = ("continuous", "positive", "bounded", "integer", "spiked", "states", "bins")
_OBJECTS = ("categories", "ordered")


def describe_schema(data: Data) -> dict[str, Any]:
    """The columns of a table: their kinds, examples, and how much is missing."""
    columns = []
    for name, coding in data.table.codings.items():
        cells = data.frame[name]
        kind = data.table.types[name]
        some = cells.head(_LOOKED_AT).dropna().drop_duplicates().head(_EXAMPLES)
        columns.append(
            {
                "name": str(name),
                "kind": kind_of(coding, kind),
                "description": coding.describe(),
                "missing": int(cells.isna().sum()),
                "examples": [_shown(cell) for cell in some.tolist()],
                "kinds": kinds_for(coding, kind),
            }
        )
    return {
        "name": data.name,
        "rows": len(data.frame),
        "columns": columns,
        "warnings": list(data.warnings),
    }


def kind_of(coding: Coding, kind: CellType) -> str:
    """The word for what a column was taken for."""
    if isinstance(coding, Identifier):
        return "identifier"
    if isinstance(coding, Constant):
        return "constant"
    if isinstance(coding, States):
        if all(isinstance(value, bool) for value in coding.values):
            return "boolean"
        return "states" if coding.is_number else "ordered" if coding.ordered else "categories"
    if isinstance(coding, Binned):
        return "bins"
    if kind.is_temporal:
        return "time"
    if isinstance(coding, Spiked):
        return "spiked"
    assert isinstance(coding, Number)
    if coding.decimals is not None and coding.decimals <= 0:
        return "integer"
    if math.isfinite(coding.smallest) and math.isfinite(coding.largest):
        return "bounded"
    return "positive" if coding.smallest == 0 else "continuous"


def kinds_for(coding: Coding, kind: CellType) -> list[str]:
    """What a column may be taken for: what it was, and what else its cells allow."""
    if kind.is_temporal:
        kinds = ["time", "states", "bins"]
    elif kind.is_numeric:
        kinds = [*_NUMBERS, *_OBJECTS]
        number = coding.number if isinstance(coding, Spiked) else coding
        if isinstance(number, Binned) and number.smallest < 0:
            kinds.remove("positive")
        if isinstance(number, Number) and number.seen is not None and number.seen[0] < 0:
            kinds.remove("positive")
        if isinstance(number, Number | Binned) and (number.decimals is None or number.decimals > 0):
            kinds.remove("integer")
    else:
        kinds = list(_OBJECTS)
    found = kind_of(coding, kind)
    others = [other for other in (*kinds, "identifier") if other != found]
    return [found, *others]


def corrections(data: Data, columns: Any) -> dict[Any, str]:
    """What a training is told of columns: those that were given another kind.

    Args:
        data: The table.
        columns: The kind of some columns, by name.
    """
    if not isinstance(columns, Mapping):
        raise ApiError(400, "columns must be an object with the kind of each column by its name")
    names = {str(name): name for name in data.table.names}
    told = {}
    for given, kind in columns.items():
        name = names.get(given)
        if given not in names:
            raise ApiError(422, f"the table has no column {given!r}")
        coding, cells = data.table.coding(name), data.table.types[name]
        if kind in ("automatic", kind_of(coding, cells)):
            continue
        allowed = kinds_for(coding, cells)
        if kind not in allowed:
            raise ApiError(422, f"{given!r} must be one of {', '.join(allowed)}, got {kind!r}")
        told[name] = kind
    return told


def _shown(cell: Any) -> Any:
    """A cell for the eye: text that is long is cut."""
    if isinstance(cell, bool | int | float):
        return cell
    text = cell.isoformat() if hasattr(cell, "isoformat") else str(cell)
    return text if len(text) <= 60 else text[:60] + "…"
