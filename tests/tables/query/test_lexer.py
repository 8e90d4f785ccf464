"""Words and signs, and where they are."""

import pytest

from einet.tables.query.errors import QueryError
from einet.tables.query.lexer import tokens_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("30<=age<40", ["30", "<=", "age", "<", "40"]),
        ("a≤1,b≠2", ["a", "<=", "1", ",", "b", "!=", "2"]),
        ("x==-1.5e-3", ["x", "=", "-1.5e-3"]),
        ("x>−2", ["x", ">", "-2"]),
        ("x <> .5", ["x", "!=", ".5"]),
        ("capital-gain=7th-8th", ["capital-gain", "=", "7th-8th"]),
        ("day>=2020-01-31T12:00", ["day", ">=", "2020-01-31T12:00"]),
        ("größe in {ä, 5%}", ["größe", "in", "{", "ä", ",", "5%", "}"]),
        ("'it''s' \"a b\" `c``d`", ["it's", "a b", "c`d"]),
        ("", []),
    ],
)
def test_tokens(text, words):
    tokens = tokens_of(text)
    assert [token.text for token in tokens] == [*words, ""]
    assert tokens[-1].kind == "end"
    assert [token.position for token in tokens] == sorted(token.position for token in tokens)


@pytest.mark.parametrize(
    ("text", "said", "position"),
    [
        ("a = 'b", "the quote ' has no other", 4),
        ("a && b", "write 'and'", 2),
        ("a || b", "write 'or'", 2),
        ("!a", "write 'not'", 0),
        ("a = b * 2", "'\\*' has no meaning here", 6),
        ("a = \x00", "has no meaning here", 4),
    ],
)
def test_what_cannot_be_read_is_pointed_at(text, said, position):
    with pytest.raises(QueryError, match=said) as caught:
        tokens_of(text)
    assert caught.value.position == position
    assert caught.value.text == text
