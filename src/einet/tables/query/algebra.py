r"""Any combination of what columns may be, as boxes that do not overlap.

A condition is first of all a formula of *atoms*, each of which says something of one column.
A column at a time is decided: its atoms cut its values into cells; each cell makes every one of
them true or false, and leaves a formula of the other columns. Cells that leave the same formula are
one. Each way to "true" is a box, and no two of them overlap:

.. math:: P(A \lor B) = P(A) + P(\lnot A \land B)

The number of boxes is what such a question costs. An "and" of any number of columns is one box, an
"or" of :math:`n` of them :math:`n`; worst are conditions such as "an odd number of these".
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from einet.tables.constraints import (
    Box,
    Interval,
    Pieces,
    Values,
    complement,
    covers,
    intersection,
    union,
)

__all__ = ["MOST_BOXES", "Atom", "Both", "Either", "Formula", "all_of", "any_of", "disjoint_boxes"]

#: More boxes than these are refused.
MOST_BOXES = 4096
# So many formulas are looked at for each box that there may be: some lead to none.
_STEPS_A_BOX = 4


@dataclass(frozen=True)
class Atom:
    """One column lies in some pieces: neither in none of its values nor surely in one of them."""

    column: str
    pieces: Pieces


@dataclass(frozen=True)
class Both:
    """Formulas that all hold; atoms are of distinct columns."""

    parts: frozenset[Formula]


@dataclass(frozen=True)
class Either:
    """Formulas of which one holds at least; atoms are of distinct columns."""

    parts: frozenset[Formula]


#: What rows may satisfy; True and False where all or none do.
Formula = bool | Atom | Both | Either


def all_of(formulas: Iterable[Formula]) -> Formula:
    """The formula that all of these hold.

    Example:
        >>> old, young = (Atom("age", (Interval(60),)), Atom("age", (Interval(upper=20),)))
        >>> all_of([old, young]), all_of([])
        (False, True)
    """
    return _combined(formulas, Both, absorbing=False)


def any_of(formulas: Iterable[Formula]) -> Formula:
    """The formula that one of these holds.

    Example:
        >>> any_of([Atom("age", (Interval(60),)), Atom("age", (Interval(upper=60),))])
        True
    """
    return _combined(formulas, Either, absorbing=True)


def _combined(formulas: Iterable[Formula], kind: type[Both | Either], absorbing: bool) -> Formula:
    """Formulas joined and made simpler; ``absorbing`` is what decides as soon as one is it."""
    columns: dict[str, Pieces] = {}
    others: set[Formula] = set()
    parts: list[Formula] = []
    for formula in formulas:
        parts.extend(formula.parts if isinstance(formula, kind) else [formula])
    for part in parts:
        if isinstance(part, bool):
            if part is absorbing:
                return absorbing
        elif isinstance(part, Atom):
            before = columns.get(part.column)
            if before is None:
                pieces = part.pieces
            elif kind is Both:
                pieces = intersection(before, part.pieces)
            else:
                pieces = union(before + part.pieces)
            if not pieces:
                return False
            columns[part.column] = pieces
        else:
            others.add(part)
    if any(pieces == (Interval(),) for pieces in columns.values()):
        # All numbers. That a set has all values of its column is found where it is cut into cells.
        if absorbing:
            return True
        columns = {name: pieces for name, pieces in columns.items() if pieces != (Interval(),)}
    joined = frozenset(others | {Atom(name, pieces) for name, pieces in columns.items()})
    if not joined:
        return not absorbing
    return next(iter(joined)) if len(joined) == 1 else kind(joined)


def disjoint_boxes(
    formula: Formula,
    domains: Mapping[str, Iterable[Hashable] | None],
    most: int = MOST_BOXES,
) -> list[Box]:
    """Boxes that do not overlap and hold just the rows that satisfy a formula.

    Args:
        formula: The formula.
        domains: For each column, all its values, or None if it has numbers.
        most: More boxes than these are refused with a ValueError.

    Example:
        >>> young, poor = Atom("age", (Interval(upper=20),)), Atom("rich", (Values(["no"]),))
        >>> domains = {"age": None, "rich": ["no", "yes"]}
        >>> for box in disjoint_boxes(any_of([young, poor]), domains):
        ...     print({name: str(pieces[0]) for name, pieces in box.items()})
        {'age': '(-inf, 20]'}
        {'age': '(20, inf)', 'rich': '{no}'}
    """
    boxes: list[Box] = []
    waiting: list[tuple[Formula, dict[str, Pieces]]] = [(formula, {})]
    steps = 0
    while waiting:
        left, box = waiting.pop()
        if left is True:
            boxes.append(box)
        steps += not isinstance(left, bool)
        if len(boxes) > most or steps > most * _STEPS_A_BOX:
            raise ValueError(f"it takes more than {most:,} disjoint pieces, which is too many")
        if not isinstance(left, bool):
            waiting += [(rest, {**box, **more}) for rest, more in reversed(_step(left, domains))]
    return boxes


def _step(
    formula: Atom | Both | Either, domains: Mapping[str, Iterable[Hashable] | None]
) -> list[tuple[Formula, dict[str, Pieces]]]:
    """Decide some columns: what is left of a formula in each of several boxes of them."""
    counts = Counter(atom.column for atom in _atoms(formula))
    parts = formula.parts if isinstance(formula, Both | Either) else frozenset([formula])
    # Columns that one atom alone speaks of, which must hold, or may.
    single = [part for part in parts if isinstance(part, Atom) and counts[part.column] == 1]
    if not single:
        column = min(counts, key=lambda column: (-counts[column], column))
        return _cells(formula, column, domains[column])
    single.sort(key=lambda atom: atom.column)
    rest = parts.difference(single)
    others = {atom.column: complement(atom.pieces, domains[atom.column]) for atom in single}
    if not isinstance(formula, Either):
        # What leaves nothing out says nothing.
        return [
            (all_of(rest), {atom.column: atom.pieces for atom in single if others[atom.column]})
        ]
    # The first of them holds, or the second and not the first, …, or none of them.
    ways: list[tuple[Formula, dict[str, Pieces]]] = []
    before: dict[str, Pieces] = {}
    for atom in single:
        if not others[atom.column]:
            return [*ways, (True, before)]
        ways.append((True, {**before, atom.column: atom.pieces}))
        before = {**before, atom.column: others[atom.column]}
    return [*ways, (any_of(rest), before)]


def _atoms(formula: Formula) -> Iterable[Atom]:
    if isinstance(formula, Atom):
        yield formula
    elif isinstance(formula, Both | Either):
        for part in formula.parts:
            yield from _atoms(part)


def _cells(
    formula: Formula, column: str, domain: Iterable[Hashable] | None
) -> list[tuple[Formula, dict[str, Pieces]]]:
    """What is left of a formula in each cell of a column, in the order of their least values."""
    kept = list({atom.pieces: None for atom in _atoms(formula) if atom.column == column})
    parts: dict[tuple[bool, ...], list[Interval | Values]] = {}
    if domain is None:
        for part in _elements(kept):
            parts.setdefault(tuple(_holds(pieces, part) for pieces in kept), []).append(part)
    else:
        for value in domain:
            truth = tuple(covers(pieces, value) for pieces in kept)
            parts.setdefault(truth, []).append(Values([value]))
    left: dict[Formula, list[Interval | Values]] = {}
    for truth, members in parts.items():
        known = dict(zip(kept, truth, strict=True))
        left.setdefault(_decided(formula, column, known), []).extend(members)
    if len(left) == 1:
        # Whatever the column is.
        return [(rest, {}) for rest in left]
    return [(rest, {column: union(members)}) for rest, members in left.items()]


def _decided(formula: Formula, column: str, known: Mapping[Pieces, bool]) -> Formula:
    """The formula once each atom of a column is true or false."""
    if isinstance(formula, Atom):
        return known[formula.pieces] if formula.column == column else formula
    if isinstance(formula, Both | Either):
        decide = partial(_decided, column=column, known=known)
        join = all_of if isinstance(formula, Both) else any_of
        return join(map(decide, formula.parts))
    return formula


def _elements(columns: Iterable[Pieces]) -> list[Interval]:
    """All ends of intervals, and what lies between two of them, in ascending order."""
    intervals = [piece for pieces in columns for piece in pieces if isinstance(piece, Interval)]
    ends = sorted({end for piece in intervals for end in (piece.lower, piece.upper)})
    finite = [end for end in ends if math.isfinite(end)]
    elements = []
    for start, end in itertools.pairwise([-math.inf, *finite, math.inf]):
        elements.append(Interval(start, end, False, False))
        if end != math.inf:
            elements.append(Interval.at(end))
    return elements


def _holds(pieces: Pieces, element: Interval) -> bool:
    """Whether an element lies in some pieces: by their ends, as no number may lie between two."""
    if element.is_point:
        return covers(pieces, element.lower)
    intervals = (piece for piece in pieces if isinstance(piece, Interval))
    return any(piece.lower <= element.lower and element.upper <= piece.upper for piece in intervals)
