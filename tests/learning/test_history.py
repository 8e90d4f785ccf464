"""The record of a training run."""

import json
import sys

import pytest

from einet import History

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture
def history() -> History:
    return History(
        train=[-3.0, -2.0, -1.5],
        valid=[-3.5, -2.5, -2.75],
        seconds=[1.0, 0.5, 0.5],
        step_size=[0.5, 0.3, 0.1],
        best_epoch=1,
        stopped="early",
    )


def test_empty() -> None:
    history = History()
    assert len(history) == 0
    assert repr(history) == "History(0 epochs in 0.0 s, finished)"
    assert history.plot().get_lines() == []


def test_repr_shows_the_validation_of_the_best_epoch(history: History) -> None:
    assert repr(history) == (
        "History(3 epochs in 2.0 s, train -3 → -1.5, valid -3.5 → -2.5 (best, epoch 2 of 3), early)"
    )


def test_repr_without_a_best_epoch() -> None:
    # A refined mixture whose start was better than all epochs has validation, but no best epoch.
    history = History(train=[-3.0, -2.0], valid=[-3.5, -3.75], seconds=[1.0, 1.0])
    assert "valid -3.5 → -3.75 (no best epoch)" in repr(history)
    # Without validation rows there is nothing to say of them.
    assert repr(History([-1.0], seconds=[0.1])).startswith(
        "History(1 epoch in 0.1 s, train -1 → -1"
    )


def test_two_histories_share_nothing() -> None:
    one, other = History(), History()
    one.train.append(-1.0)
    assert other.train == []


def test_to_dict_and_back(history: History) -> None:
    plain = json.loads(json.dumps(history.to_dict()))
    assert History(**plain) == history


def test_bits_per_dimension(history: History) -> None:
    bits = history.bits_per_dimension(2)
    assert bits["train"] == pytest.approx(
        [2.164042561333445, 1.4426950408889634, 1.0820212806667227]
    )
    assert len(bits["valid"]) == 3
    with pytest.raises(ValueError, match="num_variables"):
        history.bits_per_dimension(0)


def test_plot_draws_both_curves_and_the_best_epoch(history: History) -> None:
    ax = history.plot()
    train, valid, best = ax.get_lines()
    assert list(train.get_xdata()) == [1, 2, 3]
    assert list(train.get_ydata()) == history.train
    assert list(valid.get_ydata()) == history.valid
    assert best.get_xydata().tolist() == [[2.0, -2.5]]
    assert ax.get_xlabel() == "epoch"
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["train", "valid", "best: -2.5"]


def test_plot_into_given_axes(history: History) -> None:
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert history.plot(ax) is ax
    single = History([-1.0]).plot(Figure().subplots())
    assert single.get_lines()[0].get_marker() == "o"


def test_plot_without_matplotlib(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.ticker", None)
    with pytest.raises(ImportError, match=r"einet\[plots\]"):
        history.plot()
