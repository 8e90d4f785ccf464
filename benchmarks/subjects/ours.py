"""`einet`: stochastic EM through its public interface."""

from __future__ import annotations

import inspect

import torch
from points import Point
from torch import Tensor

import einet
from subjects.base import STEP_SIZE, Subject, Unsupported

__all__ = ["build", "graph_of", "version"]


def version() -> str:
    return einet.__version__


def graph_of(point: Point) -> einet.RegionGraph:
    """The region graph of a point; the peers that take one get the same."""
    if point.is_random_trees:
        return einet.random_trees(point.num_variables, point.depth, point.replicas, seed=0)
    return einet.poon_domingos((32, 32), delta=8, axes=[1], channels=3)


def build(point: Point, mode: str, data: Tensor) -> Subject:
    options = {}
    if "precision" in inspect.signature(einet.Einet).parameters:
        options["precision"] = point.precision
    elif point.precision != "highest":
        raise Unsupported("this version of einet has no precision modes")

    model = einet.Einet(graph_of(point), einet.Gaussian(), point.num_sums, **options)
    model.initialize(data[: point.batch].cpu())
    model.to(data.device)
    em = einet.StochasticEM(step_size=STEP_SIZE)

    def log_prob(x: Tensor) -> Tensor:
        with torch.no_grad():
            return model.log_prob(x)

    return Subject(
        train=lambda x: em.step(model, x),
        log_prob=log_prob,
        parameters=int(model.num_parameters),
        precision=point.precision,
    )
