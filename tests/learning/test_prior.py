"""Conjugate priors: pseudo-counts, where they lie, and what EM maximises under them."""

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import einet
from einet import EM, Einet, Mixture, Prior, PseudoCounts, RegionGraph, StochasticEM
from einet.engine.statistics import EinetStatistics
from einet.layers import FamilyGroup
from tests.budgets import limit
from tests.oracle import NAN, random_rows
from tests.structures.strategies import region_graphs

FAMILIES = [
    einet.Bernoulli(), einet.Categorical(3), einet.Gaussian(), einet.Binomial(4),
    einet.Categorical(2), einet.Gamma(),
]  # fmt: skip


def mixed(
    graph: RegionGraph | None = None, shift: int = 0, num_sums: int = 3, **options: Any
) -> tuple[Einet, Tensor]:
    """A float64 model with leaves of several families, and rows for it with holes."""
    graph = einet.random_trees(6, depth=2, replicas=2, seed=0) if graph is None else graph
    families = [FAMILIES[(i + shift) % len(FAMILIES)] for i in range(graph.num_variables)]
    model = Einet(graph, families, num_sums, dtype=torch.float64, **options)
    x = random_rows(model, 40, seed=shift, missing=0.2)
    return model.initialize(x), x


def parameters(model: einet.Model) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def same(one: einet.Model, two: einet.Model, rtol: float = 1e-9) -> None:
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=1e-11)


def log_prior(model: Einet, prior: Prior, x: Tensor) -> float:
    """By other means: the leaves' part is β times a mean log density of the rows, without log h."""
    total = 0.0
    for layer in model.circuit.sum_layers:
        for w in layer.simplices(layer.weight.detach()):
            total += prior.sums * w.log().mean(-1).sum().item()
    for block in model.leaf.leaf_blocks:
        family, variables = block.family, block.group.variables[block.columns.reshape(-1)]
        values = x[:, variables]
        filled = torch.where(values.isnan(), family.filler, values)
        each = family.log_prob(filled.unsqueeze(1), block.stored.detach())
        each = each - family.log_h(filled).unsqueeze(1)
        seen = ~values.isnan().unsqueeze(1).expand_as(each)
        mean = torch.where(seen, each, 0.0).sum(0) / seen.sum(0).clamp(min=1)
        total += prior.leaves * mean.sum().item()
    return total


def objective(model: Einet, prior: Prior, x: Tensor) -> float:
    return model.log_prob(x).sum().item() + log_prior(model, prior, x)


def em(model: einet.Model, x: Tensor, prior: Prior | None, epochs: int = 1, size: int = 40) -> None:
    learner = EM(prior)
    learner.start(model, [model.as_batch(x)])
    for _ in range(epochs):
        for part in x.split(size):
            learner.step(model, part)
        learner.end_epoch(model, 0.0)


