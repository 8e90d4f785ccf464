"""Mixtures of models against enumeration."""

import copy

import pytest
import torch

import einet
from einet.data.batch import as_batch
from tests.oracle import tracked

STATES = torch.cartesian_prod(*[torch.arange(3.0, dtype=torch.float64)] * 4)
NAN = float("nan")


def make(weights=(0.3, 0.7)) -> einet.Mixture:
    trees = einet.random_trees(4, depth=2, replicas=2, seed=1)
    grid = einet.poon_domingos((2, 2), delta=1)
    first = einet.Einet(trees, einet.Binomial(2), num_sums=3, seed=1, dtype=torch.float64)
    second = einet.Einet(grid, einet.Binomial(2), num_sums=2, seed=2, dtype=torch.float64)
    return einet.Mixture([first, second], weights)


def probabilities(model: einet.Model) -> torch.Tensor:
    with torch.no_grad():
        return model.log_prob(STATES).exp()


def restricted(p: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """The exact posterior over all states given the known cells of ``row``."""
    agrees = ((row == STATES) | row.isnan()).all(1)
    return torch.where(agrees, p, 0.0) / p[agrees].sum()


EVIDENCE = torch.tensor(
    [[NAN] * 4, [0, NAN, NAN, 2], [NAN, 1, 1, NAN], [2, 2, NAN, NAN]], dtype=torch.float64
)


def test_log_prob_adds_weights_in_log_space():
    model = make()
    parts = torch.stack([part.log_prob(STATES) for part in model.models])
    expected = torch.logsumexp(
        parts + torch.tensor([0.3, 0.7], dtype=torch.float64).log()[:, None], 0
    )
    torch.testing.assert_close(model.log_prob(STATES), expected)
    assert probabilities(model).sum().item() == pytest.approx(1.0, abs=1e-12)
    assert abs(model.log_normalizer().item()) < 1e-12


def test_posterior_equals_enumeration():
    model = make()
    p = probabilities(model)
    exact = torch.stack([restricted(p, row) for row in EVIDENCE])
    posterior = model.given(EVIDENCE)
    mean = exact @ STATES
    variance = exact @ STATES**2 - mean**2
    torch.testing.assert_close(posterior.mean(), mean)
    torch.testing.assert_close(posterior.variance(), variance, rtol=1e-9, atol=1e-12)
    for variable in range(4):
        table = torch.stack([exact[:, STATES[:, variable] == s].sum(1) for s in range(3)], 1)
        torch.testing.assert_close(posterior.probabilities(variable), table)
    query = torch.tensor([[1.0, 2, 0, 2]], dtype=torch.float64).expand(4, 4)
    single = torch.stack(
        [
            torch.stack([exact[r, STATES[:, d] == query[r, d]].sum() for d in range(4)])
            for r in range(4)
        ]
    ).log()
    torch.testing.assert_close(posterior.log_marginals(query), single)
    for row, line in zip(EVIDENCE, exact, strict=True):
        answer = model.given(row[None]).log_prob(STATES).exp()
        torch.testing.assert_close(answer, line)


def test_responsibilities_follow_bayes():
    model = make()
    joint = torch.stack(
        [w * part.log_prob(STATES).exp() for w, part in zip((0.3, 0.7), model.models, strict=True)]
    )
    torch.testing.assert_close(model.responsibilities(STATES), (joint / joint.sum(0)).T)


@pytest.mark.parametrize("row", range(len(EVIDENCE)))
def test_samples_follow_the_exact_posterior(row):
    model = make()
    exact = restricted(probabilities(model), EVIDENCE[row])
    n = 20_000
    # Rows with other evidence around it: their draws must not leak into this one's.
    draws = model.given(EVIDENCE).sample(n, seed=3)[:, row]
    place = torch.tensor([27.0, 9, 3, 1], dtype=torch.float64)
    counts = torch.bincount((draws @ place).long(), minlength=81).double()
    possible = exact > 0
    assert counts[~possible].sum() == 0
    chi2 = ((counts - n * exact)[possible] ** 2 / (n * exact[possible])).sum().item()
    freedom = int(possible.sum()) - 1
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5 + 5


def test_mode_is_the_best_of_the_components():
    model = make()
    mode = model.mode()
    candidates = torch.stack([part.mode() for part in model.models])
    values = model.log_prob(candidates)
    torch.testing.assert_close(model.log_prob(mode[None])[0], values.max())


def test_em_raises_the_likelihood_and_keeps_the_mixture_normalised():
    model = make()
    data = STATES[torch.randint(81, (40,), generator=torch.Generator().manual_seed(0))]
    data[::7, 1] = NAN
    before = -torch.inf
    for _ in range(10):
        statistics = model.e_step(data)
        assert statistics.log_likelihood.item() >= before - 1e-9
        before = statistics.log_likelihood.item()
        model.m_step(statistics)
    assert abs(model.log_normalizer().item()) < 1e-12


def test_fit_learns_a_mixture():
    model = make()
    data = STATES[:50]
    history = einet.fit(
        model, data, epochs=5, batch_size=20, optimizer=einet.StochasticEM(0.5), progress=False
    )
    assert history.train[-1] > history.train[0]


def test_gradients_learn_a_mixture():
    model = make()
    before = model.log_prob(STATES[:30]).mean().item()
    einet.fit(
        model,
        STATES[:30],
        epochs=20,
        batch_size=30,
        optimizer=einet.Gradient(torch.optim.Adam, lr=0.1),
        initialize=False,
        progress=False,
    )
    assert model.log_prob(STATES[:30]).mean().item() > before
    assert abs(model.log_normalizer().item()) < 1e-9


def test_a_component_that_cannot_explain_the_evidence_is_left_out():
    trees = einet.random_trees(2, depth=1, replicas=1)
    narrow = einet.Einet(trees, einet.Binomial(1), num_sums=2, dtype=torch.float64)
    wide = einet.Einet(trees, einet.Binomial(5), num_sums=2, dtype=torch.float64)
    model = einet.Mixture([narrow, wide])
    evidence = torch.tensor([[4.0, NAN], [NAN, NAN]], dtype=torch.float64)
    posterior = model.given(evidence)
    torch.testing.assert_close(posterior.mean()[0], wide.given(evidence).mean()[0])
    assert posterior.sample(100, seed=0)[:, 0, 0].unique().tolist() == [4.0]
    with pytest.raises(ValueError, match=r"probability 0 in 1 of 1 rows \(0\)"):
        model.given(torch.tensor([[9.0, NAN]])).mean()


def test_nested_mixtures():
    inner, other = make(), make().models[0]
    model = einet.Mixture([inner, copy.deepcopy(other)], [0.5, 0.5])
    expected = 0.5 * probabilities(inner) + 0.5 * probabilities(other)
    torch.testing.assert_close(probabilities(model), expected)
    assert model.sample(7, seed=0).shape == (7, 4)


def test_bad_arguments():
    model = make()
    with pytest.raises(TypeError, match="components"):
        einet.Mixture([])
    with pytest.raises(ValueError, match="distinct"):
        einet.Mixture([model, model])
    other = einet.Einet(einet.random_trees(3, 1, 1), einet.Gaussian(), 2)
    with pytest.raises(ValueError, match="same number of variables"):
        einet.Mixture([model, other])
    with pytest.raises(ValueError, match="weights"):
        make(weights=(0.0, 0.0))
    with pytest.raises(ValueError, match="weights"):
        make(weights=(1.0,))
    with pytest.raises(ValueError, match="labels"):
        model.e_step(STATES, labels=[0] * 81)
    labelled = as_batch(STATES, 4, labels=[0] * 81)
    for method in (model.e_step, model.log_prob, model.given):
        with pytest.raises(ValueError, match="labels"):
            method(labelled)
    with pytest.raises(ValueError, match="outside the support of Binomial"):
        model.check_support(as_batch([[0, 0, 0, 9]], 4), "train")


def test_gradients_where_a_row_is_impossible():
    """Such a row adds nothing; NaN would spread to every parameter, even where it is left out."""
    graph = einet.random_trees(3, depth=1, replicas=2)
    parts = [
        einet.Einet(graph, einet.Exponential(), 2, seed=s, dtype=torch.float64) for s in (0, 1)
    ]
    model = tracked(einet.Mixture(parts, [0.3, 0.7]))
    x = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)).double()
    x[2, 1] = -1.0
    possible = [0, 1, 3]
    wanted = torch.autograd.grad(model.log_prob(x[possible]).sum(), list(model.parameters()))
    log_prob = model.log_prob(x)
    assert log_prob[2] == -torch.inf
    for loss in (log_prob[possible].sum(), log_prob.sum()):
        found = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        for mine, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, other)
