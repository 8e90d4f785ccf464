"""Campaigns count, repeat themselves and keep what failed."""

import json

import pytest

from tests.fuzz.campaign import Campaign


def test_a_short_run_tries_the_same_cases_every_time(tmp_path):
    def drawn(folder):
        values = []

        def case(random, _):
            values.append(random.integers(1 << 30))
            return "even" if values[-1] % 2 == 0 else "odd"

        return Campaign(folder).run("numbers", case, 5), values

    (report, values), (again, same) = drawn(tmp_path / "a"), drawn(tmp_path / "b")
    assert report == again
    assert values == same
    assert report.tried == 5 == sum(report.answers.values())
    assert len(set(values)) == 5


def test_a_long_run_has_a_new_seed_and_goes_on_for_its_time(tmp_path):
    runs = [Campaign(tmp_path, seconds=0.02).run("n", lambda *_: "fine", 1) for _ in range(2)]
    assert runs[0].seed != runs[1].seed
    assert min(run.tried for run in runs) > 1


def test_a_failing_case_is_kept_and_can_be_tried_alone(tmp_path):
    def case(random, folder):
        value = int(random.integers(10))
        (folder / "value.txt").write_text(str(value))
        (folder / "inner").mkdir()
        assert value != 3
        return "fine"

    with pytest.raises(AssertionError) as raised:
        Campaign(tmp_path, seed=1).run("threes", case, 1000)
    (kept,) = tmp_path.iterdir()
    assert (kept / "value.txt").read_text() == "3"
    number = int(kept.name.split("-")[-1])
    assert f"--fuzz-seed 1 --fuzz-case {number}" in "".join(raised.value.__notes__)
    with pytest.raises(AssertionError):
        Campaign(tmp_path / "alone", seed=1, only=number).run("threes", case, 1000)
    report = Campaign(tmp_path / "other", seed=1, only=number + 1).run("any", lambda *_: "fine", 9)
    assert report.tried == 1


def test_counts_are_written(tmp_path):
    Campaign(tmp_path / "work", results=tmp_path / "results").run("n", lambda *_: "fine", 3)
    written = json.loads((tmp_path / "results" / "n.json").read_text())
    assert written["tried"] == 3
    assert written["answers"] == {"fine": 3}
