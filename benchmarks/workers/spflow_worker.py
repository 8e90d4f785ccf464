"""Worker for SPFlow: its `Einet` with einsum layers, one step of EM or of Adam.

SPFlow's EM takes full steps (it has no step size) and no bound on the variances, so on one batch of
100 samples in 512 dimensions it arrives at NaN within a few steps. Every timed EM step therefore
starts from a newly built model; building is not timed.
"""

from __future__ import annotations

import argparse

import common
import numpy as np


def prepare(args: argparse.Namespace) -> common.Build:
    import torch
    import torch._dynamo  # pyright: ignore[reportUnusedImport]  # Adam's first step imports it
    from spflow.learn.expectation_maximization import (  # pyright: ignore[reportMissingImports]
        expectation_maximization,
    )
    from spflow.learn.gradient_descent import (  # pyright: ignore[reportMissingImports]
        negative_log_likelihood_loss,
    )
    from spflow.modules.leaves.normal import Normal  # pyright: ignore[reportMissingImports]
    from spflow.zoo.einet import Einet  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(args.threads)
    num_sums = args.num_sums

    def new_model():
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  # SPFlow shuffles with the global one
        shape = (common.VARIABLES, num_sums, args.replicas)
        leaf = Normal(
            scope=range(common.VARIABLES),
            out_channels=num_sums,
            num_repetitions=args.replicas,
            loc=torch.randn(shape),
            scale=torch.ones(shape),
        )
        return Einet(
            leaf_modules=[leaf],
            num_sums=num_sums,
            num_leaves=num_sums,
            depth=args.depth,
            num_repetitions=args.replicas,
            layer_type="einsum",
        )

    def build(data: np.ndarray) -> common.Workload:
        x = torch.from_numpy(data)
        models = [new_model()]
        parameters = sum(parameter.numel() for parameter in models[0].parameters())

        def forward() -> np.ndarray:
            models[0].eval()  # lets the layers keep their normalised weights between calls
            with torch.no_grad():
                return models[0].log_likelihood(x).numpy()

        def renew() -> None:
            models.clear()  # so that two models never lie in memory together
            models.append(new_model())

        def em_step() -> None:
            # The leaves' bias correction divides by zero: the weights it sees sum to one.
            expectation_maximization(models[0], x, max_steps=1, bias_correction=False)

        if args.mode == "em":
            return common.Workload(em_step, forward, parameters, before_step=renew)

        optimizer = torch.optim.Adam(models[0].parameters(), lr=0.01)

        def adam_step() -> None:
            optimizer.zero_grad()
            negative_log_likelihood_loss(models[0], x).backward()
            optimizer.step()

        return common.Workload(adam_step, forward, parameters)

    return build


if __name__ == "__main__":
    common.main("SPFlow", prepare, modes=("em", "adam"))
