"""The shape of questions, and what is said of those that have none."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet.tables.query.errors import QueryError
from einet.tables.query.parser import parse, parse_condition
from einet.tables.query.syntax import All, Any, Comparison, Membership, Missing, Not, Truth


def written(condition) -> str:
    """A condition with every parenthesis that it could have."""
    if isinstance(condition, Comparison):
        words = [condition.operands[0].text]
        for sign, operand in zip(condition.signs, condition.operands[1:], strict=True):
            words += [sign.text, operand.text]
        return "".join(words)
    if isinstance(condition, Membership):
        return f"{condition.column.text} in {'/'.join(value.text for value in condition.values)}"
    if isinstance(condition, Missing):
        return f"{condition.column.text}?"
    if isinstance(condition, Truth):
        return condition.column.text
    if isinstance(condition, Not):
        return f"-{written(condition.part)}"
    assert isinstance(condition, All | Any)
    return (
        f"({(' & ' if isinstance(condition, All) else ' + ').join(map(written, condition.parts))})"
    )


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a=1 or b=2 and c=3", "(a=1 + (b=2 & c=3))"),
        ("a=1 or b=2, c=3", "((a=1 + b=2) & c=3)"),
        ("not a=1 and b=2", "(-a=1 & b=2)"),
        ("not (a=1, b=2)", "-(a=1 & b=2)"),
        ("not not a", "--a"),
        ("1<a<=2=b", "1<a<=2=b"),
        ("a in {x, 'y z', 3}", "a in x/y z/3"),
        ("a not in [x]", "-a in x"),
        ("a in (x)", "a in x"),
        ("a is missing or b is not unknown", "(a? + -b?)"),
        ("((a))", "a"),
    ],
)
def test_conditions(text, meaning):
    assert written(parse_condition(text)) == meaning


@pytest.mark.parametrize(
    ("text", "function", "number", "column"),
    [
        ("P(a=1)", "probability", None, None),
        ("p ( a=1 | b=2 )", "probability", None, None),
        ("E(a | b=2)", "mean", None, "a"),
        ("mean(a)", "mean", None, "a"),
        ('median("a b")', "median", None, "a b"),
        ("quantile(0.9, `a`| b)", "quantile", "0.9", "a"),
        ("interval(.9, a)", "interval", ".9", "a"),
        ("mode(a)", "mode", None, "a"),
        ("distribution(a)", "distribution", None, "a"),
    ],
)
def test_questions(text, function, number, column):
    question = parse(text)
    assert question.function == function
    assert (question.number and question.number.text) == number
    assert (question.column and question.column.text) == column
    assert (question.event is None) == (function != "probability")
    assert (question.condition is not None) == ("|" in text)


@pytest.mark.parametrize(
    ("text", "said", "position"),
    [
        ("", "a question begins with P", 0),
        ("Q(a)", "a question begins with", 0),
        ("medain(a)", "did you mean 'median'", 0),
        ("P a=1", "expected '\\(' after P, got 'a'", 2),
        ("P(a=1", "expected '\\)' to end P\\(, got the end", 5),
        ("P(a=1))", "expected the end, got '\\)'", 6),
        ("P()", "expected a comparison such as age < 40, got '\\)'", 2),
        ("P(a=1 | b=1 | c=1)", "there is one bar already", 12),
        ("P(a= >50K)", "those that begin with a sign need quotes, got '>'", 5),
        ("P(a=United States)", "of several words need quotes", 11),
        ("P(a=1 AND b=2)", "write 'and' in small letters", 6),
        ("P(a in b)", "values in braces", 7),
        ("P(a in {})", "expected a value, got '}'", 8),
        ("P(a in {b])", "expected '}' to end the values, got ']'", 9),
        ("P(a is 3)", "after 'is' comes 'missing'", 7),
        ("quantile(a)", "expected ',' after the number of quantile", 10),
        ("quantile(0.5 a)", "expected ','", 13),
        ("E(a, b)", "expected '\\)' to end E\\(, got ','", 3),
        ("P(" + "(" * 60 + "a", "nested more than 50 deep", 52),
        ("P(" + "not " * 60 + "a)", "nested more than 50 deep", 202),
    ],
)
def test_mistakes_are_pointed_at(text, said, position):
    with pytest.raises(QueryError, match=said) as caught:
        parse(text)
    error = caught.value
    assert (error.position, error.text) == (position, text)
    assert "\n" not in str(error)
    line, caret = error.pointed().split("\n")
    assert len(line) == len(text)
    assert caret.index("^") == position


def test_errors_can_be_sent_to_other_processes():
    error = QueryError("wrong", "P(a)", 2)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.message, copy.text, copy.position) == ("wrong", "P(a)", 2)


SIGNS = ["P(", "E(", "a", "=", "1", "|", ",", ")", "(", "not", "in", "{", "}", "<", "'", "is", " "]


@given(st.lists(st.sampled_from(SIGNS), max_size=12).map("".join) | st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    position = None
    try:
        parse(text)
    except QueryError as error:
        position = error.position
    assert position is None or 0 <= position <= len(text)
