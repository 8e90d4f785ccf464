"""What a question says, before anybody knows the columns."""

from __future__ import annotations

from dataclasses import dataclass

from einet.tables.query.lexer import Token

__all__ = [
    "FUNCTIONS",
    "All",
    "Any",
    "Comparison",
    "Condition",
    "Membership",
    "Missing",
    "Not",
    "Question",
    "Truth",
]


@dataclass(frozen=True)
class Comparison:
    """Operands with a sign between each two: ``30 <= age < 40``.

    Attributes:
        operands: Names and values.
        signs: ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
    """

    operands: tuple[Token, ...]
    signs: tuple[Token, ...]


@dataclass(frozen=True)
class Membership:
    """``education in {Bachelors, Masters}``."""

    column: Token
    values: tuple[Token, ...]


@dataclass(frozen=True)
class Missing:
    """``age is missing``, which is read so that it can be refused."""

    column: Token


@dataclass(frozen=True)
class Truth:
    """A name by itself, which must be that of a column of true and false."""

    column: Token


@dataclass(frozen=True)
class Not:
    """What does not hold."""

    part: Condition


@dataclass(frozen=True)
class All:
    """Parts that all hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Any:
    """Parts of which one holds at least."""

    parts: tuple[Condition, ...]


#: What rows may satisfy.
Condition = Comparison | Membership | Missing | Truth | Not | All | Any

#: What can be asked, by the names that it goes by, and whether a number comes first.
FUNCTIONS = {
    "p": ("probability", False),
    "e": ("mean", False),
    "mean": ("mean", False),
    "median": ("median", False),
    "quantile": ("quantile", True),
    "interval": ("interval", True),
    "mode": ("mode", False),
    "distribution": ("distribution", False),
}


@dataclass(frozen=True)
class Question:
    """A whole question: ``function(number, target | condition)``.

    Attributes:
        text: As it was written.
        function: ``probability``, ``mean``, ``median``, ``quantile``, ``interval``, ``mode`` or
            ``distribution``.
        number: Of a quantile which, of an interval its mass.
        event: What a probability is asked of.
        column: What all others are asked of.
        condition: What is known.
        places: Where the target begins, and where what is known does.
    """

    text: str
    function: str
    number: Token | None
    event: Condition | None
    column: Token | None
    condition: Condition | None
    places: tuple[int, int]
