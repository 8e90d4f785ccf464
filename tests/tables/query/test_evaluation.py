"""Answers against enumeration of the rows."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from einet.tables.query import AskedColumn, QueryError, ask, condition_boxes
from tests.tables.query.conditions import CONDITIONS, Said
from tests.tables.query.enumeration import CELLS, COLUMNS, ROWS, Rows

SOURCE = Rows()


def kept(condition: Said) -> list[tuple[dict, float]]:
    """The rows of a condition by Python's own evaluation of it, with their probabilities."""
    pairs = zip(ROWS, SOURCE.weights, strict=True)
    return [(row, weight) for row, weight in pairs if condition.holds(row)]


def chance(condition: Said) -> float:
    return math.fsum(weight for _, weight in kept(condition))


@given(CONDITIONS)
def test_boxes_hold_just_the_rows_of_a_condition_and_each_once(condition):
    held = SOURCE.kept(condition_boxes(SOURCE, condition.text))
    expected = [id(row) for row, _ in kept(condition)]
    assert sorted(id(row) for row, _ in held) == sorted(expected)


@given(CONDITIONS, CONDITIONS)
@settings(max_examples=30)
def test_probabilities(event, condition):
    text = f"P({event.text} | {condition.text})"
    if chance(condition) == 0:
        with pytest.raises(QueryError, match="the condition has probability 0") as caught:
            ask(SOURCE, text)
        assert text[: caught.value.position].rstrip()[-1] == "|"
        return
    both = Said("", lambda row: event.holds(row) and condition.holds(row))
    answer = ask(SOURCE, text)
    assert answer.value == pytest.approx(chance(both) / chance(condition), abs=1e-12)
    assert answer.condition == pytest.approx(chance(condition))
    other = ask(SOURCE, f"P(not ({event.text}) | {condition.text})")
    assert answer.value + other.value == pytest.approx(1)


def quantile_of(column: str, rows, share: float):
    """The first value, in order, that reaches the share."""
    order = {value: place for place, value in enumerate(CELLS[column])}
    whole = math.fsum(weight for _, weight in rows)
    reached = 0.0
    for row, weight in sorted(rows, key=lambda pair: order[pair[0][column]]):
        reached += weight
        if reached >= share * whole - 1e-9:
            return row[column]
    raise AssertionError("no value reaches it")


@given(CONDITIONS, st.sampled_from(["age", "hours per week", "grade"]), st.floats(0.01, 0.99))
@settings(max_examples=10)
def test_means_and_quantiles(condition, column, share):
    rows = kept(condition)
    assume(rows)
    whole = math.fsum(weight for _, weight in rows)
    name = f'"{column}"'
    if column != "grade":
        mean = math.fsum(row[column] * weight for row, weight in rows) / whole
        assert ask(SOURCE, f"E({name} | {condition.text})").value == pytest.approx(mean)
    for text, part in ((f"median({name}", 0.5), (f"quantile({share!r}, {name}", share)):
        found = ask(SOURCE, f"{text} | {condition.text})").value
        expected = quantile_of(column, rows, part)
        assert found == (expected if column != "hours per week" else pytest.approx(expected))
    lower, upper = ask(SOURCE, f"interval({share!r}, {name} | {condition.text})").value
    outside = (1 - share) / 2
    ends = (quantile_of(column, rows, outside), quantile_of(column, rows, 1 - outside))
    assert (lower, upper) == (ends if column != "hours per week" else pytest.approx(ends))


@given(CONDITIONS, st.sampled_from(["sex", "grade", "member"]))
@settings(max_examples=20)
def test_distributions_and_modes(condition, column):
    rows = kept(condition)
    assume(rows)
    chances = ask(SOURCE, f"distribution({column} | {condition.text})").value
    whole = chance(condition)
    for value in CELLS[column]:
        part = math.fsum(weight for row, weight in rows if row[column] == value)
        assert chances[value] == pytest.approx(part / whole, abs=1e-12)
    mode = ask(SOURCE, f"mode({column} | {condition.text})").value
    assert chances[mode] == max(chances.values())
    if column == "member":
        mean = ask(SOURCE, f"E(member | {condition.text})").value
        assert mean == pytest.approx(chances[True])


