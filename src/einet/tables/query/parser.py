"""From the text of a question to what it says.

question   := function '(' [number ','] target ['|' condition] ')'
condition  := either (',' either)*                     a comma is an 'and' that binds least
either     := both ('or' both)*
both       := one ('and' one)*
one        := 'not' one | '(' condition ')' | comparison
comparison := operand (sign operand)+
            | operand ['not'] 'in' '{' value (',' value)* '}'
            | operand 'is' ['not'] 'missing' | operand
"""

from __future__ import annotations

from typing import NoReturn

from einet.tables.query.errors import QueryError, near
from einet.tables.query.lexer import Token, tokens_of
from einet.tables.query.syntax import (
    FUNCTIONS,
    All,
    Any,
    Comparison,
    Condition,
    Membership,
    Missing,
    Not,
    Question,
    Truth,
)

__all__ = ["parse", "parse_condition"]

_COMPARES = ("=", "!=", "<", "<=", ">", ">=")
_KEYWORDS = ("and", "or", "not", "in", "is")
_MISSING = ("missing", "unknown", "null", "none", "na", "nan")
_CLOSING = {"{": "}", "[": "]", "(": ")"}
# Deeper than anybody writes, and shallow enough for Python's stack.
_DEEPEST = 50


def parse(text: str) -> Question:
    """The question in a text.

    Args:
        text: Such as ``P(income='>50K' | 30<=age<40, education in {Bachelors, Masters})``.

    Example:
        >>> question = parse("median(hours | sex=Female)")
        >>> question.function, question.column.text
        ('median', 'hours')
    """
    return _Parser(text).question()


def parse_condition(text: str) -> Condition:
    """A condition by itself, as after the bar of a question.

    >>> type(parse_condition("age < 40, sex=Female")).__name__
    'All'
    """
    return _Parser(text).alone()


class _Parser:
    """Reads tokens from left to right, one ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens_of(text)
        self.place = 0
        self.depth = 0

    # -- The question --

    def question(self) -> Question:
        name = self.take()
        known = FUNCTIONS.get(name.text.lower()) if name.kind == "word" else None
        if known is None:
            words = "P(…), E(…), median(…), quantile(q, …), interval(mass, …), mode(…) or "
            self.fail(
                f"a question begins with {words}distribution(…)", name, near(name.text, FUNCTIONS)
            )
        self.expect("(", f"after {name.text}")
        function, numbered = known
        number = None
        if numbered:
            number = self.operand("a number between 0 and 1")
            self.expect(",", f"after the number of {name.text}")
        event = column = condition = None
        target = self.ahead.position
        if function == "probability":
            event = self.condition()
        else:
            column = self.operand("the name of a column")
        known = self.ahead.position
        if self.accept("|"):
            known = self.ahead.position
            condition = self.condition()
        self.close(name)
        return Question(self.text, function, number, event, column, condition, (target, known))

    def alone(self) -> Condition:
        condition = self.condition()
        if self.ahead.kind != "end":
            self.unexpected("the end")
        return condition

    def close(self, name: Token) -> None:
        if self.ahead.text == "|" and self.ahead.kind == "sign":
            self.fail("there is one bar already; write 'or' for alternatives", self.ahead)
        self.expect(")", f"to end {name.text}(")
        if self.ahead.kind != "end":
            self.unexpected("the end")

    # -- Conditions --

    def condition(self) -> Condition:
        parts = [self.either()]
        while self.accept(","):
            parts.append(self.either())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def either(self) -> Condition:
        parts = [self.both()]
        while self.accept_word("or"):
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def both(self) -> Condition:
        parts = [self.one()]
        while self.accept_word("and"):
            parts.append(self.one())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def one(self) -> Condition:
        start = self.ahead
        if self.accept_word("not"):
            with self.deeper(start):
                return Not(self.one())
        if self.accept("("):
            with self.deeper(start):
                inner = self.condition()
            self.expect(")", "to end the parenthesis")
            return inner
        return self.comparison()

    def comparison(self) -> Condition:
        first = self.operand("a comparison such as age < 40")
        negated = self.is_word("not") and self.is_word("in", further=1)
        if negated:
            self.take()
        if self.accept_word("in"):
            inside = Membership(first, self.values())
            return Not(inside) if negated else inside
        if self.accept_word("is"):
            return self.missing(first)
        operands, signs = [first], []
        while self.ahead.kind == "sign" and self.ahead.text in _COMPARES:
            signs.append(self.take())
            operands.append(self.operand("a value; those that begin with a sign need quotes"))
        return Comparison(tuple(operands), tuple(signs)) if signs else Truth(first)

    def missing(self, column: Token) -> Condition:
        negated = self.accept_word("not")
        word = self.take()
        if word.kind != "word" or word.text.lower() not in _MISSING:
            self.fail("after 'is' comes 'missing'; for a value, write '='", word)
        return Not(Missing(column)) if negated else Missing(column)

    def values(self) -> tuple[Token, ...]:
        opening = self.take()
        if opening.kind != "sign" or opening.text not in _CLOSING:
            self.fail("after 'in' come values in braces, such as {a, b}", opening)
        values = [self.operand("a value")]
        while self.accept(","):
            values.append(self.operand("a value"))
        self.expect(_CLOSING[opening.text], "to end the values")
        return tuple(values)

    def operand(self, wanted: str) -> Token:
        token = self.ahead
        if token.kind in ("sign", "end") or (token.kind == "word" and token.text in _KEYWORDS):
            self.unexpected(wanted)
        return self.take()

    # -- Tokens --

    @property
    def ahead(self) -> Token:
        return self.tokens[self.place]

    def take(self) -> Token:
        token = self.ahead
        # The end stays where it is, whoever reads on.
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def accept(self, sign: str) -> bool:
        is_it = self.ahead.kind == "sign" and self.ahead.text == sign
        if is_it:
            self.take()
        return is_it

    def is_word(self, word: str, further: int = 0) -> bool:
        token = self.tokens[min(self.place + further, len(self.tokens) - 1)]
        return token.kind == "word" and token.text == word

    def accept_word(self, word: str) -> bool:
        is_it = self.is_word(word)
        if is_it:
            self.take()
        return is_it

    def expect(self, sign: str, what: str) -> None:
        if not self.accept(sign):
            self.unexpected(f"{sign!r} {what}")

    def unexpected(self, wanted: str) -> NoReturn:
        token = self.ahead
        hint = ""
        if token.kind == "word" and token.text.lower() in _KEYWORDS and token.text not in _KEYWORDS:
            hint = f"; write {token.text.lower()!r} in small letters"
        elif token.kind == "word" and self.place and self.tokens[self.place - 1].kind == "word":
            hint = "; names and values of several words need quotes"
        got = "the end" if token.kind == "end" else repr(token.text)
        self.fail(f"expected {wanted}, got {got}", token, hint)

    def fail(self, message: str, token: Token, hint: str = "") -> NoReturn:
        raise QueryError(message + hint, self.text, token.position)

    def deeper(self, token: Token) -> _Depth:
        if self.depth >= _DEEPEST:
            self.fail(f"parentheses and nots are nested more than {_DEEPEST} deep", token)
        return _Depth(self)


class _Depth:
    """Counts how deep a parser is."""

    def __init__(self, parser: _Parser) -> None:
        self.parser = parser

    def __enter__(self) -> None:
        self.parser.depth += 1

    def __exit__(self, *_: object) -> None:
        self.parser.depth -= 1
