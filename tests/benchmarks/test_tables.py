"""The benchmark of tables: its measures against brute force, and the keys of its rows."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn", reason="the tasks of tables need scikit-learn")

import einet
from benchmarks.table_tasks import (
    chow_liu,
    data,
    draws,
    encoding,
    fidelity,
    imputation,
    joining,
    recipe,
    results,
)


def row(value: float, **other: object) -> dict:
    plain = {"table": "a", "task": "density", "method": "m", "metric": "x", "seed": 0}
    return {**plain, "value": value, "seconds": 0.0, **other}


def test_a_row_replaces_that_of_its_key_and_no_other():
    rows = results.merge([], row(1.0))
    for field, other in (
        ("table", "b"),
        ("task", "c"),
        ("method", "n"),
        ("metric", "y"),
        ("seed", 1),
    ):
        rows = results.merge(rows, row(2.0, **{field: other}))
    assert len(rows) == 6
    rows = results.merge(rows, row(3.0))
    assert [r["value"] for r in rows] == [3.0, 2.0, 2.0, 2.0, 2.0, 2.0]


def test_rows_are_kept_beside_their_machine(tmp_path: Path):
    path = tmp_path / "tables.json"
    results.keep(path, [row(1.0), row(2.0, seed=1)], "cpu", {"miceforest": "not installed"})
    results.keep(path, [row(4.0)], "cpu", {})
    assert [r["value"] for r in results.store.load(path)] == [4.0, 2.0]
    machine = json.loads((tmp_path / "tables-machine.json").read_text())
    assert all(
        call["command"].startswith("python benchmarks/tables.py") for call in machine["calls"]
    )
    assert "density: x" in results.summary(results.store.load(path))
    assert "| a     | 3 (2) |" in results.summary(results.store.load(path))


def test_a_table_has_rows_of_one_recipe_only(tmp_path: Path):
    path, now = tmp_path / "tables.json", recipe.RECIPES["density"]
    results.keep(path, [row(1.0, method="einet", seed=s) for s in range(3)], "cpu", {})
    results.keep(path, [row(2.0, method="tree"), row(3.0, method="mixture")], "cpu", {})
    results.keep(path, [row(4.0, method="einet", task="latency")], "cpu", {})
    results.keep(path, [row(5.0, method="einet", table="b")], "cpu", {})
    assert not results.is_stored(results.store.load(path), "density", "a", "einet", 0)
    results.keep(path, [row(6.0, method="einet", recipe=now)], "cpu", {})
    stored = results.store.load(path)
    # What is not learnt, other tasks and other tables stay.
    assert [r["value"] for r in stored] == [6.0, 3.0, 4.0, 5.0]
    assert results.is_stored(stored, "density", "a", "einet", 0)
    assert not results.is_stored(stored, "density", "a", "einet", 1)
    assert results.is_stored(stored, "density", "a", "mixture", 0)


def test_runs_of_other_machines_are_joined(tmp_path: Path):
    path, elsewhere = tmp_path / "tables.json", tmp_path / "runs"
    results.keep(path, [row(1.0), row(2.0, method="n")], "cpu", {})
    here = len(json.loads((tmp_path / "tables-machine.json").read_text())["calls"])
    for seed in (1, 0):
        call = {"command": f"tables.py --tasks density --seeds {seed} --output r{seed}.json"}
        call |= {"device": "other", "absent": {f"seed {seed}": "refused"}}
        results.put(elsewhere / str(seed) / f"r{seed}.json", [row(5.0, seed=seed)], [call])
    (elsewhere / "states.json").write_text("{}")
    assert joining.join(elsewhere, path, note="two at once") == 2
    values = {(r["method"], r["seed"]): r["value"] for r in results.store.load(path)}
    assert values == {("m", 0): 5.0, ("m", 1): 5.0, ("n", 0): 2.0}
    calls = json.loads((tmp_path / "tables-machine.json").read_text())["calls"]
    assert len(calls) == here + 1
    assert calls[-1] == {
        "command": "tables.py --tasks density --seeds 0 1",
        "device": "other",
        "absent": {"seed 0": "refused", "seed 1": "refused"},
        "note": "two at once",
    }
    with pytest.raises(SystemExit, match="no rows with their machine"):
        joining.join(tmp_path / "nothing", path)
    results.put(elsewhere / "old.json", [row(1.0, method="einet", recipe=1)], [call])
    with pytest.raises(SystemExit, match="earlier recipe"):
        joining.join(elsewhere, path)


def test_rows_drawn_elsewhere_come_back_as_they_were(tmp_path: Path, monkeypatch):
    frame = pd.DataFrame({"code": ["1", "2", "2"] * 20, "size": np.arange(60) / 8})
    monkeypatch.setattr("table_tasks.synthetic.split", lambda *_: (frame, frame))
    learnt = []

    def learn(train: pd.DataFrame, seed: int, device: str, epochs: int | None = None):
        learnt.append((seed, device, epochs))
        return train.sample(frac=1.0, random_state=seed), 1.5, 0.25

    monkeypatch.setattr(draws, "learn_and_draw", learn)
    draws.draw(tmp_path, ["one", "two"], [3, 4], None, "cpu")
    assert learnt == [(3, "cpu", None), (3, "cpu", None), (4, "cpu", None), (4, "cpu", None)]
    drawn, learning, sampling = draws.read_draws(tmp_path, "two", 4)
    pd.testing.assert_frame_equal(drawn, frame.sample(frac=1.0, random_state=4), check_dtype=False)
    assert (learning, sampling) == (1.5, 0.25)
    assert draws.devices(tmp_path) == [results.store.device_name("cpu")]
    with pytest.raises(SystemExit, match="no rows of two with seed 5"):
        draws.read_draws(tmp_path, "two", 5)


@pytest.mark.parametrize("way", imputation.WAYS)
def test_about_thirty_percent_are_hidden(way: str):
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(2000, 8)))
    hidden = imputation.hide(frame, way, generator)
    asked = hidden[:, 1::2] if way == "given others" else hidden
    assert abs(asked.mean() - 0.3) < 0.02
    if way == "given others":
        assert not hidden[:, ::2].any()
        large = frame[0] > frame[0].median()
        assert hidden[large, 1].mean() > 2 * hidden[~large, 1].mean()


def test_scores_of_imputations():
    train = pd.DataFrame({"a": [0.0, 2.0, 4.0], "b": ["x", "y", "y"]})
    test = pd.DataFrame({"a": [1.0, 5.0], "b": ["x", "y"]})
    filled = pd.DataFrame({"a": [2.0, 9.0], "b": ["x", "x"]})
    asked = pd.DataFrame({"a": [True, False], "b": [True, True]})
    # The deviation of 0, 2, 4 is 2, and only the first number was hidden.
    assert imputation.normalised_error(train, test, filled, asked) == pytest.approx(0.5)
    assert imputation.accuracy(test, filled, asked) == 0.5


def test_matrices_go_there_and_back():
    frame = pd.DataFrame({"b": ["x", "y", None, "y"], "a": [1.0, None, 3.0, 5.0]})
    matrix = encoding.Matrix(frame)
    encoded = matrix.encode(frame)
    assert np.isnan(encoded).tolist() == [
        [False, False, False], [True, False, False], [False, True, True], [False, False, False],
    ]  # fmt: skip
    back = matrix.decode(np.nan_to_num(encoded))
    assert back["b"].tolist()[:2] == ["x", "y"]
    assert back["a"].tolist() == pytest.approx([1.0, 3.0, 3.0, 5.0])


def test_precision_and_recall_by_brute_force():
    generator = np.random.default_rng(0)
    real, drawn = generator.normal(size=(60, 3)), generator.normal(0.3, 1.0, size=(50, 3))
    levels = np.linspace(0, 1, 30)
    centre, middle = real.mean(0), drawn.mean(0)
    far = [float(np.sqrt(((r - centre) ** 2).sum())) for r in real]
    cover, distance = [], []
    for n, r in enumerate(real):
        others = [np.linalg.norm(r - s) for m, s in enumerate(real) if m != n]
        nearest = min(range(50), key=lambda k, r=r: np.linalg.norm(r - drawn[k]))
        cover.append(np.linalg.norm(r - drawn[nearest]) <= min(others))
        distance.append(np.linalg.norm(drawn[nearest] - middle))
    precision, recall = 0.0, 0.0
    for level in levels:
        inside = [np.linalg.norm(d - centre) <= np.quantile(far, level) for d in drawn]
        precision += abs(level - np.mean(inside))
        edge = np.quantile(distance, level)
        recall += abs(
            level - np.mean([c and d <= edge for c, d in zip(cover, distance, strict=True)])
        )
    expected = (1 - precision / levels.sum(), 1 - recall / levels.sum())
    assert fidelity.alpha_precision_beta_recall(real, drawn) == pytest.approx(expected)


def test_equal_rows_are_perfect_and_copies_are_found():
    points = np.random.default_rng(0).normal(size=(80, 2))
    precision, recall = fidelity.alpha_precision_beta_recall(points, points)
    assert precision > 0.95
    assert recall > 0.95
    share, copies = fidelity.nearer_to_training(points[:40], points[40:], points[:40])
    assert (share, copies) == (1.0, 1.0)
    share, copies = fidelity.nearer_to_training(points[:40], points[40:], points[40:])
    assert (share, copies) == (0.0, 0.0)


def test_points_are_on_the_scale_of_real_rows():
    real = pd.DataFrame({"a": [0.0, 10.0, 5.0], "b": ["x", "y", "x"]})
    drawn = pd.DataFrame({"a": [20.0, None], "b": ["y", "z"]})
    _, points = fidelity.points_of(real, real, drawn)
    assert points.tolist() == [[2.0, 0.0, 1.0], [0.5, 0.0, 0.0]]


@pytest.mark.parametrize("edges", [True, False])
def test_the_density_of_levels_adds_up_to_one(edges: bool):
    generator = np.random.default_rng(0)
    flag = generator.random(300) < 0.4
    frame = pd.DataFrame({"f": np.where(flag, "u", "v"), "x": generator.normal(2.0 * flag, 0.5)})
    table = einet.Table.of(frame)
    tree = chow_liu.LevelTree(frame, table, 8, edges)
    cuts = tree.cuts["x"]
    assert cuts is not None
    width = cuts[-1] - cuts[0]
    # Tails are as wide as the range, and the density is even between cuts.
    grid = np.array([cuts[0] - width, *cuts, cuts[-1] + width])
    middles = (grid[1:] + grid[:-1]) / 2
    total = 0.0
    for state in "uv":
        density = np.exp(tree.log_prob(pd.DataFrame({"f": state, "x": middles})))
        total += float((density * np.diff(grid)).sum())
    assert total == pytest.approx(1.0)
    together = tree.log_prob(pd.DataFrame({"f": ["u", "v"], "x": [2.0, 2.0]}))
    assert (together[0] - together[1] > 2) == edges


def test_splits_keep_the_shares_of_classes():
    frame = pd.DataFrame({"species": ["a"] * 50 + ["b"] * 10 + ["c"] * 2, "n": range(62)})
    train, test = data.train_and_test("penguins", frame, seed=3)
    assert sorted([*train["n"], *test["n"]]) == list(range(62))
    assert test["species"].value_counts().to_dict() == {"a": 10, "b": 2}
    assert set(train["species"]) == {"a", "b", "c"}
    again = data.train_and_test("penguins", frame, seed=3)[0]
    assert again.equals(train)


def test_rounded_numbers_are_spread_over_their_steps():
    frame = pd.DataFrame({"a": [1.5, 2.0, 2.5], "b": [100.0, 300.0, 200.0], "c": ["x", "y", "z"]})
    spread = data.spread(frame, 0)
    assert spread["a"].round(1).tolist() == frame["a"].tolist()
    assert (abs(spread["b"] - frame["b"]) <= 50).all()
    assert len(set(spread["b"])) == 3
    assert spread["c"].tolist() == ["x", "y", "z"]
