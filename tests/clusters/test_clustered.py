"""Mixtures of Einets on clusters: a model like any other, against enumeration."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import einet
from einet import ClusteredEinet
from einet.clusters.components import _stand_ins
from einet.clusters.side_by_side import SideBySide
from einet.clusters.stand_in import StandIn, twin
from einet.clusters.together import TogetherTrainee
from einet.data.batch import Batch, as_batch
from einet.data.streams import Rows
from einet.engine import replay
from einet.learning.console import Bar, Interrupt
from einet.learning.model_trainee import ModelTrainee
from einet.learning.trainee import Trainee
from einet.learning.watch import Watch
from einet.storage import reference

NAN = float("nan")
GRID = einet.poon_domingos((2, 3), delta=1)
STATES = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 6)
EVIDENCE = torch.tensor(
    [[NAN] * 6, [0, NAN, NAN, 1, NAN, NAN], [1, 1, NAN, 1, 1, NAN]], dtype=torch.float64
)


def pictures(count: int = 120) -> Tensor:
    """Images of 2×3 pixels of three kinds, with some noise."""
    generator = torch.Generator().manual_seed(5)
    kinds = torch.tensor([[1, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1], [0, 1, 1, 1, 0, 0]])
    x = kinds[torch.randint(3, (count,), generator=generator)]
    flip = torch.rand(x.shape, generator=generator) < 0.1
    return torch.where(flip, 1 - x, x).to(torch.uint8)


@pytest.fixture(scope="module")
def trained() -> ClusteredEinet:
    model = ClusteredEinet(GRID, einet.Bernoulli(), 3, 3, dtype=torch.float64)
    model.fit(pictures(), epochs=3, batch_size=25, progress=False)
    return model


def probabilities(model: einet.Model) -> Tensor:
    with torch.no_grad():
        return model.log_prob(STATES).exp()


def restricted(p: Tensor, row: Tensor) -> Tensor:
    """The exact posterior over all states given the known cells of ``row``."""
    agrees = ((row == STATES) | row.isnan()).all(1)
    return torch.where(agrees, p, 0.0) / p[agrees].sum()


# -- a mixture -------------------------------------------------------------------------------------


def test_log_prob_adds_weighted_components(trained: ClusteredEinet):
    sizes = trained.fit(pictures(), epochs=3, batch_size=25, progress=False).sizes
    assert sum(sizes) == 120
    shares = torch.tensor(sizes, dtype=torch.float64) / 120
    torch.testing.assert_close(trained.weights, shares)
    logs = torch.stack([part.log_prob(STATES) for part in trained.einets])
    expected = torch.logsumexp(logs + shares.log().unsqueeze(1), 0)
    torch.testing.assert_close(trained.log_prob(STATES), expected)
    assert probabilities(trained).sum().item() == pytest.approx(1.0, abs=1e-12)


def test_conditionals_weigh_components_by_their_posterior(trained: ClusteredEinet):
    p = probabilities(trained)
    posterior = trained.given(EVIDENCE)
    parts = torch.stack([probabilities(part) for part in trained.einets])
    for row, evidence in enumerate(EVIDENCE):
        agrees = ((evidence == STATES) | evidence.isnan()).all(1)
        joint = trained.weights * parts[:, agrees].sum(1)
        torch.testing.assert_close(posterior.responsibilities[:, row], joint / joint.sum())
        answer = trained.given(evidence[None]).log_prob(STATES).exp()
        torch.testing.assert_close(answer, restricted(p, evidence))
    mean = torch.stack([restricted(p, row) for row in EVIDENCE]) @ STATES
    torch.testing.assert_close(posterior.mean(), mean)


@pytest.mark.parametrize("row", range(len(EVIDENCE)))
def test_inpaintings_follow_the_exact_conditional(trained: ClusteredEinet, row: int):
    exact = restricted(probabilities(trained), EVIDENCE[row])
    n = 20_000
    draws = trained.given(EVIDENCE).sample(n, seed=row)[:, row]
    place = 2.0 ** torch.arange(5, -1, -1, dtype=torch.float64)
    counts = torch.bincount((draws @ place).long(), minlength=64).double()
    possible = exact > 0
    assert counts[~possible].sum() == 0
    chi2 = ((counts - n * exact)[possible] ** 2 / (n * exact[possible])).sum().item()
    freedom = int(possible.sum()) - 1
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5 + 5


def test_samples(trained: ClusteredEinet):
    draws = trained.sample(20_000, seed=1)
    torch.testing.assert_close(draws.mean(0), probabilities(trained) @ STATES, rtol=0, atol=0.02)


def test_before_training():
    model = ClusteredEinet(GRID, einet.Gaussian(), 3, 4, seed=2)
    assert not model.initialized
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    alone = einet.Einet(GRID, einet.Gaussian(), 3, seed=2)
    torch.testing.assert_close(model.log_prob(x), alone.log_prob(x))
    assert (model.num_clusters, model.num_variables, model.graph) == (4, 6, GRID)
    assert "clusters=4" in repr(model)
    # And fit of any model works for it too.
    history = einet.fit(model, x, epochs=3, batch_size=5, progress=False)
    assert history.train[-1] > history.train[0]


def test_precision():
    model = ClusteredEinet(GRID, einet.Gaussian(), 3, 2, precision="high")
    assert model.precision == "high"
    model.precision = "medium"
    assert [part.precision for part in model.einets] == ["medium", "medium"]


def test_gradients_learn_it_too(trained: ClusteredEinet):
    model, x = copy.deepcopy(trained), pictures(40)
    before = model.log_prob(x).mean().item()
    optimizer = einet.Gradient(torch.optim.Adam, lr=0.05)
    einet.fit(model, x, epochs=10, optimizer=optimizer, progress=False)
    assert model.log_prob(x).mean().item() > before


# -- files and copies ------------------------------------------------------------------------------


def test_save_and_load(trained: ClusteredEinet, tmp_path: Path):
    trained.save(tmp_path / "model.einet")
    again = einet.load(tmp_path / "model.einet")
    assert type(again) is ClusteredEinet
    assert again.initialized
    state, expected = again.state_dict(), trained.state_dict()
    assert list(state) == list(expected)
    assert all(torch.allclose(state[n], expected[n], 0, 0, equal_nan=True) for n in expected)
    assert again.log_prob(STATES).equal(trained.log_prob(STATES))
    assert all(part.graph is again.graph for part in again.einets)
    # It learns on as it would have.
    one, two = copy.deepcopy(trained), again
    for model in (one, two):
        model.refine(pictures(), epochs=1, progress=False)
    assert one.log_prob(STATES).equal(two.log_prob(STATES))


def test_the_reference_reads_it(trained: ClusteredEinet, tmp_path: Path):
    trained.save(tmp_path / "model.einet")
    found = reference.Reference(tmp_path / "model.einet").log_prob(STATES.numpy())
    np.testing.assert_allclose(found, trained.log_prob(STATES).detach().numpy(), rtol=1e-9)


def test_files_with_components_apart(tmp_path: Path):
    model = ClusteredEinet(GRID, einet.Gaussian(), 2, 3)
    model.einets[1].initialize(torch.randn(9, 6, generator=torch.Generator().manual_seed(0)))
    model.save(tmp_path / "model.einet")
    again = einet.load(tmp_path / "model.einet")
    assert isinstance(again, ClusteredEinet)
    assert [part.initialized for part in again.einets] == [False, True, False]
    x = torch.randn(9, 6, generator=torch.Generator().manual_seed(1))
    assert again.log_prob(x).equal(model.log_prob(x))


def test_copies(trained: ClusteredEinet):
    for again in (copy.deepcopy(trained), pickle.loads(pickle.dumps(trained))):
        assert again.log_prob(STATES).equal(trained.log_prob(STATES))
        assert again not in _stand_ins
    with torch.no_grad():
        assert trained.float().log_prob(STATES).dtype == torch.float32
        trained.double()


def test_of_components():
    parts = [einet.Einet(GRID, einet.Bernoulli(), 3, seed=seed) for seed in range(2)]
    model = ClusteredEinet.of(parts, [1, 3])
    torch.testing.assert_close(model.weights, torch.tensor([0.25, 0.75]))
    with pytest.raises(TypeError, match="components must be a sequence of at least one Einet"):
        ClusteredEinet.of([])
    others: list[Any] = [
        einet.Einet(GRID, einet.Bernoulli(), 2),
        einet.Einet(GRID, einet.Binomial(1), 3),
        einet.Einet(einet.poon_domingos((3, 2), delta=1), einet.Bernoulli(), 3),
        einet.Einet(GRID, einet.Bernoulli(), 3, dtype=torch.float64),
    ]
    for other in others:
        with pytest.raises(ValueError, match="the same structure, families and types"):
            ClusteredEinet.of([parts[0], other])


# -- one model in the place of many ----------------------------------------------------------------


def test_densities_through_the_stand_in(trained: ClusteredEinet, monkeypatch):
    """As on a GPU: every component in turn, also after they have changed."""
    model = copy.deepcopy(trained)
    batch = as_batch(STATES, 6)

    def by_stand_in() -> Tensor:
        with monkeypatch.context() as patch, torch.no_grad():
            patch.setattr(ClusteredEinet, "_plain", lambda self, batch: False)
            return model.component_log_prob(batch)

    for _ in range(2):
        with torch.no_grad():
            assert by_stand_in().equal(model.component_log_prob(batch))
        model.refine(pictures(), epochs=1, progress=False)
    first = _stand_ins[model]
    model.float()
    with torch.no_grad():
        assert by_stand_in().equal(model.component_log_prob(batch))
    assert _stand_ins[model] is not first


def test_when_components_answer_themselves(trained: ClusteredEinet):
    batch = Batch(torch.zeros(1, trained.num_variables))
    assert trained._plain(batch)
    model = copy.deepcopy(trained).to("meta")
    assert model._plain(batch.to(model.device))


@pytest.mark.gpu
class TestGPU:
    def rows(self, count: int) -> Tensor:
        generator = torch.Generator().manual_seed(2)
        kind = torch.randint(4, (count, 1), generator=generator)
        return 3 * kind + torch.randn(count, 6, generator=generator)

    @pytest.mark.parametrize("missing", [False, True])
    @pytest.mark.parametrize("prior", [None, einet.Prior(sums=2.0, leaves=1.0)], ids=["", "prior"])
    @pytest.mark.parametrize("together", [1, 2, 4])
    def test_as_on_the_cpu(self, missing: bool, prior: einet.Prior | None, together: int):
        x, clusters = self.rows(400), torch.arange(400) % 4
        # Clusters of several sizes, one of them smaller than a batch.
        clusters[:250], clusters[250:260] = 0, 3
        if missing:
            x[torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.1] = NAN
        models = {}
        for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
            model = ClusteredEinet(GRID, einet.Gaussian(), 4, 4, dtype=dtype, device=device)
            optimizer = einet.StochasticEM(0.3, prior)
            options = {"clusters": clusters, "optimizer": optimizer, "together": together}
            model.fit(x, epochs=4, batch_size=64, progress=False, **options)
            models[device] = model
        with torch.no_grad():
            exact = models["cpu"].log_prob(x)
            found = models["cuda"].log_prob(x.cuda()).cpu().double()
        torch.testing.assert_close(found, exact, rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(
            models["cuda"].weights.cpu().double(), models["cpu"].weights, rtol=1e-5, atol=0
        )

    def test_one_model_is_recorded(self):
        x = self.rows(900)
        model = ClusteredEinet(GRID, einet.Gaussian(), 4, 12, device="cuda")
        optimizer = einet.StochasticEM(0.3, einet.Prior(sums=1.0, leaves=1.0))
        model.fit(x, epochs=4, batch_size=32, optimizer=optimizer, together=1, progress=False)
        with torch.no_grad():
            for _ in range(3):
                model.log_prob(x.cuda())
        assert not any(part in replay._of_models for part in model.einets)
        kept = replay._of_models[_stand_ins[model].model]._kept
        # Full batches, perhaps halves of them too, and densities.
        assert {key[0] for key in kept} == {"log_prob", "step"}
        assert len(kept) <= 3
        assert all(recording._graph is not None for recording in kept.values())

    def test_many_are_recorded_and_forgotten(self, monkeypatch):
        kept, real = [], replay.forget

        def forget(many: torch.nn.Module) -> None:
            if isinstance(many, SideBySide):
                kept.append((many.count, list(replay._of_models[many]._kept.values())))
            real(many)

        monkeypatch.setattr(replay, "forget", forget)
        model = ClusteredEinet(GRID, einet.Gaussian(), 4, 12, device="cuda")
        clusters = torch.arange(900) % 12
        model.fit(self.rows(900), clusters=clusters, epochs=4, batch_size=32, progress=False)
        ((count, recordings),) = kept
        # A power of two; 75 rows each make three mini-batches.
        assert count == 16
        assert all(recording._graph is not None for recording in recordings)

    def test_the_same_twice(self):
        x, states = self.rows(300), []
        for _ in range(2):
            model = ClusteredEinet(GRID, einet.Gaussian(), 4, 5, device="cuda")
            model.fit(x, epochs=3, batch_size=32, seed=7, progress=False)
            model.refine(x, epochs=2, progress=False)
            states.append(model.state_dict())
        for name, value in states[0].items():
            torch.testing.assert_close(states[1][name], value, rtol=0, atol=0, equal_nan=True)

    @pytest.mark.filterwarnings("ignore:Synchronization debug mode")
    @pytest.mark.parametrize("prior", [None, einet.Prior(sums=2.0, leaves=1.0)], ids=["", "prior"])
    def test_steps_together_do_not_wait_for_the_device(self, prior: einet.Prior | None):
        x = self.rows(100)
        rows = Rows(Batch(x), torch.device("cuda", 0), lambda x: x / 2)
        model = einet.Einet(GRID, einet.Gaussian(), 4, device="cuda").initialize(x)
        trainee = TogetherTrainee(
            SideBySide(model, 2),
            [twin(model), twin(model)],
            [0, 1],
            einet.StochasticEM(0.3, prior),
            rows,
            torch.arange(100).split([40, 60]),
            [None, None],
            batch_size=32,
            seed=0,
            hide=0.0,
            stand_in=StandIn(model),
        )
        self.learn_without_waiting(trainee)

    def learn_without_waiting(self, trainee: Trainee) -> None:
        for epoch in range(4):
            if epoch == 2:
                torch.cuda.synchronize()
                torch.cuda.set_sync_debug_mode("error")
            try:
                watch = Watch(Interrupt(), Bar(4, 4, False))
                assert trainee.learn(epoch, 4, watch) is not None
            finally:
                torch.cuda.set_sync_debug_mode("default")

    @pytest.mark.filterwarnings("ignore:Synchronization debug mode")
    def test_steps_do_not_wait_for_the_device(self):
        x = self.rows(100)
        model = einet.Einet(GRID, einet.Gaussian(), 4, device="cuda").initialize(x)
        rows = Rows(Batch(x), model.device, lambda x: x / 2)
        learner = einet.StochasticEM(0.3)
        self.learn_without_waiting(
            ModelTrainee(model, learner, rows, batch_size=32, seed=(0,), fill=True)
        )


def test_rows_of_a_file_are_those_in_memory(tmp_path: Path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = pictures(40)
    columns = {f"x{number}": x[:, number].numpy() for number in range(6)}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet", row_group_size=15)
    options: dict[str, Any] = {"epochs": 1, "batch_size": 10, "progress": False}
    models = [ClusteredEinet(GRID, einet.Bernoulli(), 2, 2) for _ in range(2)]
    for model, rows in zip(models, (tmp_path / "x.parquet", x), strict=True):
        model.fit(rows, **options)
        model.refine(rows, **options)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert one.equal(other)
