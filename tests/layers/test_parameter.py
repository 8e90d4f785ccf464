"""Canonical parameters: they refuse gradients, wherever torch moves or copies them."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch

import einet
from einet.layers.parameter import CanonicalParameter, OnPaper, release
from tests.oracle import close

REFUSAL = "einet.unconstrained"


def make() -> einet.Mixture:
    graph = einet.random_trees(3, depth=1, replicas=2)
    parts = [einet.Einet(graph, einet.Gaussian(), 2, num_classes=2, seed=s) for s in (0, 1)]
    return einet.Mixture(parts)


def assert_canonical(model: einet.Mixture) -> None:
    assert all(type(p) is CanonicalParameter for p in model.parameters())


def by_torch_save(model: einet.Mixture) -> einet.Mixture:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def by_assignment(model: einet.Mixture) -> einet.Mixture:
    other = make()
    other.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    return other


def by_flag(setter: Callable[[bool], None]) -> Callable[[einet.Mixture], einet.Mixture]:
    def move(model: einet.Mixture) -> einet.Mixture:
        setter(True)
        try:
            return model.double().float()
        finally:
            setter(False)

    return move


MOVES: dict[str, Callable[[einet.Mixture], einet.Mixture]] = {
    "double": lambda model: model.double().float(),
    "to": lambda model: model.to("cpu", torch.float64).to(torch.float32),
    "overwritten": by_flag(torch.__future__.set_overwrite_module_params_on_conversion),
    "swapped": by_flag(torch.__future__.set_swap_module_params_on_conversion),
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch.save": by_torch_save,
    "assigned": by_assignment,
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_they_stay_canonical(move: Callable[[einet.Mixture], einet.Mixture]):
    model, x = make(), torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    before = model.log_prob(x)
    assert_canonical(model)
    moved = move(model)
    assert_canonical(moved)
    close(moved.log_prob(x), before, rtol=1e-5)
    with pytest.raises(RuntimeError, match=REFUSAL):
        torch.optim.SGD(moved.parameters(), lr=0.1)


def test_on_the_meta_device():
    model = make().to("meta")
    assert_canonical(model)
    assert model.device.type == "meta"


def test_from_a_file(tmp_path):
    make().save(tmp_path / "model.einet")
    model = einet.load(tmp_path / "model.einet")
    assert isinstance(model, einet.Mixture)
    assert_canonical(model)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.LBFGS])
def test_optimisers_refuse_them_at_once(kind: Callable[..., torch.optim.Optimizer]):
    model = make()
    for parameters in (model.parameters(), [{"params": list(model.parameters())}]):
        with pytest.raises(RuntimeError, match=REFUSAL):
            kind(parameters, lr=0.1)
    with pytest.raises(RuntimeError, match=REFUSAL):
        kind(model.named_parameters(), lr=0.1)


def test_gradients_cannot_be_asked_for():
    model = make()
    with pytest.raises(RuntimeError, match=REFUSAL):
        model.requires_grad_(True)
    with pytest.raises(RuntimeError, match=REFUSAL):
        model.log_weights.requires_grad = True
    with pytest.raises(RuntimeError, match=REFUSAL):
        CanonicalParameter(torch.zeros(2), requires_grad=True)
    model.requires_grad_(False)
    model.log_weights.requires_grad = False
    with pytest.raises(RuntimeError, match="does not require grad"):
        model.log_prob(torch.zeros(2, 3)).sum().backward()


def test_a_released_one_is_plain():
    model = make()
    before = model.log_weights
    plain = release(model, "log_weights")
    assert model.log_weights is plain
    assert type(plain) is torch.nn.Parameter
    assert plain.requires_grad
    assert plain.equal(before)


def test_unconstrained_gives_plain_ones_and_takes_them_back():
    model = make()
    with einet.unconstrained(model):
        assert not any(isinstance(p, CanonicalParameter) for p in model.parameters())
        assert all(p.requires_grad for p in model.parameters())
        twin = copy.deepcopy(model)
        assert all(p.requires_grad for p in twin.parameters())
    assert_canonical(model)
    assert all(p.grad is None for p in model.parameters())


def test_answers_are_arrays():
    model, x = make(), torch.zeros(2, 3)
    assert model.log_prob(x).numpy().shape == (2,)
    first = model.models[0]
    assert isinstance(first, einet.Einet)
    for ask in (first.log_prob, first.class_log_prob, first.class_posterior):
        assert ask(x).numpy().shape[0] == 2


def test_on_paper_only_what_has_no_values_takes_no_memory():
    with OnPaper():
        assert torch.empty(10**9, 10**9).is_meta
        assert torch.empty((2,), dtype=torch.float64, device="cpu").dtype == torch.float64
        assert torch.tensor([1.0, 2.0]).sum().item() == 3.0
        assert torch.zeros(2).device.type == "cpu"
    assert torch.empty(2).device.type == "cpu"
