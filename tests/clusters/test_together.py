"""Who learns together, and that it makes no difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import einet
from einet import ClusteredEinet, StochasticEM
from einet.clusters import training as module
from einet.clusters.together import TogetherTrainee, most_together, plan
from einet.learning.watch import Watch

GRAPH = einet.random_trees(4, depth=1, replicas=2, seed=1)
NAN = float("nan")


def rows(count: int = 230, missing: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    kind = torch.randint(7, (count, 1), generator=generator)
    x = (4 * kind + torch.randn(count, 4, generator=generator)).double()
    return x.masked_fill(torch.rand(x.shape, generator=generator) < missing, NAN)


def fit(x: Tensor, together: int | None, **options: Any) -> tuple[ClusteredEinet, Any]:
    model = ClusteredEinet(GRAPH, einet.Gaussian(), 3, 7, dtype=torch.float64)
    settings = {"epochs": 3, "batch_size": 20, "seed": 3, "progress": False, **options}
    return model, model.fit(x, together=together, **settings)


def close(one: ClusteredEinet, two: ClusteredEinet, tolerance: float = 1e-9) -> None:
    for mine, theirs in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        torch.testing.assert_close(
            mine, theirs, rtol=tolerance, atol=tolerance / 100, equal_nan=True
        )


@pytest.mark.parametrize("together", [2, 3, 4, 32])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_together_as_one_after_the_other(together: int, missing: float):
    x = rows(missing=missing)
    optimizer = StochasticEM(einet.linear(0.5, 0.1))
    alone, one_by_one = fit(x, 1, optimizer=optimizer)
    model, history = fit(x, together, optimizer=optimizer)
    close(model, alone)
    assert history.sizes == one_by_one.sizes
    assert [len(means) for means in history.train] == [3] * 7
    for mine, theirs in zip(history.train, one_by_one.train, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9)


def test_a_prior_has_its_share_in_every_mini_batch():
    """With equal mini-batches it is the share of their rows, which counts elsewhere."""
    x = rows(210)
    optimizer = StochasticEM(0.5, einet.Prior(sums=2.0, leaves=3.0))
    options = {"optimizer": optimizer, "clusters": torch.arange(210) % 7, "batch_size": 15}
    close(fit(x, 4, **options)[0], fit(x, 1, **options)[0])
    options["batch_size"] = 13
    close(fit(x, 4, **options)[0], fit(x, 1, **options)[0], tolerance=0.1)


def test_empty_and_tiny_clusters():
    x, clusters = rows(40), torch.arange(40) % 3 + 1
    clusters[0] = 6
    model, history = fit(x, 4, clusters=clusters)
    assert history.sizes == [0, 13, 13, 13, 0, 0, 1]
    assert [bool(means) for means in history.train] == [False, True, True, True, False, False, True]
    close(model, fit(x, 1, clusters=clusters)[0])
    assert model.initialized


def test_bytes_with_a_transform_and_states_as_clusters():
    x = ((rows() + 4) * 7).clamp(0, 255).to(torch.uint8)
    options = {"transform": lambda x: x / 255, "from_clusters": True}
    close(fit(x, 4, **options)[0], fit(x, 1, **options)[0])


@pytest.mark.parametrize("by_epochs", [False, True], ids=["by groups", "by epochs"])
@pytest.mark.parametrize("step", [1, 2, 4, 6, 8])
def test_an_interruption_goes_on_to_the_same(tmp_path, monkeypatch, step: int, by_epochs: bool):
    x = rows()
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_COPIES", -1.0 if by_epochs else 1e9)
    whole, expected = fit(x, 2)
    steps = []
    real = TogetherTrainee.learn

    def learn(self: TogetherTrainee, epoch: int, epochs: int, watch: Watch) -> Any:
        steps.append(epoch)
        watch._interrupt.requested = len(steps) == step  # type: ignore[attr-defined]
        return real(self, epoch, epochs, watch)

    checkpoint = tmp_path / "state"
    with monkeypatch.context() as patch:
        patch.setattr(TogetherTrainee, "learn", learn)
        model, history = fit(x, 2, checkpoint=checkpoint)
    assert history.stopped == "interrupted"
    reached = [bool(means) for means in history.train]
    assert by_epochs or not all(reached)
    if any(reached):
        assert (model.weights > 0).tolist() == reached
        assert model.weights.sum().item() == pytest.approx(1.0)
    assert model.log_prob(x).isfinite().all()
    # As many as at first go on together, whatever would be best now.
    again, finished = fit(x, None, checkpoint=checkpoint, resume=True)
    assert finished.stopped == "finished"
    assert finished.train == expected.train
    for mine, theirs in zip(again.parameters(), whole.parameters(), strict=True):
        assert mine.equal(theirs)


def test_nan_is_noticed_of_whom(monkeypatch):
    real = TogetherTrainee.learn

    def learn(self: TogetherTrainee, epoch: int, epochs: int, watch: Watch) -> Any:
        means = real(self, epoch, epochs, watch)
        assert means is not None
        means[-1] = NAN
        return means

    monkeypatch.setattr(TogetherTrainee, "learn", learn)
    clusters = torch.arange(230) % 2
    clusters[:30] = 0
    with pytest.raises(FloatingPointError, match=r"cluster 1, of 100 rows.*it was 0.5"):
        fit(rows(), 2, clusters=clusters, batch_size=500, optimizer=StochasticEM(0.5))


def test_wrong_numbers():
    for wrong in (0, 1.5, "all"):
        with pytest.raises((TypeError, ValueError), match="together"):
            fit(rows(), wrong)  # type: ignore[arg-type]
    for optimizer in (einet.EM(), einet.Gradient(torch.optim.Adam)):
        with pytest.raises(ValueError, match=f"together must be 1 .*{type(optimizer).__name__}"):
            fit(rows(), 2, optimizer=optimizer)
        fit(rows(), 1, optimizer=optimizer, epochs=1)


def test_on_a_cpu_one_after_the_other():
    model = einet.Einet(GRAPH, einet.Gaussian(), 3)
    assert most_together(model, StochasticEM(0.5), 20) == 1


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.integers(2, 9))
def test_plans(sizes: list[int], most: int):
    groups = plan(sizes, 20, most)
    present = [number for number, size in enumerate(sizes) if size]
    assert sorted(number for group in groups for number in group) == present
    for group in groups:
        assert len(group) <= most
        assert len({-(-sizes[number] // 20) for number in group}) == 1
    largest = [sizes[group[0]] for group in groups]
    assert largest == sorted(largest, reverse=True)
    assert plan(sizes, 20, 1) == [[number] for number in present]
