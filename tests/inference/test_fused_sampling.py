"""Samples by fused kernels against the exact distribution, and what they leave alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import einet
from einet import Einet
from einet.data.batch import Batch
from einet.inference.fused_sampling import at_once, can_draw, draw_points
from tests.budgets import limit
from tests.inference.test_sampling import STRUCTURES, check_counts, sharp_model
from tests.kernels.triton.leaf_check import DEVICES, interpreted
from tests.layers.test_tree import BUSHY, hidden_tree
from tests.oracle import NAN, Joint, random_rows
from tests.twins import Twins, engine

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
on_devices = pytest.mark.parametrize("device", DEVICES)

SMALL = hidden_tree([0, 1, 1])
#: Those that an interpreter takes; the choices of all others are compared one by one elsewhere.
_INTERPRETED = ["three trees", "linear, a hidden tree"]
on_structures = pytest.mark.parametrize(
    ("device", "structure"),
    [
        *(pytest.param("cpu", name, marks=interpreted) for name in _INTERPRETED),
        *(pytest.param("cuda", name, marks=pytest.mark.gpu) for name in STRUCTURES),
    ],
)


def tree(device: str, num_sums: int = 3, family: Any = None, **options: Any) -> Einet:
    """A hidden tree: a small one for an interpreter."""
    family = einet.Categorical(3) if family is None else family
    graph = SMALL if device == "cpu" else BUSHY
    return Twins(graph, family, num_sums, device, sums="linear", **options).model


def rows_of(model: Einet, count: int, missing: float = 0.3) -> Tensor:
    return random_rows(copy.deepcopy(model).double().cpu(), count, missing=missing)


# -- the right distribution ------------------------------------------------------------------------


@on_structures
def test_counts(device: str, structure: str):
    """Without evidence and with it: Pearson's test. Binomial leaves are drawn in torch."""
    exact = sharp_model(structure)
    joint = Joint(exact)
    model = copy.deepcopy(exact).float().to(device)
    many = 3000 if device == "cpu" else 50_000
    evidence = torch.tensor([[1, NAN, NAN, 1], [NAN, 2, NAN, NAN], [1, 0, 2, 0]]).to(device)
    with engine(device):
        assert can_draw(model)
        drawn = model.sample(many, seed=1).cpu()
        given = model.given(evidence).sample(many // 2, seed=2).cpu()
    check_counts(joint.count(drawn.double()), joint.distribution())
    for row, e in enumerate(evidence.cpu().double()):
        check_counts(joint.count(given[:, row].double()), joint.distribution(e))


@on_devices
def test_classes(device: str):
    exact = sharp_model("classes")
    joint, model = Joint(exact), copy.deepcopy(exact).float().to(device)
    labels = [0, -1, 2]
    evidence = torch.full((3, 4), NAN)
    evidence[1, 0] = 1
    with engine(device):
        x = model.given(evidence.to(device), labels=labels).sample(2000, seed=4).cpu()
    for row, label in enumerate(labels):
        expected = joint.distribution(evidence[row].double(), label)
        check_counts(joint.count(x[:, row].double()), expected)


@on_devices
def test_leaves_at_their_means(device: str):
    """One entry leaves no choice: every sample is the mean of the model."""
    model = tree(device, 1, einet.Gaussian())
    with engine(device):
        drawn = model.sample(5, leaves="mean", seed=0)
        torch.testing.assert_close(drawn, model.mean().expand(5, -1))


# -- seeds, pieces, evidence -----------------------------------------------------------------------


@on_devices
def test_seeds(device: str):
    model = tree(device, num_classes=2)
    x = rows_of(model, 3).to(device)
    with engine(device):
        posterior = model.given(x)
        for ask in (model, posterior):
            first = ask.sample(20, seed=1)
            assert first.equal(ask.sample(20, seed=1))
            assert not first.equal(ask.sample(20, seed=2))
        generator = torch.Generator(device).manual_seed(1)
        first, second = (model.sample(20, seed=generator) for _ in range(2))
        assert first.equal(model.sample(20, seed=1))
        assert not first.equal(second)
        torch.manual_seed(5)
        unseeded = model.sample(20)
        torch.manual_seed(5)
        assert model.sample(20).equal(unseeded)


@on_devices
def test_pieces(device: str, monkeypatch):
    """Pieces of samples have seeds of their own, and pieces of rows keep their evidence."""
    model = tree(device)
    x = rows_of(model, 70).float().to(device)
    nodes = model.circuit.num_body + model.circuit.num_top
    limit(monkeypatch, "choices", 4 * nodes * 65 * 2)
    limit(monkeypatch, "values", 64 * 4 * model.circuit.num_body * model.circuit.width)
    assert [part.stop - part.start for part in at_once(model, 3, 65)] == [2, 1]
    assert len(model.pieces(70)) > 1
    with engine(device):
        drawn = model.given(x).sample(3, seed=3)
        alone = model.sample(260, seed=3)
    assert drawn.shape == (3, 70, model.num_variables)
    assert drawn.isfinite().all()
    assert drawn.equal(torch.where(x.isnan(), drawn, x))
    assert not drawn[0].equal(drawn[2])
    assert not alone[:130].equal(alone[130:])


@on_devices
def test_types_and_nothing(device: str):
    model = tree(device)
    num = model.num_variables
    nothing = torch.full((2, num), NAN, device=device)
    with engine(device):
        assert model.sample(0).shape == (0, num)
        assert model.given(nothing[:0]).sample(4).shape == (4, 0, num)
        assert model.given(nothing.double()).sample(1).dtype == torch.float64
        whole = model.given(torch.zeros(2, num, dtype=torch.long, device=device))
        assert whole.sample(2, seed=0).equal(torch.zeros(2, 2, num, device=device))


@on_devices
def test_impossible_evidence_is_named(device: str):
    model = tree(device)
    x = torch.full((3, model.num_variables), NAN)
    x[1, 2] = 7.0
    with engine(device), pytest.raises(ValueError, match=r"probability 0 in 1 of 3 rows \(1\)"):
        model.given(x.to(device)).sample(2)


# -- one upward pass -------------------------------------------------------------------------------


@on_devices
def test_one_upward_pass_serves_all_questions(device: str, monkeypatch):
    model = tree(device, family=einet.Gaussian())
    x = rows_of(model, 4).to(device)
    passes, upward = [], type(model).upward

    def counted(self: Einet, *arguments: Any, **options: Any) -> Any:
        passes.append(1)
        return upward(self, *arguments, **options)

    monkeypatch.setattr(type(model), "upward", counted)
    with engine(device):
        posterior = model.given(x)
        posterior.sample(2, seed=0)
        posterior.mean()
        posterior.sample(1, seed=1)
        assert len(passes) == 1
        # Some of the rows keep their part of it, trees too.
        some = posterior.at(torch.tensor([0, 3], device=device))
        torch.testing.assert_close(some.mean(), posterior.mean()[[0, 3]])
        assert some.sample(3, seed=0).isfinite().all()
        assert len(passes) == 1
        # Given nothing there is nothing to compute.
        model.sample(3, seed=0)
        assert len(passes) == 1


@on_devices
def test_mixtures(device: str):
    """Each component draws for the rows that it explains."""
    models = [tree(device, seed=seed) for seed in range(2)]
    mixture = einet.Mixture(models, [0.3, 0.7])
    x = rows_of(models[0], 5).to(device)
    with engine(device):
        drawn = mixture.given(x).sample(6, seed=0)
        assert drawn.isfinite().all()
        assert drawn.equal(torch.where(x.isnan(), drawn, x.to(drawn)))


# -- on a GPU --------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("family", [einet.Categorical(256), einet.Bernoulli(), einet.Gaussian()])
def test_nothing_waits_and_few_launches(family):
    """All of a descent of 300 sums in some launches, none of which asks the device."""
    graph = hidden_tree([i // 2 for i in range(600)])
    model = Twins(graph, family, 16, "cuda", sums="linear").model
    x = rows_of(model, 20).cuda()
    posterior, prior = model.given(x), model.prior()
    for ask in (posterior, prior):
        for _ in range(3):
            # Run, recorded and replayed.
            ask.sample(3, seed=0)
    generator = torch.Generator("cuda").manual_seed(0)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for ask in (posterior, prior):
        with torch.profiler.profile(activities=activities, acc_events=True) as profile:
            torch.cuda.set_sync_debug_mode("error")
            try:
                ask.sample(3, seed=generator)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        events = profile.events() or []
        kernels = [event for event in events if event.device_type.name == "CUDA"]
        assert 0 < len(kernels) < 25, [event.name for event in kernels]


@pytest.mark.gpu
@pytest.mark.parametrize("known", [False, True])
def test_draws_can_be_recorded(known: bool):
    """A recording with another seed gives what that seed gives when it is run."""
    model = tree("cuda", 10, einet.Gaussian(), num_classes=2)
    values = joint = None
    if known:
        x = rows_of(model, 10).cuda().float()
        batch = Batch(x, ~x.isnan())
        values, root = model.upward(batch)
        joint = model.class_log_joint(root, batch)
    seed = torch.zeros(1, dtype=torch.long, device="cuda")
    out = torch.empty(50, model.num_variables, device="cuda")

    def draw() -> None:
        with torch.no_grad():
            draw_points(model, joint, values, seed, "sample", out)

    draw()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        draw()
    results = []
    for number in (3, 4, 3):
        seed.fill_(number)
        graph.replay()
        recorded = out.clone()
        out.zero_()
        draw()
        assert recorded.equal(out)
        results.append(recorded)
    assert results[0].equal(results[2])
    assert not results[0].equal(results[1])


@pytest.mark.gpu
def test_other_streams_and_repeats():
    """Bit by bit the same from one seed, in any stream, with other work beside."""
    model = tree("cuda", 64)
    expected = model.sample(3000, seed=9)
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        found = [model.sample(3000, seed=9) for _ in range(20)]
    torch.cuda.synchronize()
    assert all(each.equal(expected) for each in found)
