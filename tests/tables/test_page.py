"""The example of docs/tables.md runs, on a table with the same columns."""

import re
from pathlib import Path

import numpy as np
import pandas
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


@pytest.mark.skipif(not PAGE.exists(), reason="documents are in the repository only")
def test_from_a_csv_to_what_if(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    passengers(200).to_csv("titanic.csv", index=False)
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    names: dict = {}
    exec(compile(code.group(1), "tables.md", "exec"), names)
    answers = capsys.readouterr().out.splitlines()
    assert 0 < float(answers[0]) < 1
    assert not names["full"].isna().any(axis=None)
    assert (names["new"]["pclass"] == 1).all()
    assert len(names["new"]) == 100
    assert (tmp_path / "titanic.einet").exists()


def passengers(count: int) -> pandas.DataFrame:
    """Rows like those of the Titanic's passengers, a fifth of their ages missing."""
    generator = np.random.default_rng(0)
    female = generator.random(count) < 0.35
    pclass = generator.integers(1, 4, count)
    survived = generator.random(count) < 0.15 + 0.5 * female + 0.1 * (3 - pclass)
    age = generator.normal(30, 13, count).clip(0.5, 80).round()
    age[generator.random(count) < 0.2] = np.nan
    return pandas.DataFrame(
        {
            "survived": survived.astype(int), "pclass": pclass,
            "sex": np.where(female, "female", "male"), "age": age,
            "fare": (90 / pclass**2 * generator.lognormal(0, 0.5, count)).round(2),
            "embarked": generator.choice(["S", "C", "Q"], count, p=[0.7, 0.2, 0.1]),
        }
    )  # fmt: skip
