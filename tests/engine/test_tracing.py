"""Models under torch.compile, torch.export and torch.jit.trace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import einet
from tests.oracle import close

# Torch warns of its own ways while it compiles and traces.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
X = torch.linspace(-1.0, 1.0, 12).view(4, 3)
GRAPH = einet.random_trees(3, depth=1, replicas=2)


def einets(count: int) -> list[einet.Einet]:
    return [einet.Einet(GRAPH, einet.Gaussian(), 2, num_classes=2, seed=s) for s in range(count)]


MODELS: dict[str, Callable[[], einet.Einet | einet.Mixture]] = {
    "Einet": lambda: einets(1)[0],
    "Mixture": lambda: einet.Mixture(einets(2)),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())


def run(code: str) -> None:
    """Run code in a process of its own."""
    path = str(Path(einet.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": path})


@every_model
def test_forward_is_log_prob(make: Callable[[], Any]):
    model = make()
    close(model(X), model.log_prob(X), rtol=0)


def test_compiled_code_runs_models_as_they_are():
    """In a process without checks of shapes, which torch.compile would try to look through."""
    run(_COMPILED)


_COMPILED = """
import einet, torch
graph = einet.random_trees(3, depth=1, replicas=2)
first, second = (einet.Einet(graph, einet.Gaussian(), 2, num_classes=2, seed=s) for s in (0, 1))
mixture = einet.Mixture([second, einet.Einet(graph, einet.Gaussian(), 2)])
x = torch.linspace(-1.0, 1.0, 12).view(4, 3)

def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="eager")

for model in (first, mixture):
    assert compiled(model)(x).equal(model.log_prob(x))
    around = compiled(lambda x: model.log_prob(x * 2) + 1)
    torch.testing.assert_close(around(x), model.log_prob(x * 2) + 1)
for ask in (first.class_log_prob, first.class_posterior):
    assert compiled(ask)(x).equal(ask(x))

gradients = []
for wrap in (compiled, lambda function: function):
    rows = x.clone().requires_grad_()
    wrap(lambda x: first.log_prob(x.tanh()).sum())(rows).backward()
    gradients.append(rows.grad)
torch.testing.assert_close(*gradients)

try:
    torch.compile(first, fullgraph=True, backend="eager")(x)
except RuntimeError as error:
    assert "einet models run their own kernels" in str(error), error
else:
    raise AssertionError("one graph was not refused")
"""


class Around(nn.Module):
    """A model with something else around it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(2 * x)


@every_model
def test_export_and_trace_are_refused_in_one_sentence(make: Callable[[], Any]):
    for module in (make(), Around(make())):
        for attempt in (
            lambda: torch.export.export(module, (X,)),  # noqa: B023
            lambda: torch.export.export(module, (X,), strict=True),  # noqa: B023
            lambda: torch.jit.trace(module, (X,)),  # noqa: B023
        ):
            with pytest.raises(RuntimeError, match="einet models cannot be exported or traced"):
                attempt()


def test_the_compiler_is_not_imported_for_nothing():
    code = "import sys, einet; assert 'torch._dynamo' not in sys.modules"
    run(code)