class TestMaximumAPosteriori:
    @settings(max_examples=20)
    @given(
        graph=region_graphs(max_variables=5, max_regions=10, max_partitions=2),
        shift=st.integers(0, 5),
        prior=st.builds(
            Prior, sums=st.sampled_from([0.0, 0.3, 20.0]), leaves=st.sampled_from([0.0, 0.7, 50.0])
        ),
        num_classes=st.sampled_from([1, 2]),
    )
    def test_the_penalised_likelihood_never_decreases(
        self, graph: RegionGraph, shift: int, prior: Prior, num_classes: int
    ) -> None:
        model, x = mixed(graph, shift, num_sums=2, num_classes=num_classes)
        before = objective(model, prior, x)
        for _ in range(4):
            em(model, x, prior)
            after = objective(model, prior, x)
            assert after >= before - 1e-9 * (1 + abs(before))
            before = after
        assert abs(model.log_normalizer().item()) < 1e-9

    def test_the_log_density(self) -> None:
        model, x = mixed()
        prior = Prior(sums=3.0, leaves=0.5)
        counts = prior.pseudo_counts(model, x)
        found = counts.log_density(model)
        assert found.item() == pytest.approx(log_prior(model, prior, x), rel=1e-12)
        half = counts.for_rows(20).log_density(model)
        assert half.item() == pytest.approx(0.5 * found.item(), rel=1e-12)

    def test_the_log_density_has_gradients(self) -> None:
        model, x = mixed()
        counts = Prior(sums=3.0, leaves=0.5).pseudo_counts(model, x)
        with einet.unconstrained(model):
            before = counts.log_density(model)
            before.backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += 1e-4 * parameter.grad  # type: ignore[operator]
            assert counts.log_density(model) > before

    def test_the_m_step(self) -> None:
        """Pseudo-counts join counts: the formulas themselves."""
        model, x = mixed()
        old, statistics = copy.deepcopy(model), model.e_step(x)
        counts = Prior(sums=2.0, leaves=5.0).pseudo_counts(model, x)
        kept = [t.clone() for t in statistics.tensors()]
        model.m_step(statistics, 1.0, counts)
        assert all(a.equal(b) for a, b in zip(kept, statistics.tensors(), strict=True))
        layers = zip(
            model.circuit.sum_layers, old.circuit.sum_layers, statistics.weights, strict=True
        )
        for layer, before, statistic in layers:
            for w, n in zip(
                layer.simplices(layer.weight.detach()),
                layer.simplices(statistic * before.weight.detach()),
                strict=True,
            ):
                n = n + 2.0 / w.shape[-1]
                torch.testing.assert_close(w, n / n.sum(-1, keepdim=True), rtol=1e-9, atol=1e-12)
        assert counts.leaves is not None
        for block, statistic in zip(model.leaf.leaf_blocks, statistics.leaves, strict=True):
            center = counts.leaves.centres[block.group][block.columns.reshape(-1), :-1]
            weighted = statistic.weighted + 5.0 * center
            phi = weighted / (statistic.total + 5.0).unsqueeze(-1)
            torch.testing.assert_close(block.stored.detach(), block.from_phi(phi))

    def test_strong_priors(self) -> None:
        """In the limit: equal weights, and leaves like their whole column."""
        model, x = mixed()
        prior = Prior(sums=1e13, leaves=1e13)
        counts = prior.pseudo_counts(model, x)
        em(model, x, prior)
        for layer in model.circuit.sum_layers:
            for w in layer.simplices(layer.weight.detach()):
                torch.testing.assert_close(w, torch.full_like(w, 1 / w.shape[-1]))
        assert counts.leaves is not None
        for block in model.leaf.leaf_blocks:
            phi = counts.leaves.centres[block.group][block.columns.reshape(-1), :-1]
            exact = block.from_phi(phi).expand_as(block.stored)
            torch.testing.assert_close(block.stored.detach(), exact, rtol=1e-6, atol=1e-8)

    def test_a_flat_prior_changes_nothing(self) -> None:
        for make in (EM, lambda prior: StochasticEM(0.3, prior)):
            models = []
            for prior in (None, Prior()):
                model, x = mixed()
                learner = make(prior)
                learner.step(model, x)
                learner.end_epoch(model, 0.0)
                models.append(model)
            one, two = map(parameters, models)
            assert all(a.equal(b) for a, b in zip(one, two, strict=True))

    def test_each_part_alone(self) -> None:
        """A prior of sums leaves the leaves' step as it is, bit for bit, and the reverse."""
        plain, x = mixed()
        by_sums, by_leaves = copy.deepcopy(plain), copy.deepcopy(plain)
        plain.em_step(x, step_size=0.5)
        by_sums.em_step(x, step_size=0.5, prior=Prior(sums=1.0).pseudo_counts(by_sums, x))
        by_leaves.em_step(x, step_size=0.5, prior=Prior(leaves=1.0).pseudo_counts(by_leaves, x))
        for name, parameter in plain.named_parameters():
            assert parameter.equal(by_sums.get_parameter(name)) == name.startswith("leaf")
            assert parameter.equal(by_leaves.get_parameter(name)) != name.startswith("leaf")


