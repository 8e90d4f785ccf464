"""How much the columns of a table tell of one another, given evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from einet.data.events import Between, between
from einet.inference.few_rows import MOST_ROWS, FewPosterior
from einet.models.base import Model
from einet.tables.bins import Bins
from einet.tables.columns import Binned, Spiked, States
from einet.tables.leaves import few_leaves
from einet.tables.piece import Piece
from einet.tables.posterior import TablePosterior
from einet.tables.schema import Table

__all__ = ["column_information"]

# More alternatives than these would take too long: each is asked for every part of every column.
_MOST_ALTERNATIVES = 64


@dataclass(frozen=True)
class _Row:
    """One part of a column, in one alternative of the evidence, as a model takes it."""

    z: Float[np.ndarray, " variables"]
    events: Mapping[int, Any]
    part: int
    log_change: float
    known: Mapping[int, Any]


def column_information(
    posterior: TablePosterior, bins: Mapping[Any, Bins]
) -> Float[np.ndarray, "columns columns"]:
    r"""The mutual information of all pairs of columns given the evidence, in nats.

    .. math:: I(A; B) = \sum_{a, b} P(a, b \mid e)
              \log \frac{P(a, b \mid e)}{P(a \mid e)\, P(b \mid e)}

    over the parts a and b of two columns. It is about columns as a whole: one with spikes is two
    variables of the model, but its parts are the spikes and the bins of all other numbers. All
    probabilities are exact. So is the information where both columns have states; of numbers it is
    that of their bins, which is never more than that of the numbers themselves.

    Every part of a column is further evidence, which one pass up and one down answer for all other
    columns, several of them at a time.

    Args:
        posterior: The distribution given one row of evidence.
        bins: The parts of each column that is to be told of.

    Returns:
        A symmetric matrix, in the order of ``bins``, NaN on its diagonal.

    Example:
        >>> import einet, pandas
        >>> frame = pandas.DataFrame({"a": ["x", "y"] * 50, "b": ["x", "y"] * 50})
        >>> model = einet.TableModel.fit(frame, epochs=20)
        >>> bins = {name: Bins(model.table.coding(name)) for name in ("a", "b")}
        >>> bool(column_information(model.given(), bins)[0, 1] > 0.6)
        True
    """
    if len(posterior) != 1:
        raise ValueError(f"posterior must be given one row of evidence, got {len(posterior)}")
    if len(posterior.pieces) > _MOST_ALTERNATIVES:
        raise ValueError(
            f"the evidence makes {len(posterior.pieces)} alternatives, more than the "
            f"{_MOST_ALTERNATIVES} that information between columns is asked for"
        )
    posterior.check_possible()
    names = list(bins)
    answer = np.full((len(names), len(names)), np.nan)
    # The column of most parts is never what is conditioned on.
    order = sorted(range(len(names)), key=lambda place: len(bins[names[place]]))
    for number, place in enumerate(order):
        others = order[number + 1 :]
        found = _joints(posterior, names[place], bins, [names[other] for other in others])
        for other, joint in zip(others, found, strict=True):
            answer[place, other] = answer[other, place] = _information(joint)
    return answer


def _information(joint: Float[np.ndarray, "a b"]) -> float:
    joint = joint / joint.sum()
    product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    some = (joint > 0) & (product > 0)
    return max(0.0, float((joint[some] * np.log(joint[some] / product[some])).sum()))


def _joints(
    posterior: TablePosterior, column: Any, bins: Mapping[Any, Bins], others: Sequence[Any]
) -> list[Float[np.ndarray, "parts others"]]:
    """P(part, part of another | e) of a column and each of several others."""
    model, table = posterior.model, posterior.table
    rows = _rows(posterior, column, bins[column])
    joints = [np.zeros((len(bins[column]), len(bins[other]))) for other in others]
    total = float(posterior.log_model_evidence[0])
    for start in range(0, len(rows), MOST_ROWS):
        some = rows[start : start + MOST_ROWS]
        z = np.stack([row.z for row in some])
        events = [row.events for row in some]
        few = FewPosterior.of(model, z, events)
        pieces = _pieces(model, z, events, few)
        if few is None:
            logs = np.array([piece.log_evidence[0] for piece in pieces])
        else:
            logs = few.log_evidence
        weights = np.exp(logs + [row.log_change for row in some] - total)
        parts = np.array([row.part for row in some])
        possible = np.flatnonzero(weights > 0)
        for other, joint in zip(others, joints, strict=True):
            masses = _masses(table, other, bins[other], few, z, events)
            if masses is None:
                masses = np.zeros((len(some), len(bins[other])))
                for row in possible.tolist():
                    known = some[row].known
                    masses[row] = _row_masses(table, other, bins[other], pieces[row], known)
            np.add.at(joint, parts, weights[:, None] * masses)
    return joints


def _rows(posterior: TablePosterior, column: Any, bins: Bins) -> list[_Row]:
    """All parts of a column in all alternatives of the evidence that can be."""
    start = posterior.table.variables(column).start
    changes = posterior.evidence.log_changes
    rows = []
    for number, piece in enumerate(posterior.pieces):
        if not posterior.shares[number, 0] > 0:
            continue
        change = 0.0 if changes is None else float(changes[number])
        known = posterior.evidence.alternatives[number]
        if isinstance(bins.coding, Binned):
            for part, z, events, share in _cut(piece, start, bins, known.get(start)):
                rows.append(_Row(z, events, part, change + math.log(share), known))
            continue
        for part, (values, ends) in enumerate(_meanings(bins)):
            found = _narrowed(piece.z[0], piece.events, start, values, ends)
            if found is not None:
                rows.append(_Row(*found, part, change, known))
    return rows


def _meanings(bins: Bins) -> list[tuple[dict[int, float], tuple[float, float] | None]]:
    """What each part says of the column's variables: a state, and the ends of a number."""
    first = 1 if isinstance(bins.coding, Spiked) else 0
    parts: list[tuple[dict[int, float], tuple[float, float] | None]] = [
        ({0: float(number + first)}, None) for number in range(len(bins.values))
    ]
    none: dict[int, float] = {0: 0.0} if isinstance(bins.coding, Spiked) else {}
    return [*parts, *((none, ends) for ends in bins.ends())]


