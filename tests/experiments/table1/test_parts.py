"""The parts of the experiment that need no training."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from einet.data import debd
from experiments.table1 import ablations, report
from experiments.table1.published import PUBLISHED, SOURCES, Published, Result
from experiments.table1.selection import choose
from experiments.table1.settings import KINDS, Kind, Settings, Stage, plan
from experiments.table1.significance import p_better
from experiments.table1.store import Store, read_json, write_json


def test_every_data_set_has_published_results():
    assert tuple(PUBLISHED) == debd.names()
    assert len({source.mark for source in SOURCES.values()}) == len(SOURCES)
    for published in PUBLISHED.values():
        sources = [result.source for result in published.results]
        assert len(set(sources)) == len(sources)
        assert set(sources) <= set(SOURCES)
        # Numbers of one data set are near each other: a slip of the pen would stand out.
        values = [result.value for result in published.results]
        assert 4 * max(values) < min(values) < 0
        assert published.best >= max(published.rat_spn, published.einet)
        assert published.best >= published.best_verified.value
        assert published.verified == SOURCES[published.source].verified
    assert (PUBLISHED["dna"].rat_spn, PUBLISHED["dna"].einet) == (-97.232, -96.086)
    assert (PUBLISHED["dna"].best, PUBLISHED["dna"].source) == (-79.05, "hclt")


def test_the_best_published_result():
    verified, other = Result("hclt", -6.0, 2), Result("id-spn", -6.0, 2)
    published = Published((other, verified, Result("einet", -6.015, 3)))
    assert published.best_result == verified == published.best_verified
    better = Result("id-spn", -5.99, 2)
    published = Published((better, verified))
    assert (published.best, published.source, published.verified) == (-5.99, "id-spn", False)
    assert published.best_verified == verified
    # Only what was published can be compared with: two decimals here.
    assert better.reached_by(-5.9949)
    assert not better.reached_by(-5.9951)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize(("variables", "rows"), [(16, 16181), (17, 291326), (180, 1600)])
def test_the_plan(kind: Kind, quick: bool, variables: int, rows: int):
    start, stages, members = plan(kind, variables, rows, quick)
    assert (members == 1) == (kind == "einsum")
    survivors = [start]
    for stage in stages:
        candidates = stage.candidates(survivors, rows)
        assert len(set(candidates)) == len(candidates) > 0
        for settings in candidates:
            assert settings.kind == kind
            assert 5 <= settings.epochs <= stage.most_epochs
            assert settings.num_sums > 0
            assert settings.trees > 0 or settings.kind != "learned"
            assert settings.sums == "einsum" or kind != "einsum"
            if kind != "learned":
                assert 1 <= settings.depth <= math.log2(variables)
                assert settings.replicas > 0
            assert Settings(**settings.to_dict()) == settings
        survivors = candidates[: stage.keep]


@pytest.mark.parametrize(("variables", "rows"), [(16, 16181), (180, 1600), (1556, 2461)])
@pytest.mark.parametrize("best", [0, 2, -1])
def test_one_einsum_network_is_searched_one_coordinate_at_a_time(
    variables: int, rows: int, best: int
):
    start, stages, _ = plan("einsum", variables, rows)
    survivors, trained = [start], dict.fromkeys([start])
    for stage in stages:
        candidates = stage.candidates(survivors, rows)
        trained |= dict.fromkeys(candidates)
        # What the next stage varies is among its candidates, and need not be trained again.
        assert stage.name in ("depth", "length") or set(survivors) & set(candidates)
        survivors = [candidates[min(best, len(candidates) - 1)], *candidates][: stage.keep]
    assert 20 <= len(trained) - 1 <= 35
    paper = next(s for s in trained if s.first_step == s.last_step == 0.5)
    assert (paper.num_sums, paper.replicas, paper.hide, paper.finish) == (10, 10, 0.0, 0)
    assert {1, 2, 4} <= {settings.depth for settings in trained}
    assert all(5 <= settings.num_sums <= 40 for settings in trained)
    assert {5, 10, 20} <= {settings.num_sums for settings in trained}


def test_choose_keeps_the_best_of_every_stage():
    def near(settings: Settings) -> list[Settings]:
        values = (settings.num_sums, settings.num_sums + 1, settings.num_sums + 4)
        return [Settings("rat", value) for value in values]

    asked: list[tuple[str, int]] = []

    def score(stage: str, settings: Settings) -> float | None:
        asked.append((stage, settings.num_sums))
        return None if settings.num_sums == 5 else -abs(settings.num_sums - 6.0)

    stages = [Stage("first", 10, 5, 2, near), Stage("second", 10, 5, 1, near)]
    chosen = choose(Settings("rat", 1), stages, 100, score)
    first = [number for stage, number in asked if stage == "first"]
    second = [number for stage, number in asked if stage == "second"]
    assert first == [1, 2, 5]
    assert second == [2, 3, 6, 1, 5]  # around 2 and 1, the best two that could be trained
    assert chosen.num_sums == 6
    with pytest.raises(RuntimeError, match="no model of the stage 'first'"):
        choose(Settings("rat", 1), stages, 100, lambda stage, settings: None)


def test_the_t_test_is_that_of_two_samples():
    generator = np.random.default_rng(0)
    ours = generator.normal(size=200)
    # A second sample with the same spread, of which only the mean is published.
    theirs = ours - ours.mean() - 0.1
    _, expected = stats.ttest_ind(ours, theirs, alternative="greater")
    found = p_better(ours.mean(), -0.1, float(ours.std(ddof=1)), 200)
    assert found == pytest.approx(expected)
    assert p_better(1.0, 0.0, 0.0, 5) == 0
    assert p_better(0.0, 1.0, 0.0, 5) == 1


def result(test_ll: float, kind: Kind = "rat") -> dict:
    return {
        "test_ll": test_ll,
        "test_se": 0.01,
        "test_row_se": 0.05,
        "test_row_sd": 3.0,
        "test_rows": 3236,
        "valid_ll": -6.1,
        "seeds": [1],
        "settings": Settings(kind, 10, depth=2, replicas=3, trees=1).to_dict(),
        "seconds": 12.3,
        "device": "cpu",
    }


def test_the_table():
    results = {
        "nltcs": {"rat": result(-6.0), "learned": result(-6.05, "learned")},
        "msnbc": {"rat": result(-6.2)},
    }
    table = report.markdown(results)
    best = "-5.99 ᶠ† (-5.999 ᶜ)"
    assert f"| nltcs | -6.011 | -6.015 | {best} | -6.000 ± 0.010 (0.050) ✓ | 0.42 |" in table
    assert "| msnbc | -6.039 | -6.119 | -6.039 ᵃ | -6.200" in table
    for line in ("- ᵃ RAT-SPN", "- ᶜ hidden", "- ᶠ† ensembles of LearnPSDD", "- † Not verified"):
        assert table.count(f"\n{line}") == 1
    assert "ᵈ" not in table
    assert "‡" not in table
    doubtful = report.legend({"each-movie": {}})
    assert "- ‡ Doubtful: each-movie, since" in doubtful
    assert "†" not in doubtful
    assert "-42.11 ᵈ‡ |" in report.markdown({"each-movie": {}})
    assert "-6.050 ± 0.010 (0.050) | 0.68 |" in table
    assert "-3.000 ± 0.010 (0.050) ✓ | <1e-99 |" in report.markdown({"nltcs": {"rat": result(-3)}})
    entries = "(single models with sums over outer products)"
    assert f"Random trees {entries}: at or above the paper's EiNet on 1 of 2" in table
    assert f"Learnt trees {entries}: at or above the paper's EiNet on 0 of 1" in table
    assert "at most 1 % below it on 1." in table
    assert "| nltcs | random trees | D 2 R 3 K 10 clusters λ 1→0.01 B 500 E 20+3 |" in table
    widths = {line.count("|") for line in table.splitlines() if line.startswith("|")}
    assert widths == {8, 9}
    assert "No data set is finished yet." in report.markdown({})


def test_the_store_writes_all_or_nothing(tmp_path: Path):
    store = Store(tmp_path / "new")
    assert store.results() == {}
    store.save("nltcs", "rat", {"tried": [{"valid_ll": -1.0}], "models": []})
    assert store.unfinished("nltcs", "rat")["tried"] == [{"valid_ll": -1.0}]
    assert store.unfinished("nltcs", "learned") == {"tried": [], "models": []}
    store.finish("plants", "rat", {"test_ll": -13.0}, list(debd.names()))
    store.finish("nltcs", "rat", {"test_ll": -6.0}, list(debd.names()))
    assert list(store.results()) == ["nltcs", "plants"]
    assert store.is_finished("nltcs", "rat")
    assert not store.is_finished("nltcs", "learned")
    before = store.results_path.read_text()
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(store.results_path, {"test_ll": math.nan})
    assert store.results_path.read_text() == before
    assert [path.name for path in store.folder.iterdir()] == ["results.json"]


def test_a_page_with_results():
    page = "before\n<!-- results -->\nold\n<!-- /results -->\nafter\n"
    found = report.refreshed(page, "new")
    assert found == "before\n<!-- results -->\nnew\n<!-- /results -->\nafter\n"
    assert report.pages({})["docs/table1.md"].startswith("No data set is finished yet.")
    with pytest.raises(ValueError, match="no place for results"):
        report.refreshed("nothing", "new")


def test_the_summary_says_what_the_entries_are():
    committed = read_json(Path(report.__file__).parent / "results.json", {})
    nltcs = committed["nltcs"]["learned"]
    said = report.summary({"nltcs": {"learned": nltcs}})
    assert "Learnt trees (each entry an equal mixture of 8 models with linear sums" in said
    assert "Random trees" not in said
    single = nltcs | {"settings": nltcs["settings"] | {"members": 1, "sums": "einsum"}}
    said = report.summary({"nltcs": {"learned": single}})
    assert "(single models with sums over outer products)" in said


def test_committed_results():
    """Tables are of the numbers beside them."""
    folder = Path(report.__file__).parent
    results = read_json(folder / "results.json", {})
    assert results
    assert report.markdown(results) == (folder / "results.md").read_text(encoding="utf-8")
    for name, text in report.pages(results).items():
        page = (folder.parents[1] / name).read_text(encoding="utf-8")
        assert report.refreshed(page, text) == page
    for name in ("ablations", "discarded"):
        rows = read_json(folder / f"{name}.json", [])
        assert ablations.markdown(rows) == (folder / f"{name}.md").read_text(encoding="utf-8")
