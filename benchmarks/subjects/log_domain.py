"""Our own log-domain baseline, which stores the products."""

from __future__ import annotations

import torch
from baseline import LogDomainNetwork
from points import Point
from torch import Tensor

import einet
from subjects.base import STEP_SIZE, Subject, Unsupported
from subjects.ours import graph_of

__all__ = ["build", "version"]


def version() -> str:
    return einet.__version__


def build(point: Point, mode: str, data: Tensor) -> Subject:
    if not point.is_random_trees:
        raise Unsupported("the baseline evaluates random binary trees only")
    model = LogDomainNetwork(graph_of(point), point.num_sums).to(data.device)

    def log_prob(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return model(x)

    return Subject(
        train=lambda x: model.em_step(x, STEP_SIZE),
        log_prob=log_prob,
        parameters=model.num_parameters,
    )
