"""Rehearse calls without a GPU: to be run by itself, where Triton compiles rather than interprets.

A driver that names a GPU is all that Triton needs to compile for it. Launches that are noted of
copies must be those of the tensors themselves, down to the alignment of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

import einet
from einet.clusters.side_by_side import SideBySide
from einet.data.batch import Batch
from einet.engine import rehearsal, replay
from einet.kernels.compilers import NamedDriver
from einet.kernels.dispatch import backend

ROWS = 48
SIZE = torch.tensor(0.5, dtype=torch.float64)


class Driver(NamedDriver):
    """Of a GPU that is not there, and that nothing is launched on."""

    @staticmethod
    def launcher_cls(src: Any, metadata: Any) -> None:
        assert metadata.target.arch == 90


def launches(call: Any, *arguments: Any) -> list[tuple[str, str]]:
    """What is noted of a call with tensors that are there."""
    with rehearsal._noting() as noted, backend("triton"), torch.no_grad():
        call(*arguments)
    return [(kernel.__name__, how) for kernel, how in noted]


def models() -> Iterator[tuple[torch.nn.Module, torch.Tensor]]:
    trees = einet.random_trees(9, depth=2, replicas=3, seed=0)
    grid = einet.poon_domingos((4, 4), delta=1)
    numbers = torch.randn(ROWS, 16, generator=torch.manual_seed(0))
    states = torch.randint(8, (ROWS, 9), generator=torch.manual_seed(1)).to(torch.uint8)
    hidden = einet.chow_liu(states)
    yield einet.Einet(trees, einet.Gaussian(), 4, num_classes=2), numbers[:, :9]
    yield einet.Einet(grid, einet.Gaussian(), 12), numbers
    yield einet.Einet(hidden, einet.Categorical(8), 16, sums="linear"), states
    yield einet.Einet(hidden, einet.Binomial(8), 70, sums="linear"), states
    yield SideBySide(einet.Einet(trees, einet.Gaussian(), 4), 3), numbers[:, :9].repeat(1, 3)


def batch_of(model: torch.nn.Module, x: torch.Tensor) -> Batch:
    """As a recording has it."""
    columns = (model.count,) if isinstance(model, SideBySide) else ()
    weights = torch.ones(ROWS, *columns, dtype=torch.float64)
    return Batch(x.contiguous(), torch.ones_like(x, dtype=torch.bool), None, weights)


def check_notes(kind: str, model: torch.nn.Module, *rest: Any) -> None:
    """They are what the call itself would launch; and no parameter is touched by them."""
    before = [parameter.clone() for parameter in model.parameters()]
    arguments = (replay._make, kind, model, *rest)
    noted = [(kernel.__name__, how) for kernel, how in rehearsal._noted(*arguments)]
    assert len(noted) >= 4, noted
    assert all(map(torch.equal, before, model.parameters()))
    assert set(noted) == set(launches(*arguments))
    # Torch has updated parameters by what no kernel wrote.
    for parameter, value in zip(model.parameters(), before, strict=True):
        parameter.data.copy_(value)


def check_compiled(model: torch.nn.Module, batch: Batch) -> None:
    """After a rehearsal nothing is left to be compiled, but to be read from the cache."""
    arguments = ("log_prob", model, batch, SIZE, None)
    count = rehearsal.rehearse(replay._make, *arguments)
    assert count >= 4, count
    late = []
    from triton import knobs

    knobs.compilation.listener = lambda **of: late.append(of["cache_hit"])
    rehearsal.rehearse(replay._make, *arguments)
    assert all(late), late
    assert not launches(replay._make, *arguments)


def main() -> None:
    driver.set_active(Driver(GPUTarget("cuda", 90, 32)))  # type: ignore[arg-type]
    for number, (model, x) in enumerate(models()):
        batch = batch_of(model, x)
        check_notes("step", model, batch, SIZE, None)
        if isinstance(model, einet.Einet) and number % 2 == 0:
            prior = einet.Prior(sums=1.0, leaves=1.0).pseudo_counts(model, x).for_rows(ROWS)
            check_notes("step", model, batch, SIZE, prior)
            check_notes("expect", model, batch, SIZE, None)
    bits = einet.Einet(einet.random_trees(4, depth=1, replicas=2), einet.Bernoulli(), 4)
    check_compiled(bits, batch_of(bits, torch.ones(ROWS, 4)))
    print("rehearsed")


if __name__ == "__main__":
    main()
