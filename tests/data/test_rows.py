"""How data come to a learner: checked once, mini-batch by mini-batch, never looked at again."""

import copy
import math
from itertools import chain

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from einet import (
    Bernoulli,
    Einet,
    Gaussian,
    Gradient,
    Learner,
    Model,
    StochasticEM,
    fit,
    random_trees,
)
from einet.data import Batch, as_batch
from einet.data.rows import Rows
from einet.learning.fit import checked

GRAPH = random_trees(4, depth=2, replicas=2, seed=1)
CPU = torch.device("cpu")


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
        parts = list(Rows(batch, CPU).batches(3, order))
        assert [len(part) for part in parts] == [3, 3, 1]
        expected = batch if order is None else batch[order]
        for name in ("x", "observed", "labels", "weights"):
            together = torch.cat([getattr(part, name) for part in parts])
            torch.testing.assert_close(
                together, getattr(expected, name), rtol=0, atol=0, equal_nan=True
            )

    def test_what_is_not_there_stays_away(self):
        (part,) = Rows(Batch(torch.zeros(2, 4)), CPU).batches(5)
        assert part.observed is None
        assert part.labels is None
        assert part.weights is None

    def test_nothing_is_read(self):
        rows = Rows(batch_of(), CPU)
        with Reads() as reads:
            for part in rows.batches(2, torch.randperm(7)):
                as_batch(part, 4, num_classes=2, device=CPU, allow_empty=False)
        assert reads.count == 0


class TestChecked:
    def test_rows_that_do_not_count_are_dropped(self):
        model = Einet(GRAPH, Bernoulli(), 2)
        x = torch.tensor([[0.0, 1, 0, 1], [9.0, 9, 9, 9], [1.0, 1, 1, 1]])
        batch = checked(model, "train", x, None, [0, 0, -1], [1.0, 0.0, 2.0])
        assert batch.x.tolist() == [[0, 1, 0, 1], [1, 1, 1, 1]]
        assert batch.labels is not None
        assert batch.labels.tolist() == [0, -1]
        assert batch.weights is not None
        assert batch.weights.tolist() == [1, 2]
        with pytest.raises(ValueError, match=r"train\[1, 0\] is 9, outside the support"):
            checked(model, "train", x, None, None, [1.0, 1.0, 2.0])

    def test_a_mask_that_hides_nothing_is_dropped(self):
        """As those are that come with any data on a GPU."""
        model = Einet(GRAPH, Gaussian(), 2)
        whole = Batch(torch.zeros(3, 4), torch.ones(3, 4, dtype=torch.bool))
        assert checked(model, "train", whole, None, None).observed is None
        holes = Batch(torch.zeros(3, 4), torch.eye(3, 4) == 0)
        assert checked(model, "train", holes, None, None).observed is not None

    def test_names(self):
        model, x = Einet(GRAPH, Gaussian(), 2), torch.zeros(3, 4)
        with pytest.raises(ValueError, match=r"valid_labels must have shape \[3\]"):
            checked(model, "valid", x, None, [0, 0])
        with pytest.raises(ValueError, match="valid_observed must have the shape of valid"):
            checked(model, "valid", x, [[True]], None)


class Still(Learner):
    """Learns nothing, and notes what it is given."""

    def __init__(self) -> None:
        self.seen: list[Batch] = []

    def step(
        self, model: Model, x, observed=None, *, labels=None, weights=None, progress: float = 0.0
    ) -> Tensor:
        assert isinstance(x, Batch)
        assert observed is labels is weights is None
        self.seen.append(x)
        return torch.zeros((), dtype=torch.float64)


class TestFit:
    def test_learners_get_checked_batches(self):
        learner, x = Still(), torch.zeros(6, 4)
        x[2, 1] = math.nan
        fit(
            Einet(GRAPH, Gaussian(), 2, num_classes=2), x, labels=[0, 1, -1] * 2,
            weights=[1, 2, 3] * 2, epochs=1, batch_size=4, optimizer=learner, progress=False,
        )  # fmt: skip
        for batch in learner.seen:
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
        monkeypatch.setattr("einet.learning.fit._SECONDS_BETWEEN_LOOKS", math.inf)
        batch, counts = batch_of(30), []
        for size in (1, 30):
            model = Einet(GRAPH, Gaussian(), 2, num_classes=2)
            with Reads() as reads:
                fit(model, batch, epochs=2, batch_size=size, optimizer=Still(), progress=False)
            counts.append(reads.count)
        assert counts[0] == counts[1]

    @pytest.mark.parametrize(
        "learner",
        [StochasticEM(0.4), Gradient(torch.optim.SGD, lr=0.01)],
        ids=["stochastic EM", "gradient"],
    )
    def test_a_step_from_a_batch_and_from_its_parts(self, learner: Learner):
        batch, results = batch_of(), []
        for whole in (True, False):
            model = Einet(GRAPH, Gaussian(), 2, num_classes=2, dtype=torch.float64)
            learner.start(model)
            if whole:
                mean = learner.step(model, batch)
            else:
                mean = learner.step(
                    model, batch.x, batch.observed, labels=batch.labels, weights=batch.weights
                )
            learner.finish(model)
            results.append([mean, *(p.detach().clone() for p in model.parameters())])
        for one, other in zip(*results, strict=True):
            assert torch.equal(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize("share", [1.0, 0.0], ids=["resident", "staged"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_mini_batches_on_a_gpu(share: float, shuffled: bool, monkeypatch: pytest.MonkeyPatch):
    """Right also if the GPU is kept busy, and without waiting for it."""
    monkeypatch.setattr("einet.data.rows._RESIDENT_SHARE", share)
    device = torch.device("cuda", 0)
    generator = torch.Generator().manual_seed(0)
    batch = as_batch(
        torch.randn(4000, 50, generator=generator),
        50,
        weights=torch.rand(4000, generator=generator),
    )
    order = torch.randperm(4000, generator=generator) if shuffled else None
    busy, found = torch.randn(2000, 2000, device=device), []
    parts = Rows(batch, device).batches(300, order)
    # The order of the rows is moved first.
    first = next(parts)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for part in chain([first], parts):
            for _ in range(5):
                busy = busy @ busy / 100
            assert part.weights is not None
            found.append(part.x.double().sum(1) * part.weights)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert batch.weights is not None
    expected = batch.x.double().sum(1) * batch.weights
    expected = expected if order is None else expected[order]
    torch.testing.assert_close(torch.cat(found).cpu(), expected)
