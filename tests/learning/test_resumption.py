"""Where a state is not taken up the model stays what it was."""

from pathlib import Path

import pytest
import torch

import einet
from einet.learning.resumption import Resumption, take_units

GRAPH = einet.random_trees(4, depth=1, replicas=2, seed=1)
PATH = Path("somewhere/run.checkpoint")


def changed(model: einet.Mixture) -> None:
    for parameter in model.parameters():
        parameter.detach().add_(1)
    for part in model.models:
        part.initialized = True


def mixture() -> einet.Mixture:
    return einet.Mixture([einet.Einet(GRAPH, einet.Gaussian(), 2, seed=s) for s in range(2)])


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_error_puts_everything_back(kind: type[BaseException]):
    model = mixture()
    model.models[1].initialized = True
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def fail() -> None:
        with Resumption(PATH, model):
            changed(model)
            raise kind

    with pytest.raises(kind):
        fail()
    after = model.state_dict()
    assert all(torch.equal(after[n].nan_to_num(), before[n].nan_to_num()) for n in before)
    assert [part.initialized for part in model.models] == [False, True]


@pytest.mark.parametrize("path", [PATH, None])
def test_what_was_learnt_after_it_stays(path: Path | None):
    model = mixture()
    before = model.log_weights.clone()

    def fail() -> None:
        with Resumption(path, model) as resumption:
            if path is not None:
                resumption.done()
            changed(model)
            raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        fail()
    assert not torch.equal(model.log_weights, before)


@pytest.mark.parametrize("error", [KeyError("momentum"), ValueError("done is 7"), TypeError("x")])
def test_errors_name_the_file(error: Exception):
    guard = Resumption(PATH, mixture())
    message = r"checkpoint: somewhere/run\.checkpoint is no checkpoint .*(momentum|done is 7|x)"
    with pytest.raises(ValueError, match=message), guard.reading():
        raise error


def test_units():
    model, other = (einet.Einet(GRAPH, einet.Gaussian(), 2, seed=s) for s in range(2))
    other.initialize(torch.randn(20, 4) * 9)
    take_units(model, {n: t for n, t in other.state_dict().items() if t.is_floating_point()})
    units = [each.leaf.family_groups[0].raw_hyper["scale"] for each in (model, other)]
    assert torch.equal(*units)
    assert model.initialized
    with pytest.raises(ValueError, match=r"last\.leaf\.groups\.0\.scale must be torch"):
        take_units(model, {"leaf.groups.0.scale": torch.ones(3)})
