"""Worker for `einet`: one step of stochastic EM (E-step and M-step)."""

from __future__ import annotations

import argparse

import common
import numpy as np


def prepare(args: argparse.Namespace) -> common.Build:
    import torch

    import einet

    torch.set_num_threads(args.threads)

    def build(data: np.ndarray) -> common.Workload:
        torch.manual_seed(0)
        x = torch.from_numpy(data)
        graph = einet.random_trees(
            num_variables=common.VARIABLES,
            depth=args.depth,
            replicas=args.replicas,
            seed=0,
        )
        model = einet.Einet(graph, einet.Gaussian(), num_sums=args.num_sums)
        model.initialize(x)
        em = einet.StochasticEM(step_size=common.STEP_SIZE)

        def forward() -> np.ndarray:
            with torch.no_grad():
                return model.log_prob(x).numpy()

        return common.Workload(
            train_step=lambda: em.step(model, x),
            forward=forward,
            parameters=int(model.num_parameters),
        )

    return build


if __name__ == "__main__":
    common.main("einet", prepare, modes=("em",))
