"""Rows from a DataLoader."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from einet import Bernoulli, Einet, Gaussian, Prior, StochasticEM, fit, random_trees
from einet.data.batch import Batch
from einet.data.loader import LoaderRows

GRAPH = random_trees(4, depth=2, replicas=2, seed=1)
CPU = torch.device("cpu")
NAN = math.nan


def rows(count: int = 23) -> Tensor:
    return torch.arange(4.0 * count).view(count, 4)


def stream(loader: Any, num_classes: int = 1, check: Any = None) -> LoaderRows:
    return LoaderRows(loader, 4, num_classes, CPU, check)


class Endless(IterableDataset):
    """Rows of which nobody knows how many there are."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __iter__(self):
        return iter(self.x)


@given(st.integers(1, 60), st.integers(1, 25))
def test_every_row_once_in_batches_much_alike(count: int, size: int):
    loader = DataLoader(rows(count), batch_size=size)  # type: ignore[arg-type]
    batches = list(stream(loader).mini_batches(500, None))
    assert torch.cat([batch.x for batch in batches]).equal(rows(count))
    sizes = [len(batch) for batch in batches]
    # The last two may share their rows; no batch is a few rows alone.
    assert len(sizes) == len(loader)
    assert min(sizes) * 2 >= min(size, count) or len(sizes) == 1


def test_what_a_batch_may_be():
    x, labels = rows(6), torch.tensor([0, 1, -1, 1, 0, 0])
    pairs = DataLoader(TensorDataset(x, labels), batch_size=3)
    one, two = stream(pairs, num_classes=2)
    assert one.labels is not None
    assert one.labels.tolist() == [0, 1, -1]
    assert two.x.equal(x[3:])
    # Labels are not for models without classes.
    assert all(batch.labels is None for batch in stream(pairs))
    (alone,) = stream(DataLoader(TensorDataset(x), batch_size=6))
    assert alone.x.equal(x)
    whole = {"x": x, "observed": x % 2 == 0, "weights": torch.ones(6), "labels": labels}
    (full,) = stream([whole], num_classes=2)
    assert full.observed is not None
    assert full.observed.equal(x % 2 == 0)
    assert full.weights is not None
    assert full.labels is not None


def test_batches_that_differ_in_what_they_have_are_joined():
    holes = rows(2)
    holes[0, 1] = NAN
    first, second = rows(9), {"x": holes, "weights": torch.tensor([0.5, 2.0])}
    one, two = stream([first, second]).mini_batches(500, None)
    assert (len(one), len(two)) == (6, 5)
    assert one.observed is not None
    assert one.observed.all()
    assert two.observed is not None
    assert (~two.observed).sum() == 1
    assert two.weights is not None
    assert two.weights.tolist() == [1, 1, 1, 0.5, 2]


def test_some_rows():
    loader = stream(DataLoader(rows(20), batch_size=6))  # type: ignore[arg-type]
    assert loader.some(9, torch.Generator()).x.equal(rows(9))
    assert len(loader.some(100, torch.Generator())) == 20


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "train must yield at least one row, got none"),
        ([torch.zeros(0, 4)], "train must yield at least one row"),
        ([rows(2), torch.zeros(2, 3)], r"train: batch 1 must have shape \[rows, 4\]"),
        (["rows"], "train: batch 0 must be a tensor of rows, .* got str"),
        ([{"y": rows(2)}], "must be a dictionary with 'x'.*got the keys 'y'"),
        ([(rows(2), torch.tensor([0, 7]))], "labels must lie between 0 and 1"),
        ([torch.zeros(2, 4, dtype=torch.complex64)], "real numbers"),
    ],
)
def test_bad_batches(batches: list, message: str):
    with pytest.raises((TypeError, ValueError), match=message):
        list(stream(batches, num_classes=2))


def test_every_batch_is_checked():
    names = []

    def check(batch: Batch, name: str) -> None:
        names.append((name, len(batch)))

    list(stream(DataLoader(rows(5), batch_size=3), check=check))  # type: ignore[arg-type]
    assert names == [("train: batch 0", 3), ("train: batch 1", 2)]