class TestUnreached:
    def test_sums_move_towards_equal_weights(self) -> None:
        model, x = mixed(num_classes=2)
        labels = torch.zeros(len(x), dtype=torch.long)
        counts = Prior(sums=1.0).pseudo_counts(model, x)
        model.em_step(x, labels=labels, prior=counts)
        top = [layer for layer in model.circuit.sum_layers if layer.target == "top"]
        for layer in top:
            for w in layer.simplices(layer.weight.detach()):
                # Outputs are the last axis but one: the second class.
                idle = w[..., 1, :]
                torch.testing.assert_close(idle, torch.full_like(idle, 1 / w.shape[-1]))

    def test_leaves_move_to_their_columns(self) -> None:
        model, x = mixed()
        counts = Prior(leaves=1.0).pseudo_counts(model, x)
        before = copy.deepcopy(model)
        model.m_step(EinetStatistics.zeros(model), 1.0, counts)
        assert counts.leaves is not None
        for block in model.leaf.leaf_blocks:
            phi = counts.leaves.centres[block.group][block.columns.reshape(-1), :-1]
            torch.testing.assert_close(
                block.stored.detach(), block.from_phi(phi).expand_as(block.stored)
            )
        for one, two in zip(model.circuit.weights, before.circuit.weights, strict=True):
            assert one.equal(two)

    @pytest.mark.parametrize("shift", range(6))
    def test_a_variable_never_observed_keeps_its_parameters(self, shift: int) -> None:
        model, x = mixed(shift=shift)
        x[:, 2] = NAN
        before = copy.deepcopy(model)
        em(model, x, Prior(sums=1.0, leaves=1.0), 2)
        for block, old in zip(model.leaf.leaf_blocks, before.leaf.leaf_blocks, strict=True):
            of_it = block.group.variables[block.columns.reshape(-1)] == 2
            assert block.stored[:, of_it].equal(old.stored[:, of_it])
            assert not block.stored[:, ~of_it].equal(old.stored[:, ~of_it]) or of_it.all()

    def test_rows_without_weight_change_nothing(self) -> None:
        model, x = mixed()
        counts = Prior(sums=1.0, leaves=1.0).pseudo_counts(model, x)
        before = parameters(model)
        none = torch.zeros(len(x), dtype=torch.float64)
        # From a user they are refused; padding of a batch may be all there is of it.
        with pytest.raises(ValueError, match="weights must not be 0 throughout"):
            model.em_step(x, weights=none)
        batch = model.as_batch(x, weights=none)
        model.em_step(batch, prior=counts.for_rows(none.sum()))
        assert all(a.equal(b) for a, b in zip(before, model.parameters(), strict=True))


class TestScale:
    def test_batches_are_as_good_as_one(self) -> None:
        models = []
        for size in (40, 15):
            model, x = mixed()
            em(model, x, Prior(sums=4.0, leaves=2.0), 3, size)
            models.append(model)
        same(*models)

    @pytest.mark.parametrize("shift", range(2))
    def test_a_stochastic_step_of_one_is_an_em_step(self, shift: int) -> None:
        prior = Prior(sums=4.0, leaves=2.0)
        one, x = mixed(shift=shift)
        two = copy.deepcopy(one)
        em(one, x, prior)
        learner = StochasticEM(1.0, prior)
        learner.start(two, [two.as_batch(x)])
        learner.step(two, x)
        same(one, two)

    def test_a_stochastic_step_is_the_gliding_average(self) -> None:
        model, x = mixed()
        full, before = copy.deepcopy(model), copy.deepcopy(model)
        em(full, x, Prior(sums=4.0, leaves=2.0))
        learner = StochasticEM(0.3, Prior(sums=4.0, leaves=2.0))
        learner.start(model, [model.as_batch(x)])
        learner.step(model, x)
        for old, own, new in zip(
            before.circuit.weights, full.circuit.weights, model.circuit.weights, strict=True
        ):
            torch.testing.assert_close(new, 0.7 * old + 0.3 * own)
        blocks = zip(*(m.leaf.leaf_blocks for m in (before, full, model)), strict=True)
        for old, own, new in blocks:
            phis = [b.family.phi_of(b.stored.detach()) for b in (old, own, new)]
            torch.testing.assert_close(phis[2], 0.7 * phis[0] + 0.3 * phis[1])

    @pytest.mark.parametrize("weighted", [False, True])
    def test_mini_batches_share_the_counts(self, weighted: bool) -> None:
        """A rest of a few rows gets a few counts, however the rows are weighted."""
        model, x = mixed()
        weights = torch.rand(40, generator=torch.manual_seed(0)) if weighted else None
        asked: list[PseudoCounts] = []

        def em_step(*_: Any, prior: PseudoCounts, **__: Any) -> Tensor:
            asked.append(prior)
            return torch.zeros(())

        model.em_step = em_step  # type: ignore[method-assign]
        learner = StochasticEM(0.5, Prior(sums=4.0, leaves=2.0))
        learner.start(model, [model.as_batch(x, weights=weights)])
        for part in torch.arange(40).split(15):
            own = None if weights is None else weights[part]
            learner.step(model, model.as_batch(x[part], weights=own))
        share = [15 / 40, 15 / 40, 10 / 40]
        if weights is not None:
            share = [w.sum().item() / weights.sum().item() for w in weights.split(15)]
        assert [float(c.sums) for c in asked if c.sums is not None] == pytest.approx(
            [4.0 * s for s in share], rel=1e-6
        )
        assert [float(c.leaves.count) for c in asked if c.leaves is not None] == pytest.approx(
            [2.0 * s for s in share], rel=1e-6
        )
        assert len({id(c.leaves.centres) for c in asked if c.leaves is not None}) == 1

    def test_a_row_of_weight_two_is_two_rows(self) -> None:
        one, x = mixed()
        two = copy.deepcopy(one)
        prior = Prior(sums=4.0, leaves=2.0)
        learner = StochasticEM(0.5, prior)
        weights = torch.arange(40) % 2 + 1
        learner.start(one, [one.as_batch(x, weights=weights)])
        learner.step(one, one.as_batch(x[:20], weights=weights[:20]))
        learner.start(two, [two.as_batch(x), two.as_batch(x[1::2])])
        learner.step(two, torch.cat([x[:20], x[1:20:2]]))
        same(one, two)


