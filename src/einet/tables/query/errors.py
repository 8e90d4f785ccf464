"""What is wrong with a question, and where in its text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = ["QueryError", "near", "some"]

# So much of the text does an error show, and so many values or names.
_MOST_CHARACTERS, _MOST_SHOWN = 24, 8


class QueryError(ValueError):
    """A question that cannot be read or answered.

    Args:
        message: What is wrong, in one line.
        text: The whole question.
        position: Where in it, counted from 0.

    Attributes:
        message: The same, without the place.
        text: The question.
        position: The place.

    Example:
        >>> error = QueryError("there is no column 'agee'", "P(agee > 30)", 2)
        >>> print(error)
        there is no column 'agee' (at character 3: agee > 30))
        >>> print(error.pointed())
        P(agee > 30)
          ^ there is no column 'agee'
    """

    def __init__(self, message: str, text: str, position: int) -> None:
        self.message, self.text, self.position = message, text, position
        rest = " ".join(text[position:].split())
        cut = rest if len(rest) <= _MOST_CHARACTERS else rest[:_MOST_CHARACTERS] + "…"
        super().__init__(f"{message} (at character {position + 1}: {cut or 'the end'})")

    def __reduce__(self) -> Any:
        return QueryError, (self.message, self.text, self.position)

    def pointed(self) -> str:
        """The question with a caret below the character, for a terminal."""
        # Whatever is in the text, it stays one line and every character takes one place.
        line = "".join(char if char.isprintable() else " " for char in self.text)
        return f"{line}\n{' ' * self.position}^ {self.message}"


def near(word: str, known: Iterable[str]) -> str:
    """A guess at what was meant, for the end of an error; nothing where nothing is near.

    >>> near("agee", ["age", "sex"])
    "; did you mean 'age'?"
    """
    names = list(known)
    # Others write the same name in capitals, or with other signs between its words.
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(_plain(name), name)
    found = difflib.get_close_matches(_plain(word), plain, n=1)
    return f"; did you mean {plain[found[0]]!r}?" if found else ""


def some(values: Iterable[Any]) -> str:
    """Some values, for an error that can be read.

    >>> some(["a", "b"])
    "'a' and 'b'"
    """
    shown = [repr(value) for value in values]
    more = len(shown) - _MOST_SHOWN
    if more > 0:
        return f"{', '.join(shown[:_MOST_SHOWN])} and {more} more"
    return " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else "".join(shown)


def _plain(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())
