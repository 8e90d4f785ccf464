"""The words and signs of a question, each with its place in the text."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from einet.tables.query.errors import QueryError

__all__ = ["Kind", "Token", "tokens_of"]

#: ``word``: a name, a number or a bare value; ``text``: one in quotes; ``sign``: all else.
Kind = Literal["word", "text", "sign", "end"]


class Token(NamedTuple):
    """A word or a sign.

    Attributes:
        kind: What it is.
        text: What it says, without quotes.
        position: Where it begins.
        quote: The quote that it was in: ``'``, ``"``, a backtick, or nothing.
    """

    kind: Kind
    text: str
    position: int
    quote: str = ""


# Words may hold signs between their letters: capital-gain, 2020-01-31T12:00, 7th-8th, 1e-3.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?(?![\w.:/%-])")
_WORD = re.compile(r"[+-]?[\w.]+([-:/%][\w.]+)*%?")
_SIGNS = re.compile(r"<=|>=|==|!=|<>|&&|\|\||[<>=|(){}\[\],&!~]")
_SPACE = re.compile(r"\s+")
# How others write them.
_SAME = {"≤": "<=", "≥": ">=", "≠": "!=", "<>": "!=", "==": "=", "∣": "|"}
_INSTEAD = {"&": "and", "&&": "and", "||": "or", "!": "not", "~": "not"}


def tokens_of(text: str) -> list[Token]:
    """The tokens of a question, and one for its end.

    A quote within quotes of its kind is written twice: ``'it''s'``.

    Example:
        >>> [token.text for token in tokens_of("P('>50K' | 30<=age)")]
        ['P', '(', '>50K', '|', '30', '<=', 'age', ')', '']
    """
    tokens: list[Token] = []
    place = 0
    while place < len(text):
        if space := _SPACE.match(text, place):
            place = space.end()
            continue
        token, place = _next(text, place)
        tokens.append(token)
    return [*tokens, Token("end", "", len(text))]


def _next(text: str, place: int) -> tuple[Token, int]:
    """The token that begins here, and where it ends."""
    char = text[place]
    if char in "'\"`":
        return _quoted(text, place)
    if char in "≤≥≠∣":
        return Token("sign", _SAME[char], place), place + 1
    # A minus of typographers begins a number as the other one does.
    if char == "−":
        number = _NUMBER.match("-" + text[place + 1 :])
        if number is not None:
            return Token("word", number.group(), place), place + number.end()
    found = _NUMBER.match(text, place) or _WORD.match(text, place)
    if found is not None:
        return Token("word", found.group(), place), found.end()
    sign = _SIGNS.match(text, place)
    if sign is None:
        raise QueryError(
            f"{char!r} has no meaning here; values with signs need quotes", text, place
        )
    if sign.group() in _INSTEAD:
        instead = _INSTEAD[sign.group()]
        raise QueryError(f"{sign.group()!r} has no meaning; write {instead!r}", text, place)
    return Token("sign", _SAME.get(sign.group(), sign.group()), place), sign.end()


def _quoted(text: str, place: int) -> tuple[Token, int]:
    quote, parts, start = text[place], [], place + 1
    while True:
        end = text.find(quote, start)
        if end < 0:
            raise QueryError(f"the quote {quote} has no other to end it", text, place)
        parts.append(text[start:end])
        if text[end + 1 : end + 2] != quote:
            return Token("text", quote.join(parts), place, quote), end + 1
        start = end + 2
