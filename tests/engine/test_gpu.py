"""The same answers on a CUDA device as on the CPU; run with ``pytest -m gpu``."""

import copy
from functools import partial

import pytest
import torch

import einet
from tests.twins import Twins

pytestmark = pytest.mark.gpu

NAN = float("nan")
GRAPHS = {
    "trees": lambda: einet.random_trees(12, depth=2, replicas=3, seed=0),
    "grid": lambda: einet.poon_domingos((3, 4), delta=1),
}
FAMILIES = {
    "gaussian": einet.Gaussian(),
    "binomial": einet.Binomial(9),
    "categorical": einet.Categorical(10),
    "mixed": [
        einet.Gaussian(), einet.Bernoulli(), einet.Binomial(5), einet.Categorical(3),
        einet.Poisson(), einet.Exponential(), einet.Beta(), einet.Gamma(),
        einet.Gaussian(), einet.Bernoulli(), einet.Categorical(4), einet.Poisson(),
    ],
}  # fmt: skip


def data(family: str, rows: int = 64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, 12, generator=generator, dtype=torch.float64) * 0.98 + 0.01
    if family in ("binomial", "categorical"):
        x = (x * 10).floor().clamp(max=9)
    elif family == "mixed":
        for column, states in {1: 2, 2: 6, 3: 3, 4: 8, 9: 2, 10: 4, 11: 5}.items():
            x[:, column] = (x[:, column] * states).floor()
    x[::5, 3] = NAN
    x[1::7, 8:] = NAN
    return x


def pair(graph: str, family: str, dtype: torch.dtype) -> tuple[einet.Einet, einet.Einet]:
    model = einet.Einet(
        GRAPHS[graph](), FAMILIES[family], num_sums=5, num_leaves=4, num_classes=2, dtype=dtype
    )
    model.initialize(data(family))
    return model, copy.deepcopy(model).to("cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_densities_statistics_and_moments(graph, family, dtype):
    on_cpu, on_gpu = pair(graph, family, dtype)
    x = data(family)
    rtol, atol = (2e-4, 1e-4) if dtype == torch.float32 else (1e-9, 1e-9)
    close = partial(torch.testing.assert_close, rtol=rtol, atol=atol, equal_nan=True)
    close(on_gpu.log_prob(x).cpu(), on_cpu.log_prob(x))
    for _ in range(3):
        for model in (on_cpu, on_gpu):
            model.m_step(model.e_step(x), 0.5)
    close(on_gpu.log_prob(x).cpu(), on_cpu.log_prob(x))
    first, second = on_cpu.given(x), on_gpu.given(x)
    close(second.mean().cpu(), first.mean())
    close(second.variance().cpu(), first.variance())
    close(second.log_marginals(x).cpu(), first.log_marginals(x))
    assert second.mode().shape == first.mode().shape


# Every K and every batch size, not every pair of them: each K takes a while to compile.
@pytest.mark.parametrize(
    ("graph", "K", "batch"),
    [
        *(("trees", K, 7) for K in (1, 3, 16, 40)),
        *(("trees", K, 100) for K in (3, 10, 64)),
        *(("trees", K, 500) for K in (1, 10, 16, 40, 64)),
        *(("trees", K, 1) for K in (10, 64)),
        *(("grid", 10, batch) for batch in (1, 500)),
    ],
)
def test_sizes(graph, K, batch):
    """One step of EM, densities before and after, beside float64 on the CPU."""
    twins = Twins(GRAPHS[graph](), einet.Gaussian(), K, "cuda")
    x = twins.rows(batch)
    twins.densities(x)
    twins.step(x, 0.5)
    twins.follow()
    twins.densities(x)


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_are_finite_and_keep_the_evidence(family):
    _, model = pair("grid", family, torch.float32)
    x = data(family)
    drawn = model.given(x).sample(7, seed=1).cpu()
    known = ~x.isnan()
    torch.testing.assert_close(drawn[:, known].double(), x[known].expand(7, -1), rtol=1e-6, atol=0)
    assert drawn.isfinite().all()
    assert model.log_prob(model.sample(50, seed=0)).isfinite().all()
    torch.testing.assert_close(model.sample(5, seed=3), model.sample(5, seed=3))


def test_fit_moves_data_and_model(tmp_path):
    model = einet.Einet(GRAPHS["trees"](), einet.Gaussian(), num_sums=4)
    x = data("gaussian", rows=200).numpy()
    history = einet.fit(
        model, x[:150], valid=x[150:], epochs=4, batch_size=40, device="cuda", progress=False
    )
    assert model.device.type == "cuda"
    assert history.train[-1] > history.train[0]
    einet.fit(
        model,
        x,
        epochs=2,
        batch_size=50,
        optimizer=einet.Gradient(torch.optim.Adam, lr=0.01),
        progress=False,
    )
    assert abs(model.log_normalizer().item()) < 1e-4
    model.save(tmp_path / "model.einet")
    again = einet.load(tmp_path / "model.einet")
    torch.testing.assert_close(again.log_prob(x), model.log_prob(x).cpu(), rtol=1e-4, atol=1e-4)


def test_mixture():
    parts = [pair("trees", "binomial", torch.float64)[1] for _ in range(2)]
    model = einet.Mixture(parts, [0.4, 0.6])
    x = data("binomial")
    posterior = model.given(x)
    assert posterior.mean().isfinite().all()
    assert posterior.sample(3, seed=0).isfinite().all()
    model.m_step(model.e_step(x))
    assert abs(model.log_normalizer().item()) < 1e-9
