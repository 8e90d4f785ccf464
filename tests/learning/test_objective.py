"""What learning maximises, against its definition."""

import pytest
import torch

import einet
from einet.data.batch import Batch
from einet.learning.objective import objective_of

GRAPH = einet.random_trees(4, depth=1, replicas=2, seed=0)


def model_with_classes() -> einet.Einet:
    model = einet.Einet(GRAPH, einet.Gaussian(), 3, num_classes=3, dtype=torch.float64)
    return model.initialize(torch.randn(50, 4, generator=torch.manual_seed(0)))


def test_one_pass_has_the_conditional_of_classes_and_its_gradient():
    x = torch.randn(20, 4, dtype=torch.float64, generator=torch.manual_seed(1))
    x[::3, 1] = torch.nan
    labels = torch.arange(20) % 4 - 1
    model = model_with_classes()
    gradients = []
    with einet.unconstrained(model):
        batch = model.as_batch(x, labels=labels)
        values = objective_of(model, batch, "discriminative")
        expected = model.log_prob(x, labels=labels) - model.log_prob(x)
        torch.testing.assert_close(values, expected)
        # An unknown label says nothing of classes.
        assert (values[labels < 0] == 0).all()
        for objective in (values, expected):
            model.zero_grad()
            objective.sum().backward(retain_graph=True)
            found = [parameter.grad for parameter in model.parameters()]
            gradients.append([grad.clone() for grad in found if grad is not None])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two)


def test_what_has_no_conditional_is_refused():
    x = torch.zeros(2, 4)
    with pytest.raises(ValueError, match="is of labels, but these rows have none"):
        objective_of(model_with_classes(), Batch(x), "discriminative")
    mixture = einet.Mixture([einet.Einet(GRAPH, einet.Gaussian(), 2)])
    with pytest.raises(TypeError, match="is of an Einet, got Mixture"):
        objective_of(mixture, Batch(x, labels=torch.zeros(2).long()), "discriminative")
