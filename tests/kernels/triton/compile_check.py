"""Translates kernels of many models for a GPU that is not there; a program of its own.

The interpreter runs what Triton's compiler refuses, such as a variable that changes its shape in a
loop. So launches are noted on a CPU and not made, and each kernel is translated as far as that
needs no GPU. What the compiler refused is printed, one line each, and then how many there were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import driver

import einet
from einet.engine.rehearsal import _noting
from einet.kernels.compilers import NamedDriver
from einet.kernels.dispatch import backend

FAMILIES: dict[str, tuple[Callable[[], Any], int]] = {
    "Gaussian": (einet.Gaussian, 0),
    "Bernoulli": (einet.Bernoulli, 2),
    "Categorical(256)": (lambda: einet.Categorical(256), 256),
    "Categorical(5)": (lambda: einet.Categorical(5), 5),
    "Binomial(255)": (lambda: einet.Binomial(255), 256),
}
#: K, the kind of sums, and whether the tree is a learnt one.
MODELS = (
    (10, "einsum", False),
    (40, "einsum", False),
    (100, "einsum", False),
    (64, "linear", True),
    (300, "linear", True),
    (48, "linear", False),
    (300, "linear", False),
)


class Translated(Exception):
    """Thrown once a kernel is translated: what follows needs a GPU's own compiler."""


def main() -> None:
    driver.set_active(NamedDriver(GPUTarget("cuda", 90, 32)))  # type: ignore[arg-type]
    kernels: dict[tuple[str, str, str], tuple[Any, str]] = {}
    for name, (K, sums, learnt) in product(FAMILIES, MODELS):
        family, states = FAMILIES[name]
        shape = (40, 9)
        x = torch.randint(0, states, shape).float() if states else torch.randn(shape)
        information = "discrete" if states else "gaussian"
        graph = (
            einet.chow_liu(x, information=information) if learnt else einet.random_trees(9, 2, 2)
        )
        model = einet.Einet(graph, family(), K, sums=sums)
        for call in calls_of(model, x):
            # Nothing is computed, so that rows may come out as impossible.
            impossible = contextlib.suppress(ValueError)
            with _noting() as noted, backend("triton"), torch.no_grad(), impossible:
                call()
            for kernel, how in noted:
                key = (kernel.__module__, kernel.__name__, how)
                kernels.setdefault(key, (kernel, f"{name}, K {K}, {sums} sums"))
    translate, refused = ASTSource.make_ir, set()

    def make_ir(*arguments: Any, **options: Any) -> None:
        translate(*arguments, **options)
        raise Translated

    ASTSource.make_ir = make_ir
    for (module, name, how), (kernel, model) in kernels.items():
        try:
            kernel.preload(how)
        except Translated:
            pass
        except Exception as error:
            refused.add(f"refused: {module}.{name} ({model}): {str(error).splitlines()[-1]}")
    print(*sorted(refused), f"{len(kernels)} kernels, {len(refused)} refused", sep="\n")


def calls_of(model: einet.Einet, x: torch.Tensor) -> list[Callable[[], Any]]:
    """All that a model does with rows."""
    batch, step_size = model.as_batch(x), torch.tensor(0.5)
    prior = einet.Prior(sums=1.0, leaves=1.0).of_rows(model, [batch]).for_rows(torch.tensor(40.0))
    holes = x.clone()
    holes[:, :4] = torch.nan
    return [
        lambda: model.step_(batch, step_size),
        lambda: model.step_(batch, step_size, prior),
        lambda: model.e_step(x),
        lambda: model.piece_log_prob(batch),
        lambda: model.sample(10, seed=0),
        lambda: model.given(holes).sample(1, seed=0),
        lambda: model.given(holes).mean(),
    ]


if __name__ == "__main__":
    main()