def test_answers_are_told_in_the_words_of_the_column():
    assert str(ask(SOURCE, "P(sex='>50K' | age<1, age>0 or member)"))[:2] == "0."
    answer = ask(SOURCE, "mode(age | age in {2})")
    assert (answer.value, type(answer.value), str(answer)) == (2, int, "2")
    assert str(ask(SOURCE, "interval(0.5, age | 1<=age<=1)")) == "1 to 1"
    assert str(ask(SOURCE, "distribution(member | member)")) == "False  0\nTrue   1"
    assert ask(SOURCE, "distribution(age | age=3)").value == dict.fromkeys(
        (0.05, 0.25, 0.5, 0.75, 0.95), 3
    )
    for text in ("P(member)", "distribution(member)", "interval(0.5, age)", "mode(sex)"):
        plain = ask(SOURCE, text).to_dict()
        assert json.loads(json.dumps(plain)) == plain
        assert plain["query"] == text
        assert plain["condition"] is None


def test_quantiles_ask_for_many_candidates_at_once():
    source = Rows()
    ask(source, 'median("hours per week" | "hours per week" > 1)')
    assert source.asked < 20


@pytest.mark.parametrize(
    ("text", "said", "position"),
    [
        ("P(agee>3)", "there is no column 'agee'; did you mean 'age'", 2),
        ("P(3<agee)", "there is no column 'agee'; did you mean 'age'", 4),
        ("P(zzz=1)", "no column 'zzz'; there are 'age', 'hours per week'", 2),
        ("P('age'=3)", "there is no column in this comparison", 2),
        ("P(1<2)", "there is no column in this comparison", 2),
        ("E('age')", "names have no quotes, double ones or backticks", 2),
        ("P(Hours_Per_Week=1)", "did you mean 'hours per week'", 2),
        ("P(sex=female)", "'female' is no value of 'sex', which has 'Female', 'Male' and", 6),
        ("P(sex in {Male, x})", "'x' is no value of 'sex'", 16),
        ("P(sex<Male)", "the values of 'sex' have no order", 5),
        ("P(member<true)", "the values of 'member' have no order", 8),
        ("P(age=old)", "'old' is no number, as the values of 'age' are", 6),
        ("P(age=nan)", "'nan' is no number", 6),
        ("P(age<1e999)", "too large for a number", 6),
        ("P(age=1.2.3)", "'1.2.3' is no number", 6),
        ("P(age=age)", "'age' and 'age' are both columns", 5),
        ("P(age<`hours per week`)", "are both columns, which cannot be compared", 5),
        ("P(age)", "'age' by itself says nothing", 2),
        ("P(age is missing)", "knows no probability of missing cells", 2),
        ("P(member | age is not missing)", "knows no probability of missing cells", 11),
        ("E(sex)", "'sex' has values that are no numbers, so no mean; ask for its mode", 2),
        ("median(sex)", "'sex' has values without an order, so no quantiles", 7),
        ('mode("hours per week")', "too many numbers to try", 5),
        ("quantile(2, age)", "needs a number above 0 and below 1 first, got '2'", 9),
        ("quantile(age, age)", "needs a number above 0 and below 1 first, got 'age'", 9),
        ("P(member | age < 0)", "the condition has probability 0 under the model", 11),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_pointed_at(text, said, position):
    with pytest.raises(QueryError, match=said) as caught:
        ask(SOURCE, text)
    assert caught.value.position == position


def test_conditions_of_too_many_pieces_are_refused(monkeypatch):
    from einet.tables.query import algebra, evaluation

    def fewer(formula, domains):
        return algebra.disjoint_boxes(formula, domains, most=2)

    monkeypatch.setattr(evaluation, "disjoint_boxes", fewer)
    with pytest.raises(QueryError, match="too involved: it takes more than 2 disjoint pieces"):
        ask(SOURCE, "P(member or age=1 or sex=Male)")


@pytest.mark.parametrize("text", ["P(name=x)", "P(x=name)", "mode(name)", "P(name in {x})"])
def test_columns_that_were_left_out(text):
    source = Rows(ROWS, SOURCE.weights, {**COLUMNS, "name": AskedColumn("name", "left out")})
    with pytest.raises(QueryError, match="'name' was left out of the model") as caught:
        ask(source, text)
    assert caught.value.position == text.index("name")


def test_few_numbers_are_tried_one_by_one():
    columns = {**COLUMNS, "age": AskedColumn("age", "number", (0, 1, 2, 3))}
    source = Rows(ROWS, SOURCE.weights, columns)
    for text in ("median(age | member)", "mode(age)", "quantile(0.9, age)", "E(age)"):
        assert ask(source, text).value == ask(SOURCE, text).value


def test_names_and_values_may_be_alike():
    columns = {**COLUMNS, "Male": COLUMNS["member"]}
    source = Rows([{**row, "Male": True} for row in ROWS], SOURCE.weights, columns)
    with pytest.raises(QueryError, match="a value of that name needs single quotes"):
        ask(source, "P(sex=Male)")
    expected = ask(SOURCE, "P(sex=Male)").value
    assert ask(source, "P(sex='Male')").value == pytest.approx(expected)
