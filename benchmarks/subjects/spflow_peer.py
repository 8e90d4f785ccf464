"""SPFlow's `Einet` with einsum layers, trained by its EM or by Adam.

SPFlow's EM takes full steps (it has no step size) and has no bound on the variances: on batches of
100 samples in 512 dimensions it arrives at NaN within a few steps. Every timed EM step therefore
starts from the initial parameters; putting them back is not timed.
"""

from __future__ import annotations

import importlib.metadata

import numpy as np
import torch
import torch._dynamo  # pyright: ignore[reportUnusedImport]  # Adam's first step imports it
from points import Point
from spflow.learn.expectation_maximization import (  # pyright: ignore[reportMissingImports]
    expectation_maximization,
)
from spflow.learn.gradient_descent import (  # pyright: ignore[reportMissingImports]
    negative_log_likelihood_loss,
)
from spflow.modules.leaves.normal import Normal  # pyright: ignore[reportMissingImports]
from spflow.zoo.einet import Einet  # pyright: ignore[reportMissingImports]
from torch import Tensor

from subjects.base import Subject, Unsupported

__all__ = ["build", "version"]


def version() -> str:
    return importlib.metadata.version("spflow")


def build(point: Point, mode: str, data: Tensor) -> Subject:
    if not point.is_random_trees:
        raise Unsupported("SPFlow's Einet has random binary trees only")
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  # SPFlow shuffles with the global one
    shape = (point.num_variables, point.num_sums, point.replicas)
    leaf = Normal(
        scope=range(point.num_variables),
        out_channels=point.num_sums,
        num_repetitions=point.replicas,
        loc=torch.randn(shape),
        scale=torch.ones(shape),
    )
    model = Einet(
        leaf_modules=[leaf],
        num_sums=point.num_sums,
        num_leaves=point.num_sums,
        depth=point.depth,
        num_repetitions=point.replicas,
        layer_type="einsum",
    ).to(data.device)
    parameters = sum(parameter.numel() for parameter in model.parameters())

    def log_prob(x: Tensor) -> Tensor:
        model.eval()  # lets the layers keep their normalised weights between calls
        with torch.no_grad():
            return model.log_likelihood(x).flatten()

    if mode == "em":
        initial = {name: value.cpu().clone() for name, value in model.state_dict().items()}

        def restore() -> None:
            model.load_state_dict(initial)
            model.zero_grad(set_to_none=True)

        def em_step(x: Tensor) -> None:
            # The leaves' bias correction divides by zero: the weights it sees sum to one.
            expectation_maximization(model, x, max_steps=1, bias_correction=False)

        notes = ["every step starts from the initial parameters, as full steps arrive at NaN"]
        return Subject(em_step, log_prob, parameters, before_step=restore, notes=notes)

    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def adam_step(x: Tensor) -> None:
        optimizer.zero_grad()
        negative_log_likelihood_loss(model, x).backward()
        optimizer.step()

    return Subject(adam_step, log_prob, parameters)