class TestFit:
    def test_as_from_memory(self):
        """Full batches in their order, so that only the loader tells them apart."""
        x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
        models = [Einet(GRAPH, Gaussian(), 3, dtype=torch.float64).initialize(x) for _ in range(2)]
        loader = DataLoader(TensorDataset(x), batch_size=20)
        history = fit(models[0], loader, x, epochs=3, optimizer=StochasticEM(0.5), progress=False)
        for _ in range(3):
            for part in x.split(20):
                models[1].em_step(part, step_size=0.5)
        assert len(history) == 3
        if history.best_epoch == 2:
            for one, two in zip(models[0].parameters(), models[1].parameters(), strict=True):
                torch.testing.assert_close(one, two)
        assert history.valid[-1] == pytest.approx(models[1].log_prob(x).mean().item(), rel=1e-6)

    def test_nobody_knows_how_many(self):
        x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
        loader = DataLoader(Endless(x), batch_size=16)
        model = Einet(GRAPH, Gaussian(), 3)
        history = fit(model, loader, loader, epochs=4, progress=False)
        assert history.train[-1] > history.train[0]
        assert history.step_size[-1] == pytest.approx(0.05)

    def test_labels_and_shuffling(self):
        kind = torch.arange(40) % 2
        x = kind.unsqueeze(1).repeat(1, 4)
        loader = DataLoader(TensorDataset(x, kind), batch_size=10, shuffle=True)
        model = Einet(GRAPH, Bernoulli(), 3, num_classes=2)
        fit(model, loader, epochs=10, progress=False)
        assert (model.class_posterior(x).argmax(1) == kind).all()

    def test_a_prior_sees_all_rows(self):
        x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
        loader = DataLoader(TensorDataset(x), batch_size=25)
        model = Einet(GRAPH, Gaussian(), 3, dtype=torch.float64)
        held = StochasticEM(1.0, Prior(leaves=1e9))
        fit(model, loader, epochs=3, optimizer=held, progress=False)
        torch.testing.assert_close(model.mean(), x.double().mean(0), rtol=1e-3, atol=1e-3)

    def test_an_error_midway_leaves_the_last_full_epoch(self):
        x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))

        class Failing(IterableDataset):
            epochs = 0

            def __iter__(self):
                Failing.epochs += 1
                for number, row in enumerate(x):
                    # The first time is for the initial leaves.
                    if Failing.epochs == 3 and number == 30:
                        raise OSError("the disk is gone")
                    yield row

        model = Einet(GRAPH, Gaussian(), 3).initialize(x)
        after_first = []
        with pytest.raises(OSError, match="the disk is gone"):
            fit(
                model, DataLoader(Failing(), batch_size=10), epochs=5, initialize=False,
                callbacks=lambda report: after_first.append(model.log_prob(x).mean().item()),
                progress=False,
            )  # fmt: skip
        assert model.log_prob(x).mean().item() == after_first[-1]

    def test_mistakes(self):
        model, x = Einet(GRAPH, Gaussian(), 3), torch.zeros(4, 4)
        loader = DataLoader(TensorDataset(x))
        beside: dict[str, Any] = {"labels": [0] * 4, "observed": x == 0, "weights": [1.0] * 4}
        for name, value in beside.items():
            with pytest.raises(ValueError, match=f"{name} is given, but train is a loader"):
                fit(model, loader, progress=False, **{name: value})
        with pytest.raises(ValueError, match="batch_size is given .7., but train is a loader"):
            fit(model, loader, batch_size=7, progress=False)
        with pytest.raises(ValueError, match="transform is given, but train is a loader"):
            fit(model, loader, transform=lambda x: x, progress=False)
        bad = DataLoader(TensorDataset(torch.full((4, 4), math.inf)))
        with pytest.raises(ValueError, match=r"train: batch 0\[0, 0\] is inf"):
            fit(model, bad, progress=False)
