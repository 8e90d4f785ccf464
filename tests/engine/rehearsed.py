"""Rehearse calls without a GPU: to be run by itself, where Triton compiles rather than interprets.

A driver that names a GPU is all that Triton needs to compile for it. Launches that are noted of
copies without memory must be those of the tensors themselves, down to the alignment of each.
"""

from __future__ import annotations

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

import einet
from einet.clusters.side_by_side import SideBySide
from einet.data.batch import Batch
from einet.engine import rehearsal, replay
from einet.kernels.dispatch import backend

ROWS = 48


class Driver:
    """Of a GPU that is not there."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def launches(call, *arguments) -> list[tuple[str, str]]:
    """What is noted of a call with tensors that are there."""
    with rehearsal._noting() as noted, backend("triton"), torch.no_grad():
        call(*arguments)
    return [(kernel.__name__, how) for kernel, how in noted]


def models() -> dict[str, tuple[einet.Einet, torch.Tensor]]:
    trees = einet.random_trees(9, depth=2, replicas=3, seed=0)
    grid = einet.poon_domingos((4, 4), delta=1)
    numbers = torch.randn(ROWS, 16, generator=torch.manual_seed(0))
    states = torch.randint(8, (ROWS, 9), generator=torch.manual_seed(1)).to(torch.uint8)
    hidden = einet.chow_liu(states)
    table, counts = einet.Categorical(8), einet.Binomial(8)
    return {
        "trees": (einet.Einet(trees, einet.Gaussian(), 4, num_classes=2), numbers[:, :9]),
        "grid": (einet.Einet(grid, einet.Gaussian(), 12), numbers),
        "hidden": (einet.Einet(hidden, table, 16, sums="linear"), states),
        "counts": (einet.Einet(hidden, counts, 5, sums="linear"), states),
        "bits": (einet.Einet(trees, einet.Bernoulli(), 4), states % 2),
    }


def main() -> None:
    driver.set_active(Driver())  # type: ignore[arg-type]
    size = torch.tensor(0.5, dtype=torch.float64)
    for name, (model, x) in models().items():
        weights = torch.ones(ROWS, dtype=torch.float64)
        batch = Batch(x.contiguous(), torch.ones_like(x, dtype=torch.bool), None, weights)
        prior = einet.Prior(sums=1.0, leaves=1.0).pseudo_counts(model, x).for_rows(ROWS)
        for kind, counts in (("step", None), ("step", prior), ("expect", None)):
            _notes_the_same(kind, model, batch, size, counts)
        if name == "trees":
            beside = SideBySide(einet.Einet(model.graph, einet.Gaussian(), 4), 3)
            stacked = Batch(batch.x.repeat(1, 3), None, None, weights.unsqueeze(1).repeat(1, 3))
            _notes_the_same("step", beside, stacked, size, None)
        if name == "bits":
            _compiles(model, batch, size)
    print("rehearsed")


def _notes_the_same(kind: str, model: torch.nn.Module, *rest: object) -> None:
    """As the call itself would launch; and no parameter is touched by it."""
    before = [parameter.clone() for parameter in model.parameters()]
    arguments = (replay._make, kind, model, *rest)
    noted = [(kernel.__name__, how) for kernel, how in rehearsal._noted(*arguments)]
    assert len(noted) >= 8, noted
    assert all(map(torch.equal, before, model.parameters()))
    assert set(noted) == set(launches(*arguments))
    # Torch has updated parameters by what no kernel wrote.
    for parameter, value in zip(model.parameters(), before, strict=True):
        parameter.data.copy_(value)


def _compiles(model: einet.Einet, batch: Batch, size: torch.Tensor) -> None:
    """After a rehearsal nothing is left to be compiled."""
    arguments = ("log_prob", model, batch, size, None)
    count = rehearsal.rehearse(replay._make, *arguments)
    assert count >= 4, count
    assert not launches(replay._make, *arguments)
    assert rehearsal.rehearse(replay._make, *arguments) == 0


if __name__ == "__main__":
    main()