class TestCentres:
    def centres(self, model: einet.Model, x: Any, **rows: Any) -> dict[FamilyGroup, Tensor]:
        counts = Prior(leaves=1.0).pseudo_counts(model, x, **rows)
        assert counts.leaves is not None
        return dict(counts.leaves.centres)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_means_of_statistics(self, weighted: bool) -> None:
        model, x = mixed()
        x[:, 4] = NAN
        weights = torch.rand(40, dtype=torch.float64) if weighted else torch.ones(40).double()
        found = self.centres(model, x, weights=weights if weighted else None)
        assert set(found) == set(model.leaf.family_groups)
        for group, centre in found.items():
            for column, variable in enumerate(group.variables.tolist()):
                known = ~x[:, variable].isnan()
                if not known.any():
                    assert (centre[column] == 0).all()
                    continue
                w = weights[known].unsqueeze(-1)
                T = group.family.at(torch.tensor(column)).T(x[known, variable])
                torch.testing.assert_close(centre[column, :-1], (T * w).sum(0) / w.sum())
                assert centre[column, -1] == 1

    def test_many_rows_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model, x = mixed()
        x = x.repeat(5, 1)
        whole = self.centres(model, x)
        limit(monkeypatch, "prior statistics")
        parts = self.centres(model, x)
        for group, centre in whole.items():
            torch.testing.assert_close(parts[group], centre)

    def test_integers_and_a_mask(self) -> None:
        model = Einet(einet.random_trees(3, 1, 1), einet.Categorical(3), 2)
        x = torch.tensor([[0, 1, 2], [1, 1, 99], [2, 1, 0]])
        observed = x < 50
        (centre,) = self.centres(model, x, observed=observed).values()
        expected = torch.tensor([[1 / 3] * 3, [0, 1, 0], [0.5, 0, 0.5]]).double()
        torch.testing.assert_close(centre[:, :-1], expected)

    def test_components_of_a_mixture_share_them(self) -> None:
        parts = [mixed(seed=seed)[0] for seed in (0, 1)]
        model, x = Mixture(parts), mixed()[1]
        found = self.centres(model, x)
        assert len(found) == 2 * len(parts[0].leaf.family_groups)
        assert len({id(centre) for centre in found.values()}) == len(found) // 2
        # Other units, other numbers.
        wider = x.clone()
        wider[:, 2] *= 3
        parts[1].initialize(wider)
        again = self.centres(model, x)
        assert len({id(centre) for centre in again.values()}) > len(found) // 2

    def test_far_from_the_origin(self) -> None:
        """Float32 parameters, and a column whose mean is a million times its spread."""
        x = 1e4 + 1e-2 * torch.randn(200, 3, generator=torch.manual_seed(0)).double()
        model = Einet(einet.random_trees(3, 1, 2), einet.Gaussian(), 3, dtype=torch.float32)
        em(model.initialize(x), x, Prior(leaves=1e9), size=200)
        torch.testing.assert_close(
            model.double().variance(), x.var(0, correction=0), rtol=1e-2, atol=0
        )


