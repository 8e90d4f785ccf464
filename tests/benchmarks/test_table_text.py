"""What docs/tables.md says of results, from rows that are made up."""

from __future__ import annotations

from benchmarks import table_text
from benchmarks.table_tasks.recipe import RECIPES


def _rows(task: str, metric: str, **values: list[float]) -> list[dict]:
    return [
        {"table": "t", "task": task, "method": method.replace("_", " "), "metric": metric,
         "value": value, "seed": seed, "seconds": 1.0}
        for method, of in values.items() for seed, value in enumerate(of)
    ]  # fmt: skip


def test_means_over_seeds_and_who_is_behind():
    rows = _rows("outliers", "ROC AUC", einet=[0.7, 0.9], isolation_forest=[0.85, 0.85])
    text = table_text.results(rows)
    assert "(means over 2 seeds)" in text
    assert "| t " in text
    assert "0.8 " in text
    assert "**0.85**" in text
    assert "It is behind on t." in text


def test_what_is_less_and_what_is_level():
    """Of a log loss, less is better, and up to 5 % more counts as level."""
    metric = "log loss, 0% missing"
    ahead = table_text.results(_rows("prediction", metric, einet=[0.3], boosting=[0.4]))
    assert "einet is the best in 1 of 1 comparisons." in ahead
    assert "behind" not in ahead
    level = table_text.results(_rows("prediction", metric, einet=[0.41], boosting=[0.4]))
    assert "In the others it is behind by less than 5%." in level
    behind = table_text.results(_rows("prediction", metric, einet=[0.5], boosting=[0.4]))
    assert "It is behind by more than 5% on t (0 % missing)." in behind


def test_rows_of_an_earlier_recipe_are_marked():
    rows = _rows("outliers", "ROC AUC", einet=[0.7], isolation_forest=[0.8])
    assert "| t \\* " in table_text.results(rows)
    assert "\\* Measured with an earlier recipe of learning." in table_text.results(rows)
    present = [{**row, "recipe": RECIPES["outliers"]} for row in rows]
    assert "recipe" not in table_text.results(present)


def test_nothing_is_said_of_what_was_not_measured():
    assert table_text.results([]) == ""
    text = table_text.results(_rows("latency", "query ms, median", einet=[1.0]))
    assert "boosting" not in text
    assert "behind" not in text


def test_published_figures_are_quoted_as_such():
    rows = [
        {**row, "table": "magic"}
        for row in _rows("synthetic", "Trend", **{"einet on a GPU": [0.95]})
    ]
    text = table_text.results(rows)
    assert "Quoted from the papers of TabPC and TabDiff" in text
    assert "magic C2ST 0.860 and 0.773" in text
