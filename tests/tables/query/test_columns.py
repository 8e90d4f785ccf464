"""Values as they are written, and what they name."""

from datetime import UTC, datetime

import pytest

from einet.tables.query.columns import AskedColumn, as_category, as_span, from_seconds, to_seconds
from einet.tables.query.errors import QueryError
from einet.tables.query.lexer import Token

DAY = AskedColumn("day", "date")


def span(text: str):
    return as_span(DAY, Token("text", text, 0, "'"), text)


def seconds(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "first", "end"),
    [
        ("2020-01-31", (2020, 1, 31), (2020, 2, 1)),
        ("2020-02", (2020, 2, 1), (2020, 3, 1)),
        ("2020", (2020, 1, 1), (2021, 1, 1)),
        ("2019-12", (2019, 12, 1), (2020, 1, 1)),
    ],
)
def test_a_date_is_all_of_its_day_month_or_year(text, first, end):
    found = span(text)
    assert (found.lower, found.upper) == (seconds(*first), seconds(*end))
    assert found.closed_lower
    assert not found.closed_upper


@pytest.mark.parametrize(
    "text", ["2020-01-31 12:00", "2020-01-31T12:00:00", "2020-01-31T13:00+01:00"]
)
def test_a_time_of_day_is_a_point(text):
    assert span(text).is_point
    assert span(text).lower == seconds(2020, 1, 31, 12)


@pytest.mark.parametrize(
    "text", ["yesterday", "2020-13", "2020-02-30", "0000", "31.1.2020", "99999"]
)
def test_what_is_no_date(text):
    with pytest.raises(QueryError, match="is no date such as '2020-01-31'"):
        span(text)


def test_units_of_dates_and_times():
    in_days = AskedColumn("day", "date", step=1, unit=86400)
    found = as_span(in_days, Token("word", "1970-01-03", 0), "")
    assert (found.lower, found.upper, found.closed_upper) == (2, 3, False)
    assert in_days.shown(2) == "1970-01-03"
    clock = AskedColumn("at", "time", unit=60)
    assert as_span(clock, Token("word", "12:30", 0), "").lower == 750
    assert (clock.shown(750.0), clock.shown(0.0)) == ("12:30:00", "00:00")
    with pytest.raises(QueryError, match="'noon' is no time such as '12:30'"):
        as_span(clock, Token("word", "noon", 0), "noon")


def test_seconds_come_back_as_text():
    assert from_seconds(to_seconds(datetime(2020, 1, 31))) == "2020-01-31"
    assert from_seconds(to_seconds(datetime(2020, 1, 31, 12))) == "2020-01-31 12:00:00"
    assert from_seconds(1e300) == "1e+300 seconds since 1970"
    assert DAY.shown(0.0) == "1970-01-01"


@pytest.mark.parametrize(
    ("values", "word", "value"),
    [
        ((1, 2), "2", 2),
        ((1, 2), "2.0", 2),
        ((1.5, 2.5), "1.50", 1.5),
        (("1", "2"), "2", "2"),
        ((False, True), "yes", True),
        ((False, True), "0", False),
        ((False, True), "True", True),
    ],
)
def test_words_name_categories(values, word, value):
    column = AskedColumn("c", "boolean" if values[1] is True else "category", values)
    found = as_category(column, Token("word", word, 0), word)
    assert found == value
    assert type(found) is type(value)


def test_numbers_as_their_users_know_them():
    assert AskedColumn("n", "number", step=1).shown(3.0) == 3
    assert type(AskedColumn("n", "number", step=1).shown(3.0)) is int
    assert AskedColumn("n", "number", step=0.5).shown(3.0) == 3.0
    assert type(AskedColumn("n", "number").shown(3.0)) is float
    assert type(AskedColumn("n", "number", (3, 4)).shown(3)) is int