class TestModels:
    @pytest.mark.parametrize("weights", [[0.5, 0.5], [0.9, 0.1]])
    def test_mixtures(self, weights: list[float]) -> None:
        parts = [mixed(num_sums=2, seed=seed)[0] for seed in (0, 1)]
        model, x = Mixture(parts, weights), mixed()[1]
        prior = Prior(sums=2.0, leaves=1.0)
        counts = prior.pseudo_counts(model, x)
        parted = sum(counts.log_density(part) for part in parts)
        torch.testing.assert_close(counts.log_density(model), parted)
        results = []
        for _ in range(4):
            results.append((model.log_prob(x).sum() + counts.log_density(model)).item())
            em(model, x, prior)
        assert results == sorted(results)

    def test_a_batch_in_pieces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one, x = mixed()
        x = x.repeat(4, 1)
        two = copy.deepcopy(one)
        prior = Prior(sums=2.0, leaves=1.0)
        one.em_step(x, step_size=0.5, prior=prior.pseudo_counts(one, x))
        limit(monkeypatch, "values")
        assert len(two.pieces(len(x))) > 1
        two.em_step(x, step_size=0.5, prior=prior.pseudo_counts(two, x))
        same(one, two)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_counts_in_tensors(self, dtype: torch.dtype) -> None:
        one, x = mixed()
        two = copy.deepcopy(one)
        prior = Prior(sums=2.0, leaves=1.0)
        one.em_step(x, step_size=0.5, prior=prior.pseudo_counts(one, x).for_rows(10))
        counts = prior.pseudo_counts(two, x).for_rows(torch.tensor(10, dtype=dtype))
        two.em_step(x, step_size=0.5, prior=counts)
        same(one, two)


class TestFit:
    @pytest.mark.parametrize("make", [EM, lambda prior: StochasticEM(0.5, prior)])
    def test_runs(self, make: Any, tmp_path: Any) -> None:
        model, x = mixed(num_classes=2)
        labels = torch.arange(40) % 3 - 1
        learner = make(Prior(sums=5.0, leaves=1.0))
        history = einet.fit(
            model, x, x[:7], epochs=4, batch_size=15, optimizer=learner, labels=labels,
            weights=torch.arange(40) % 4, progress=False,
        )  # fmt: skip
        assert history.stopped == "finished"
        assert history.train[-1] > history.train[0]
        assert all(p.isfinite().all() for p in model.parameters())
        # Nothing of a prior is left behind: a saved model is like any other and can go on.
        assert learner._counts is None
        model.save(tmp_path / "model.einet")
        loaded = einet.load(tmp_path / "model.einet")
        torch.testing.assert_close(loaded.log_prob(x), model.log_prob(x))
        results = []
        for again in (model, loaded):
            einet.fit(again, x, epochs=2, batch_size=15, optimizer=learner, progress=False)
            results.append(again)
        same(*results)

    def test_it_keeps_a_model_from_overfitting(self) -> None:
        generator = torch.Generator().manual_seed(0)
        x = (torch.rand(230, 8, generator=generator) < 0.3).float()
        scores = []
        for prior in (None, Prior(sums=30.0, leaves=30.0)):
            model = Einet(einet.random_trees(8, 2, 4), einet.Bernoulli(), 6, dtype=torch.float64)
            einet.fit(model, x[:30], epochs=40, optimizer=EM(prior), progress=False)
            scores.append(model.log_prob(x[30:]).mean().item())
        assert scores[1] > scores[0] + 0.5

    def test_unobserved_columns(self) -> None:
        model, x = mixed()
        x[:, 3] = NAN
        learner = StochasticEM(0.5, Prior(sums=1.0, leaves=1.0))
        einet.fit(model, x, epochs=2, batch_size=16, optimizer=learner, progress=False)
        assert all(p.isfinite().all() for p in model.parameters())


