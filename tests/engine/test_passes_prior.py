"""Steps with a prior: whole models on the fused kernels, and what is recorded of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import einet
from einet import Prior
from einet.data import as_batch
from einet.engine import replay
from einet.engine.replay import Replays, _Recording
from tests.kernels.triton.leaf_check import DEVICES
from tests.twins import Twins, engine, near

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
on_devices = pytest.mark.parametrize("device", DEVICES)

FAMILIES = [
    einet.Gaussian(), einet.Bernoulli(), einet.Categorical(3), einet.Binomial(3), einet.Gamma(),
    einet.Categorical(3),
]  # fmt: skip
GRAPHS = {
    "trees": lambda: einet.random_trees(6, depth=2, replicas=2, seed=0),
    "grid": lambda: einet.poon_domingos((2, 3), delta=1),
}


def twins_of(graph: str, device: str, **options: Any) -> Twins:
    return Twins(GRAPHS[graph](), FAMILIES, 4, device, num_leaves=3, num_classes=2, **options)


class Steps:
    """Steps of both twins with the same prior."""

    def __init__(self, twins: Twins, prior: Prior, x: Tensor) -> None:
        self.twins, self.prior, self.x = twins, prior, x
        self.counts = prior.pseudo_counts(twins.model, x)

    def step(self, rows: slice, step_size: float = 0.4, **beside: Any) -> None:
        twins, x = self.twins, self.x[rows]
        twins.follow()
        exact = self.prior.pseudo_counts(twins.exact, self.x).for_rows(len(x))
        with engine(twins.device):
            found = twins.model.em_step(
                twins.on(x), step_size=step_size, prior=self.counts.for_rows(len(x)), **beside
            )
        expected = twins.exact.em_step(x, step_size=step_size, prior=exact, **beside)
        near(found.double().cpu(), expected)
        twins.parameters()


@on_devices
@pytest.mark.parametrize("graph", GRAPHS)
def test_structures(graph: str, device: str) -> None:
    twins = twins_of(graph, device)
    steps = Steps(twins, Prior(sums=3.0, leaves=2.0), twins.rows(9))
    # No row reaches the roots of the second class.
    steps.step(slice(0, 7), labels=torch.zeros(7, dtype=torch.long))
    steps.step(slice(7, 9), step_size=1.0)


@on_devices
@pytest.mark.parametrize("prior", [Prior(sums=3.0), Prior(leaves=2.0)], ids=["sums", "leaves"])
def test_each_part_alone(prior: Prior, device: str) -> None:
    twins = twins_of("trees", device)
    Steps(twins, prior, twins.rows(5)).step(slice(0, 5))


# -- what is recorded ------------------------------------------------------------------------------


def test_recordings_read_counts_from_fixed_places() -> None:
    """Without a GPU: what a recording would call, and what it finds there."""
    twins = Twins(GRAPHS["trees"](), FAMILIES, 3, "cpu")
    model, x = twins.model, twins.rows(16).float()
    counts = Prior(sums=3.0, leaves=2.0).pseudo_counts(model, x)
    batch = as_batch(x, 6)
    recording = _Recording("step", batch, 16, None, counts)
    places = None
    for share, rows in ((16, x), (5, x), (9, x[:5]), (torch.tensor(9.0), x)):
        twins.follow()
        recording._load(batch)
        recording.size.fill_(0.4)
        counts = Prior(sums=3.0, leaves=2.0).pseudo_counts(model, rows)
        recording.load_prior(counts.for_rows(share))
        recording._call(model)
        exact = Prior(sums=3.0, leaves=2.0).pseudo_counts(twins.exact, rows.double())
        twins.exact.em_step(x.double(), step_size=0.4, prior=exact.for_rows(share))
        twins.parameters()
        assert recording._prior is not None
        mine, leaves = recording._prior.sums, recording._prior.leaves
        assert isinstance(mine, Tensor)
        assert leaves is not None
        assert isinstance(leaves.count, Tensor)
        now = [mine.data_ptr(), leaves.count.data_ptr()]
        now += [centre.data_ptr() for centre in leaves.centres.values()]
        assert places in (None, now)
        places = now


def test_another_kind_of_prior_is_another_recording() -> None:
    model = Twins(GRAPHS["trees"](), einet.Gaussian(), 3, "cpu").model
    batch = as_batch(torch.zeros(16, 6), 6)
    replays = Replays()
    replays._places = replay._places(model)

    def found(counts: einet.PseudoCounts | None) -> _Recording | None:
        return replays.find(model, "step", batch, counts)

    first = Prior(sums=1.0, leaves=1.0).pseudo_counts(model, batch)
    recording = found(first)
    # How much it counts, and where, is read anew at each call.
    assert found(first.for_rows(3)) is recording
    assert found(Prior(sums=2.0, leaves=1.0).pseudo_counts(model, torch.ones(16, 6))) is recording
    others = [
        None,
        Prior(sums=1.0).pseudo_counts(model, batch),
        Prior(leaves=1.0).pseudo_counts(model, batch),
    ]
    different = {id(recording), *(id(found(other)) for other in others)}
    assert len(different) == 4
    assert found(Prior(sums=9.0).pseudo_counts(model, batch)) is found(others[1])


def test_a_prior_of_another_model_leaves_no_recording() -> None:
    model, other = (Twins(GRAPHS["trees"](), einet.Gaussian(), 3, "cpu").model for _ in range(2))
    batch = as_batch(torch.zeros(16, 6), 6)
    replays = Replays()
    replays._places = replay._places(model)
    with pytest.raises(ValueError, match="prior was made for another model"):
        replays.find(model, "step", batch, Prior(leaves=1.0).pseudo_counts(other, batch))
    assert not replays._kept
    counts = Prior(leaves=1.0).pseudo_counts(model, batch)
    assert replays.find(model, "step", batch, counts) is not None


@pytest.mark.gpu
@pytest.mark.parametrize("graph", GRAPHS)
def test_replayed(graph: str) -> None:
    """Full batches, rests, a change of the prior and none of it, all on recorded graphs."""
    twins = twins_of(graph, "cuda")
    x = twins.rows(48)
    steps = Steps(twins, Prior(sums=3.0, leaves=2.0), x)
    for rows in [slice(0, 20), slice(20, 40), slice(40, 48)] * 3:
        steps.step(rows)
    others = Steps(twins, Prior(sums=0.5, leaves=20.0), x[:30])
    for _ in range(3):
        others.step(slice(0, 20))
        steps.step(slice(20, 40))
        twins.follow()
        twins.step(x[:20])
    kept = replay._of_models[twins.model]._kept.values()
    assert sum(r._graph is not None for r in kept) >= 3


@pytest.mark.gpu
def test_fit_on_a_gpu() -> None:
    """The same as on a CPU in float64, and the same twice."""
    results = []
    for device, dtype in (("cuda", torch.float32), ("cuda", torch.float32), ("cpu", torch.float64)):
        model = einet.Einet(GRAPHS["grid"](), einet.Gaussian(), 4, dtype=dtype)
        x = torch.randn(90, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        weights = torch.arange(90) % 3 + 1
        learner = einet.StochasticEM(0.3, Prior(sums=5.0, leaves=3.0))
        einet.fit(
            model, x, epochs=3, batch_size=40, optimizer=learner, weights=weights, device=device,
            progress=False,
        )  # fmt: skip
        results.append([p.detach().double().cpu() for p in model.parameters()])
    assert all(a.equal(b) for a, b in zip(results[0], results[1], strict=True))
    for mine, exact in zip(results[0], results[2], strict=True):
        near(mine, exact, 2e-3)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_never_waits_for_the_device() -> None:
    twins = twins_of("trees", "cuda")
    x = twins.rows(40).float().cuda()
    batch = as_batch(x, 6, weights=torch.ones(40, device="cuda"))
    learner = einet.StochasticEM(0.3, Prior(sums=3.0, leaves=2.0))
    learner.start(twins.model, [batch])
    parts = [batch[slice(0, 30)], batch[slice(30, 40)]]
    for part in parts * 3:
        learner.step(twins.model, part)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for part in parts:
            learner.step(twins.model, part)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(p.isfinite().all() for p in twins.model.parameters())
