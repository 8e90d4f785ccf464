"""Pseudo-counts in the fused steps: of sums, of mixtures and of leaves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import einet
from einet.kernels.triton import mixing, weights
from einet.kernels.update import RELATIVE_FLOOR, step_
from einet.layers import LeafPrior
from tests.kernels.triton.inner_check import EinsumCase, close, interpreted, on_devices
from tests.kernels.triton.leaf_check import INF, NAN, Both, graph_of, normal_rows
from tests.kernels.triton.test_mixing import FEW, MANY
from tests.kernels.triton.test_mixing import Case as MixingCase
from tests.kernels.triton.test_weights import totals_of

# numpy, in which kernels are interpreted, warns where a GPU computes inf or NaN without a word.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

on_strengths = pytest.mark.parametrize("alpha", [0.01, 3.0, 1e9])


def scalar(number: float, device: str) -> Tensor:
    return torch.tensor(number, dtype=torch.float64, device=device)


class TestWeights:
    def stepped(self, case: EinsumCase, step_size: float, alpha: float) -> Tensor:
        weight, device = case.weight.clone(), case.device
        gradient, peak, totals = case.wide(case.gradient), case.sums().peak, totals_of(case)
        size, pseudo = scalar(step_size, device), scalar(alpha, device)
        weights.step(
            weight, case.nodes, case.edges, gradient, peak, totals, size, "highest", pseudo
        )
        return weight

    def exact(self, case: EinsumCase, step_size: float, alpha: float) -> Tensor:
        weight = case.weight.double()
        step_(weight, weight * case.statistics, step_size, axis=-1, pseudo=alpha)
        return weight

    @on_strengths
    @pytest.mark.parametrize(
        ("device", "size", "unary"),
        [
            *(
                pytest.param("cpu", size, unary, marks=interpreted)
                for size, unary in [((3, 10, 4, 9), False), ((40, 3, 20, 3), False),
                                    ((3, 10, 1, 9), True)]
            ),
            *(
                pytest.param("cuda", size, unary, marks=pytest.mark.gpu)
                for size, unary in [((10, 10, 10, 100), False), ((64, 64, 64, 100), False),
                                    ((40, 40, 40, 500), False), ((3, 10, 1, 500), True)]
            ),
        ],
        ids=str,
    )  # fmt: skip
    def test_step(self, size: tuple[int, ...], unary: bool, alpha: float, device: str) -> None:
        case = EinsumCase(size, unary, device)
        found = self.stepped(case, 0.3, alpha)
        close(found, self.exact(case, 0.3, alpha))
        sums = found.double().sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)

    @on_devices
    def test_sums_without_flow(self, device: str) -> None:
        case = EinsumCase((3, 4, 5, 7), False, device)
        case.gradient.zero_()
        case.differentiate()
        # A mini-batch without weight has no pseudo-counts either.
        assert self.stepped(case, 0.5, 0.0).equal(case.weight)
        found = self.stepped(case, 1.0, 1e-3)
        close(found, torch.full_like(found, 1 / 20))

    @on_devices
    def test_floor(self, device: str) -> None:
        case = EinsumCase((3, 4, 5, 7), False, device)
        case.nodes.v[:, 1:] *= 1e-20
        case.evaluate()
        case.differentiate()
        found = self.stepped(case, 1.0, 1e-9)
        assert found.min() >= RELATIVE_FLOOR / 20 * (1 - 1e-5)
        close(found, self.exact(case, 1.0, 1e-9))


class TestMixing:
    def stepped(self, case: MixingCase, step_size: float, alpha: float) -> Tensor:
        weight, device = case.weight.clone(), case.device
        size, pseudo = scalar(step_size, device), scalar(alpha, device)
        mixing.step(weight, case.nodes, case.children, case.ends, case.wide(), size, pseudo)
        return weight

    def exact(self, case: MixingCase, step_size: float, alpha: float) -> Tensor:
        weight = case.weight.double()
        for part in case.parts:
            step_(weight[None, part], case.counts[None, part], step_size, 1, alpha)
        return weight

    @on_devices
    @on_strengths
    @pytest.mark.parametrize("counts", [FEW, MANY])
    def test_step(self, counts: tuple[int, ...], alpha: float, device: str) -> None:
        case = MixingCase(3, 7, counts, device)
        found = self.stepped(case, 0.3, alpha)
        close(found, self.exact(case, 0.3, alpha))
        for part in case.parts:
            sums = found[part].double().sum(0)
            torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)

    @on_devices
    def test_regions_without_flow(self, device: str) -> None:
        case = MixingCase(3, 7, FEW, device)
        case.of_children.zero_()
        assert self.stepped(case, 0.5, 0.0).equal(case.weight)
        found = self.stepped(case, 1.0, 1e-3)
        for part in case.parts:
            close(found[part], torch.full_like(found[part], 1 / (part.stop - part.start)))


class TestLeaves:
    FAMILIES = (
        einet.Gaussian(), einet.Categorical([3, 2, 3, 3, 3]), einet.Bernoulli(), einet.Binomial(2),
    )  # fmt: skip

    def priors(self, both: Both, x: Tensor, count: float | Tensor) -> tuple[LeafPrior, LeafPrior]:
        """Of the fused model and of the exact one, by the exact one's statistics of the data."""
        counts = einet.Prior(leaves=1.0).pseudo_counts(both.exact, x)
        assert counts.leaves is not None
        groups = zip(both.fused.leaf.family_groups, both.exact.leaf.family_groups, strict=True)
        centres = {mine: counts.leaves.centres[other].to(both.device) for mine, other in groups}
        return LeafPrior(count, centres), LeafPrior(float(count), counts.leaves.centres)

    def step(self, both: Both, flow: Tensor, priors: tuple[LeafPrior, LeafPrior]) -> None:
        both.fused.leaf.step_(both.seen, flow.to(both.device), 0.4, priors[0])
        both.exact.leaf.step_(both.exact_seen, flow.double(), 0.4, priors[1])
        for block, other in zip(
            both.fused.leaf.leaf_blocks, both.exact.leaf.leaf_blocks, strict=True
        ):
            found = block.stored.detach().cpu().double()
            torch.testing.assert_close(found, other.stored.detach(), rtol=2e-5, atol=2e-6)

    @on_devices
    @pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
    @pytest.mark.parametrize("K", [3, 20])
    def test_step(self, family: einet.ExponentialFamily, K: int, device: str) -> None:
        """Some cells missing, a whole column of them, and a leaf that nothing reaches."""
        x = normal_rows(17, 5)
        if not isinstance(family, einet.Gaussian):
            most = torch.tensor([2.0, 1.0, 2.0, 2.0, 2.0])
            most = most.clamp(max=1.0) if isinstance(family, einet.Bernoulli) else most
            x = (x.abs() * 2).floor().clamp(max=most)
        both = Both(graph_of(3, 2), family, K, device, x)
        both.values(x)
        before = [block.stored.detach().clone() for block in both.fused.leaf.leaf_blocks]
        for count in (0.3, scalar(100.0, device)):
            self.step(both, both.flow(), self.priors(both, x, count))
        for block, old in zip(both.fused.leaf.leaf_blocks, before, strict=True):
            hidden = block.columns.reshape(-1) == 2
            assert block.stored[:, hidden].equal(old[:, hidden])
            assert not block.stored[:, ~hidden].equal(old[:, ~hidden])

    @on_devices
    def test_far_from_the_origin(self, device: str) -> None:
        x = normal_rows(30, 4).double() * 1e-3 + 1e4
        both = Both(graph_of(3, 1), einet.Gaussian(), 3, device, x)
        both.values(x)
        self.step(both, both.flow(), self.priors(both, x, 5.0))

    @on_devices
    def test_more_states_than_fit_a_program(self, device: str, monkeypatch) -> None:
        from einet.kernels.triton import leaf_table_step

        monkeypatch.setattr(leaf_table_step, "LARGEST_STEP", 16)
        x = torch.arange(18).view(9, 2) * 7 % 40
        both = Both(graph_of(1, 1), einet.Categorical(40), 3, device, x)
        both.values(x)
        self.step(both, both.flow(), self.priors(both, x, 2.0))

    @on_devices
    def test_many_states_of_which_some_occur(self, device: str) -> None:
        x = (torch.arange(60.0).view(30, 2) ** 2) % 80
        both = Both(graph_of(1, 1), einet.Categorical(80), 3, device, x)
        x[:, 1] = NAN
        both.values(x)
        self.step(both, both.flow(), self.priors(both, x, 2.0))
        self.step(both, torch.zeros_like(both.flow()), self.priors(both, x, 2.0))

    @on_devices
    def test_several_families_and_no_flow(self, device: str) -> None:
        x = normal_rows(9, 3, missing=0.0)
        x[:, 1:] = (x[:, 1:] > 0).float()
        x[3, 0], x[4] = INF, NAN
        family = [einet.Gaussian(), einet.Categorical(2), einet.Bernoulli()]
        both = Both(graph_of(2, 1), family, 3, device, x[:3])
        both.values(x)
        self.step(both, both.flow(), self.priors(both, x[5:], 2.0))
        self.step(both, torch.zeros_like(both.flow()), self.priors(both, x[5:], 2.0))
