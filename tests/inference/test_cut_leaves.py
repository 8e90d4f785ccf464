"""Questions about single variables under events, against sums over all states and integrals."""

import math

import numpy as np
import torch
from scipy import stats

import einet
from tests.inference.test_quantiles import by_hand, gaussians
from tests.oracle import NAN, close, random_model

INF = math.inf


def test_a_mixture_that_an_interval_cuts_off():
    lower, upper = np.array([-2.0, 0.5, -INF, 9.0]), np.array([0.0, 3.0, 1.0, INF])
    posterior = gaussians().given(where={0: einet.between(lower, upper)})

    def expected(x: float, low: float, high: float) -> float:
        mass = by_hand(high) - by_hand(low)
        return (by_hand(min(max(x, low), high)) - by_hand(low)) / mass

    for x in (-3.0, -1.0, 0.7, 10.0):
        wanted = [[expected(x, low, high)] for low, high in zip(lower, upper, strict=True)]
        close(posterior.cdf(x), wanted, rtol=1e-7, atol=1e-12)
    for level in (0.01, 0.5, 0.9):
        found = posterior.quantile(level)
        close(posterior.cdf(found), [[level]] * 4, rtol=1e-9)
        assert (found[:, 0].numpy() >= lower).all()
        assert (found[:, 0].numpy() <= upper).all()


def test_far_out():
    """49 deviations from the mean of the wider of two Gaussians, beyond which it falls fast."""
    posterior = gaussians().given(where={0: einet.between(100.0)})
    wanted = 2 + 2 * stats.truncnorm.ppf(0.5, 49.0, INF)
    close(posterior.median(), [[wanted]], rtol=1e-8)


def test_counts_in_an_event():
    model = random_model(einet.random_trees(2, 1, 2), einet.Poisson(), 3)
    events = {0: einet.between(2, 6), 1: einet.among([1, 4, 5])}
    posterior = model.given(where=events)
    states = torch.cartesian_prod(torch.arange(2.0, 7.0), torch.tensor([1.0, 4.0, 5.0])).double()
    p = model.log_prob(states).exp().numpy().reshape(5, 3)
    p /= p.sum()
    for variable, (values, alone) in enumerate(((range(2, 7), p.sum(1)), ((1, 4, 5), p.sum(0)))):
        reached = np.cumsum(alone)
        for value, wanted in zip(values, reached, strict=True):
            close(posterior.cdf(float(value))[0, variable], wanted)
        assert posterior.quantile(reached[1] - 1e-9)[0, variable] == list(values)[1]
        close(posterior.entropy(variable), [-(alone * np.log(alone)).sum()])
    told = (p * np.log(p / np.outer(p.sum(1), p.sum(0)))).sum()
    close(posterior.mutual_information(0, 1), [told], rtol=1e-7)
    close(posterior.mutual_information()[0, 1, 0], told, rtol=1e-7)


def test_soft_evidence_of_categories():
    model = random_model(einet.random_trees(3, 2, 2), einet.Categorical(3), 3)
    seen = torch.tensor([[0.9, 0.1, 0.3], [0.0, 0.2, 0.7]]).double()
    posterior = model.given(torch.tensor([[NAN, NAN, 1.0]] * 2), where={0: einet.likelihood(seen)})
    assert posterior.cdf(1.0)[:, :2].isnan().all()
    states = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0), torch.ones(1)).double()
    joint = model.log_prob(states).exp().view(3, 3)
    for row in range(2):
        p = (joint * seen[row].unsqueeze(1)).numpy()
        p /= p.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            told = np.nansum(p * np.log(p / np.outer(p.sum(1), p.sum(0))))
        for i, j in ((0, 1), (1, 0)):
            close(posterior.mutual_information(i, j)[row], told, rtol=1e-7)


def test_a_mixture_knows_of_intervals():
    families = [einet.Gaussian(), einet.Bernoulli()]
    model = random_model(einet.random_trees(2, 1, 1), families, 2)
    mixture = einet.Mixture([model, random_model(einet.random_trees(2, 1, 1), families, 1)])
    found = mixture.given(where={0: einet.between(0.0, 1.0)})
    close(found.cdf(found.median())[:, 0], [0.5])