def _narrowed(
    z: Float[np.ndarray, " variables"],
    events: Mapping[int, Any],
    start: int,
    values: Mapping[int, float],
    ends: tuple[float, float] | None,
) -> tuple[Float[np.ndarray, " variables"], Mapping[int, Any]] | None:
    """An alternative in which a column is also in a part; None where it cannot be."""
    z, known = z.copy(), dict(events)
    for place, value in values.items():
        variable = start + place
        event = known.pop(variable, None)
        if event is not None and value not in event.values.tolist():
            return None
        if not np.isnan(z[variable]) and z[variable] != value:
            return None
        z[variable] = value
    if ends is None:
        return z, known
    variable = start + len(values)
    if not np.isnan(z[variable]):
        return (z, known) if ends[0] < z[variable] <= ends[1] else None
    event = known.get(variable)
    low, high = ends
    if isinstance(event, Between):
        low, high = max(low, float(event.lower)), min(high, float(event.upper))
    if not low < high:
        return None
    return z, {**known, variable: between(low, high)}


def _cut(
    piece: Piece, variable: int, bins: Bins, event: Any
) -> Iterator[tuple[int, Float[np.ndarray, " variables"], Mapping[int, Any], float]]:
    """An alternative in which a column in bins is also in each of its parts that it can be in.

    Where the bin is known already it comes with the share of the bin that is in the part.
    """
    coding, z = bins.coding, piece.z[0]
    assert isinstance(coding, Binned)
    if not np.isnan(z[variable]):
        shares = bins.of_bins(event)[int(z[variable])]
        yield from ((int(part), z, piece.events, shares[part]) for part in np.flatnonzero(shares))
        return
    for part, (low, high) in enumerate(bins.ends()):
        both = ((max(a, low), min(b, high)) for a, b in coding.segments_of(event))
        segments = [(a, b) for a, b in both if a < b]
        if segments:
            yield part, z, {**piece.events, variable: coding.event(segments)}, 1.0


def _pieces(
    model: Model, z: np.ndarray, events: Sequence[Mapping[int, Any]], few: FewPosterior | None
) -> list[Piece]:
    return [
        Piece(model, z[row : row + 1], known, None if few is None else few.at(row))
        for row, known in enumerate(events)
    ]


def _masses(
    table: Table,
    column: Any,
    bins: Bins,
    few: FewPosterior | None,
    z: Float[np.ndarray, "rows variables"],
    events: Sequence[Mapping[int, Any]],
) -> Float[np.ndarray, "rows parts"] | None:
    """The parts of a column in all rows at once; None where rows know something of it."""
    variables = table.variables(column)
    is_open = np.isnan(z[:, list(variables)]).all()
    if few is None or not is_open or any(v in known for known in events for v in variables):
        return None
    if isinstance(bins.coding, States):
        return few.probabilities(variables.start)
    if isinstance(bins.coding, Binned):
        states = few.probabilities(variables.start)
        return None if states is None else states @ bins.of_bins()
    found, shares = few.leaves(variables[-1]), np.ones((len(z), 1))
    if isinstance(bins.coding, Spiked):
        beside = few.leaves_given(variables[-1], variables.start, 0)
        states = few.probabilities(variables.start)
        if beside is None or states is None:
            return None
        found, shares = iter(beside), states
    leaves = few_leaves(found, len(z))
    return bins.joined(shares, bins.of_leaves(leaves, (-np.inf, np.inf), len(z)))


def _row_masses(
    table: Table, column: Any, bins: Bins, piece: Piece, known: Mapping[int, Any]
) -> Float[np.ndarray, " parts"]:
    """The same of one row, whatever it knows."""
    variables = table.variables(column)
    if isinstance(bins.coding, States):
        return piece.probabilities(variables.start)[0]
    if isinstance(bins.coding, Binned):
        parts = bins.of_bins(known.get(variables.start))
        return piece.probabilities(variables.start)[0] @ parts
    shares, beside = np.ones((1, 1)), None
    if isinstance(bins.coding, Spiked):
        shares, beside = piece.probabilities(variables.start), variables.start
    ends = (-np.inf, np.inf)
    event, value = piece.events.get(variables[-1]), float(piece.z[0, variables[-1]])
    if isinstance(event, Between):
        ends = float(event.lower), float(event.upper)
    elif not np.isnan(value):
        ends = value, value
    numbers = np.zeros((1, len(bins.edges) + 1))
    if shares[0, 0] > 0:
        numbers = bins.of_leaves(piece.leaves(variables[-1], beside), ends, 1)
    return bins.joined(shares, numbers)[0]
