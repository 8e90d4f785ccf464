"""Questions to a model of a table, against enumeration and numerical integration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas
import pytest
import torch

import einet
from einet.tables.query import QueryError, ask, condition_boxes
from einet.tables.query.table_source import TableSource
from einet.tables.schema import Table


def frame(rows: int = 400) -> pandas.DataFrame:
    generator = np.random.default_rng(0)
    gain = np.where(generator.random(rows) < 0.6, 0.0, generator.gamma(2.0, 300.0, rows))
    return pandas.DataFrame(
        {
            "sex": generator.choice(["Female", "Male"], rows),
            "children": generator.integers(0, 4, rows),
            "member": generator.random(rows) < 0.5,
            "height": generator.normal(1.7, 0.1, rows),
            "gain": gain,
        }
    )


@pytest.fixture(scope="module")
def source() -> TableSource:
    """A model of a table whose parameters are random, in float64."""
    table = Table.of(frame())
    graph = einet.random_trees(table.num_variables, depth=2, replicas=2, seed=0)
    model = einet.Einet(graph, table.families(), num_sums=3, seed=0).double()
    model.initialize(table.encode(frame()), seed=0)
    return TableSource(model, table)


@pytest.fixture(scope="module")
def drawn(source) -> pandas.DataFrame:
    """Many rows of the model."""
    return source.table.decode(source.model.sample(40_000, seed=1).numpy())


CONDITIONS = [
    ("sex=Female", lambda t: t["sex"] == "Female"),
    ("children>=2", lambda t: t["children"] >= 2),
    ("1<=children<3, member", lambda t: (t["children"] >= 1) & (t["children"] < 3) & t["member"]),
    ("height<1.65", lambda t: t["height"] < 1.65),
    ("not 1.6<height<1.8", lambda t: ~((t["height"] > 1.6) & (t["height"] < 1.8))),
    ("gain=0", lambda t: t["gain"] == 0),
    ("gain<=500", lambda t: t["gain"] <= 500),
    ("gain>0", lambda t: t["gain"] > 0),
    (
        "sex=Male or height>1.75 or gain>300",
        lambda t: (t["sex"] == "Male") | (t["height"] > 1.75) | (t["gain"] > 300),
    ),
    (
        "not (sex=Male and (children in {0, 3} or gain=0))",
        lambda t: ~((t["sex"] == "Male") & (t["children"].isin([0, 3]) | (t["gain"] == 0))),
    ),
]


@pytest.mark.parametrize(("text", "where"), CONDITIONS, ids=[text for text, _ in CONDITIONS])
def test_probabilities_are_those_of_draws(source, drawn, text, where):
    expected = float(where(drawn).mean())
    error = 5 * math.sqrt(max(expected * (1 - expected), 1e-4) / 40_000)
    found = ask(source, f"P({text})").value
    assert found == pytest.approx(expected, abs=error)
    assert found + ask(source, f"P(not ({text}))").value == pytest.approx(1, abs=1e-9)


def test_discrete_columns_are_enumerated(source):
    sexes, counts, flags = ("Female", "Male"), range(4), (False, True)
    rows = pandas.DataFrame(
        list(itertools.product(sexes, counts, flags)), columns=["sex", "children", "member"]
    )
    chances = source.model.log_prob(torch.as_tensor(source.table.encode(rows))).exp().numpy()
    # The weights of a model add up to 1 but for rounding, in float32 as it was made.
    assert chances.sum() == pytest.approx(1, abs=1e-6)
    chances /= chances.sum()
    for text, where in (
        ("sex=Female", rows["sex"] == "Female"),
        ("children!=1 and member", (rows["children"] != 1) & rows["member"]),
        ("sex=Male or not member", (rows["sex"] == "Male") | ~rows["member"]),
    ):
        assert ask(source, f"P({text})").value == pytest.approx(chances[where].sum(), abs=1e-9)
    both = (rows["sex"] == "Male") & (rows["children"] >= 2)
    found = ask(source, "P(sex=Male | children>=2)").value
    assert found == pytest.approx(chances[both].sum() / chances[rows["children"] >= 2].sum())
    mean = (chances * rows["children"]).sum()
    assert ask(source, "E(children)").value == pytest.approx(mean)


@pytest.mark.parametrize(("column", "condition"), [("height", "sex=Female"), ("gain", "member")])
def test_medians_agree_with_probabilities(source, column, condition):
    median = ask(source, f"median({column} | {condition})").value
    assert ask(source, f"P({column}<={median!r} | {condition})").value >= 0.5 - 1e-9
    assert ask(source, f"P({column}<{median!r} | {condition})").value <= 0.5 + 1e-9


def test_means_are_those_of_draws(source, drawn):
    error = 5 * drawn["gain"].std() / math.sqrt(len(drawn))
    assert ask(source, "E(gain)").value == pytest.approx(drawn["gain"].mean(), abs=error)


def test_a_point_is_evidence_by_its_density(source):
    known = pandas.DataFrame({"height": [1.7, 1.7], "sex": ["Female", "Male"]})
    logs = source.model.log_prob(torch.as_tensor(source.table.encode(known)))
    expected = (logs[0].exp() / logs.exp().sum()).item()
    assert ask(source, "P(sex=Female | height=1.7)").value == pytest.approx(expected)
    with pytest.raises(QueryError, match="one value of a continuous column"):
        ask(source, "P(height=1.7)")


def test_draws_satisfy_their_condition_and_spread_as_they_should(source):
    event = condition_boxes(source, "gain<=400, sex=Female or height>1.8")
    drawn = source.table.decode(source.sample(4000, event, seed=3).numpy())
    assert (drawn["gain"] <= 400).all()
    assert ((drawn["sex"] == "Female") | (drawn["height"] > 1.8)).all()
    expected = ask(source, "P(gain=0 | gain<=400, sex=Female or height>1.8)").value
    error = 5 * math.sqrt(expected * (1 - expected) / 4000)
    assert (drawn["gain"] == 0).mean() == pytest.approx(expected, abs=error)
    again = source.table.decode(source.sample(4000, event, seed=3).numpy())
    pandas.testing.assert_frame_equal(drawn, again)
    with pytest.raises(ValueError, match="probability 0"):
        source.sample(10, condition_boxes(source, "children=7"), seed=0)


class ByBoxes(TableSource):
    """A source that knows no shorter way."""

    def marginal(self, column, event):
        return None


@pytest.mark.parametrize(
    "text",
    [
        "E(height | sex=Female)",
        "E(gain | height<1.65)",
        "E(gain | gain<=500)",
        "median(height | sex=Male or gain>300)",
        "median(gain | children>=2)",
        "quantile(0.9, gain | gain>0)",
        "interval(0.8, height | 1.6<height<1.8)",
    ],
)
def test_the_shorter_way_gives_the_same(source, text):
    short = ask(source, text).value
    long = ask(ByBoxes(source.model, source.table), text).value
    # Boxes leave out what lies beyond a share of 1e-13.
    assert short == pytest.approx(long, rel=1e-6)


def test_distributions_list_few_numbers_and_tell_many_by_quantiles(source):
    chances = ask(source, "distribution(children | member)").value
    assert list(chances) == [0, 1, 2, 3]
    assert all(type(value) is int for value in chances)
    for value, chance in chances.items():
        asked = ask(source, f"P(children={value} | member)").value
        assert chance == pytest.approx(asked, abs=1e-12)
    assert sum(chances.values()) == pytest.approx(1)
    # Numbers that the condition rules out are there, with nothing.
    assert ask(source, "distribution(children | children>=2)").value[0] == 0
    assert list(ask(source, "distribution(height)").value) == [0.05, 0.25, 0.5, 0.75, 0.95]