class TestErrors:
    @pytest.mark.parametrize("value", [-1.0, -1, math.nan, math.inf])
    @pytest.mark.parametrize("name", ["sums", "leaves"])
    def test_strengths(self, name: str, value: float) -> None:
        with pytest.raises(ValueError, match=f"{name} must be a finite number of at least 0, got"):
            Prior(**{name: value})
        with pytest.raises(ValueError, match=f"{name} must be .* got True"):
            Prior(**{name: True})
        assert getattr(Prior(**{name: 3}), name) == 3

    @pytest.mark.parametrize("prior", [Prior(sums=1.0), Prior(leaves=1.0)])
    def test_not_started(self, prior: Prior) -> None:
        model, x = mixed()
        for learner in (EM(prior), StochasticEM(0.5, prior)):
            with pytest.raises(RuntimeError, match=r"call start\(model, rows\) before step"):
                learner.step(model, x)
            learner.start(model, [model.as_batch(x)])
            learner.step(model, x)
            learner.finish(model)
            with pytest.raises(RuntimeError, match="prior has to know the training rows"):
                learner.step(model, x)

    def test_kinds(self) -> None:
        model, x = mixed()
        with pytest.raises(TypeError, match="prior"):
            EM(prior=0.5)  # type: ignore[arg-type]
        for prior in (Prior(sums=1.0), Prior(leaves=1.0)):
            with pytest.raises(TypeError, match="prior"):
                model.em_step(x, prior=prior)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="prior"):
                model.m_step(model.e_step(x), prior=prior)  # type: ignore[arg-type]

    def test_another_model(self) -> None:
        model, x = mixed()
        counts = Prior(leaves=1.0).pseudo_counts(copy.deepcopy(model), x)
        with pytest.raises(ValueError, match="prior was made for another model"):
            model.em_step(x, prior=counts)

    def test_rows(self) -> None:
        model, x = mixed()
        with pytest.raises(ValueError, match="at least one row"):
            Prior(sums=1.0).pseudo_counts(model, x[:0])
        with pytest.raises(ValueError, match="weights must not be 0 throughout"):
            Prior(sums=1.0).pseudo_counts(model, x, weights=torch.zeros(40))
        x[3, 0] = 0.5
        with pytest.raises(ValueError, match=r"x\[3, 0\] is 0.5, outside the support"):
            Prior(leaves=1.0).pseudo_counts(model, x)


@pytest.mark.parametrize(("leaves", "states"), [(0.5, 3.0), (0.0, 2.0), (4.0, 0.0)])
def test_leaves_over_states_may_have_a_pseudo_count_of_their_own(leaves: float, states: float):
    model, x = mixed()
    counts = Prior(leaves=leaves, states=states).pseudo_counts(model, x).leaves
    of_leaves = Prior(leaves=1.0).pseudo_counts(model, x).leaves
    assert counts is not None
    assert of_leaves is not None
    for block in model.leaf.leaf_blocks:
        is_state = isinstance(block.family, einet.Bernoulli | einet.Categorical)
        got, one, times = counts.of(block), of_leaves.of(block), states if is_state else leaves
        torch.testing.assert_close(got.total, times * one.total)
        torch.testing.assert_close(got.weighted, times * one.weighted)
    assert Prior(leaves=0.0, states=0.0).flat
    assert not Prior(leaves=0.0, states=1.0).flat
    assert Prior(states=1.0).settings() != Prior().settings()
    with pytest.raises(ValueError, match="states must be a finite number of at least 0"):
        Prior(states=-1.0)


def test_em_with_a_pseudo_count_of_states_never_lowers_the_posterior():
    model, x = mixed(shift=2)
    counts = Prior(sums=1.0, leaves=0.1, states=5.0).pseudo_counts(model, x)
    before = -math.inf
    for _ in range(4):
        now = float(model.log_prob(x).sum() + counts.log_density(model))
        assert now >= before - 1e-9
        before = now
        model.m_step(model.e_step(x), prior=counts)
