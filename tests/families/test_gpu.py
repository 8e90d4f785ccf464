"""The same numbers on a GPU, and none of them waited for."""

import math

import pytest
import torch

from tests.families.cases import CASES, Case

pytestmark = pytest.mark.gpu
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@every_case
def test_results_agree_with_the_cpu(case: Case):
    here = case.family
    there = here.to("cuda")
    stored = case.parameters
    x = torch.stack([case.draw(reference, 20) for reference in case.references], -1)
    phi, raw = here.phi_of(stored), here.unconstrain(stored)
    pairs = [
        (here.log_prob(x, stored), there.log_prob(x.cuda(), stored.cuda())),
        (phi, there.phi_of(stored.cuda())),
        (here.store(phi), there.store(phi.cuda())),
        (here.project(3 * stored), there.project(3 * stored.cuda())),
        (here.constrain(raw), there.constrain(raw.cuda())),
        (here.mode(stored), there.mode(stored.cuda())),
    ]
    for expected, found in pairs:
        assert found.device.type == "cuda"
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=1e-8)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples(case: Case, dtype: torch.dtype):
    family, size = case.family.to("cuda"), 20_000
    stored = family.project(case.parameters.cuda().to(dtype)).expand(size, -1, -1)
    x = family.sample(stored, torch.Generator("cuda").manual_seed(0))
    assert torch.equal(x, family.sample(stored, torch.Generator("cuda").manual_seed(0)))
    assert (family.log_h(x) > -math.inf).all()
    if dtype == torch.float32:
        return
    statistics = family.T(x)
    spread = statistics.std(0) / math.sqrt(size)
    z = (statistics.mean(0) - family.phi_of(stored[0])) / spread
    assert (z.abs() < 5)[spread > 0].all()


@every_case
def test_an_m_step_can_be_captured(case: Case):
    family = case.family.expand(3).to("cuda")
    phi = family.random_phi((5, 3)).cuda()

    def m_step() -> torch.Tensor:
        stored = family.project(family.store(phi))
        theta = family.theta_of(stored)
        return torch.cat([stored, theta, family.A(theta).unsqueeze(-1), family.phi_of(stored)], -1)

    expected = m_step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = m_step()
    captured.zero_()
    graph.replay()
    assert torch.equal(captured, expected)
