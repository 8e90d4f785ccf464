"""How data come to a learner: checked once, mini-batch by mini-batch, never looked at again."""

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from einet import (
    Bernoulli,
    Einet,
    Gaussian,
    Learner,
    Model,
    fit,
    random_trees,
)
from einet.data import Batch, as_batch
from einet.data.streams import Rows
from einet.learning.arguments import as_streams

GRAPH = random_trees(4, depth=2, replicas=2, seed=1)
CPU = torch.device("cpu")
CUTS = [slice(0, 3), slice(3, 6), slice(6, 7)]


def batch_of(rows: int = 7) -> Batch:
    x = torch.arange(4.0 * rows).view(rows, 4)
    x[1, 2] = math.nan
    return as_batch(
        x, 4, labels=torch.arange(rows) % 3 - 1, weights=torch.arange(rows) + 0.5, num_classes=2
    )


class Reads(TorchDispatchMode):
    """Counts how often a tensor's content decides what is done: on a GPU each of them waits."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masked = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        self.count += masked or name in ("_local_scalar_dense", "nonzero", "equal")
        return func(*args, **(kwargs or {}))


def test_the_counter_counts():
    with Reads() as reads:
        x = torch.tensor([1.0, 2.0])
        assert bool(x.any())
        assert float(x[0]) == 1
        assert len(x[x > 1]) == 1
        assert not torch.equal(x, x + 1)
    assert reads.count == 4


class TestMiniBatches:
    @pytest.mark.parametrize("shuffled", [False, True])
    def test_every_row_comes_with_what_belongs_to_it(self, shuffled: bool):
        batch = batch_of()
        order = torch.randperm(7, generator=torch.manual_seed(0)) if shuffled else None
        parts = list(Rows(batch, CPU).batches(CUTS, order))
        assert [len(part) for part in parts] == [3, 3, 1]
        expected = batch if order is None else batch[order]
        for name in ("x", "observed", "labels", "weights"):
            together = torch.cat([getattr(part, name) for part in parts])
            torch.testing.assert_close(
                together, getattr(expected, name), rtol=0, atol=0, equal_nan=True
            )

    def test_what_is_not_there_stays_away(self):
        (part,) = Rows(Batch(torch.zeros(2, 4)), CPU)
        assert part.observed is None
        assert part.labels is None
        assert part.weights is None

    def test_nothing_is_read(self):
        rows = Rows(batch_of(), CPU)
        with Reads() as reads:
            for part in rows.batches(CUTS, torch.randperm(7)):
                as_batch(part, 4, num_classes=2, device=CPU, allow_empty=False)
        assert reads.count == 0


class TestChecked:
    def stream(self, model: Model, train: Tensor, valid: Tensor | None = None, **options):
        options = {"observed": None, "valid_observed": None, **options}
        return as_streams(model, train, valid, None, None, **options)[0]

    def test_rows_that_do_not_count_are_dropped(self):
        model = Einet(GRAPH, Bernoulli(), 2)
        x = torch.tensor([[0.0, 1, 0, 1], [9.0, 9, 9, 9], [1.0, 1, 1, 1]])
        (batch,) = self.stream(model, x, labels=[0, 0, -1], weights=[1.0, 0.0, 2.0])
        assert batch.x.tolist() == [[0, 1, 0, 1], [1, 1, 1, 1]]
        assert batch.labels is not None
        assert batch.labels.tolist() == [0, -1]
        assert batch.weights is not None
        assert batch.weights.tolist() == [1, 2]
        with pytest.raises(ValueError, match=r"train\[1, 0\] is 9, outside the support"):
            self.stream(model, x, weights=[1.0, 1.0, 2.0])

    def test_names(self):
        model, x = Einet(GRAPH, Gaussian(), 2), torch.zeros(3, 4)
        with pytest.raises(ValueError, match=r"valid_labels must have shape \[3\]"):
            self.stream(model, x, x, valid_labels=[0, 0])
        with pytest.raises(ValueError, match="valid_observed must have the shape of valid"):
            self.stream(model, x, x, valid_observed=[[True]])


class Still(Learner):
    """Learns nothing, and notes what it is given."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def step(self, model: Model, batch, progress: float = 0.0) -> Tensor:
        assert isinstance(batch, Batch)
        self.batches.append(batch)
        return torch.zeros((), dtype=torch.float64)


class TestFit:
    def test_learners_get_checked_batches(self):
        learner, x = Still(), torch.zeros(6, 4)
        x[2, 1] = math.nan
        fit(
            Einet(GRAPH, Gaussian(), 2, num_classes=2), x, labels=[0, 1, -1] * 2,
            weights=[1, 2, 3] * 2, epochs=1, batch_size=4, optimizer=learner, progress=False,
        )  # fmt: skip
        for batch in learner.batches:
            assert batch.observed is not None
            assert torch.equal(batch.observed, ~batch.x.isnan())
            assert batch.labels is not None
            assert batch.labels.dtype == torch.int64
            assert batch.weights is not None
            assert batch.weights.tolist() == [(1.0, 2.0, 3.0)[label] for label in batch.labels]

    def test_a_batch_is_data_to_fit(self):
        batch = batch_of(30)
        model = Einet(GRAPH, Gaussian(), 2, num_classes=2)
        twin = copy.deepcopy(model)
        whole = fit(model, batch, epochs=2, batch_size=8, progress=False)
        parts = fit(
            twin, batch.x, labels=batch.labels, weights=batch.weights, epochs=2, batch_size=8,
            progress=False,
        )  # fmt: skip
        assert whole.train == parts.train
        with pytest.raises(ValueError, match="labels is given, but train is a Batch"):
            fit(model, batch, labels=[0] * 30, progress=False)

    def test_the_loop_reads_nothing_between_steps(self, monkeypatch: pytest.MonkeyPatch):
        """As often with thirty steps an epoch as with one."""
        monkeypatch.setattr("einet.learning.watch.SECONDS_BETWEEN_LOOKS", math.inf)
        batch, counts = batch_of(30), []
        for size in (1, 30):
            model = Einet(GRAPH, Gaussian(), 2, num_classes=2)
            with Reads() as reads:
                fit(model, batch, epochs=2, batch_size=size, optimizer=Still(), progress=False)
            counts.append(reads.count)
        assert counts[0] == counts[1]
