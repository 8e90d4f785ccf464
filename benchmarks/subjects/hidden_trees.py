"""The hidden tree of a set of rows, in `einet` and in PyJuice's node language."""

from __future__ import annotations

import importlib.metadata

import torch
from torch import Tensor

import einet
from einet.kernels.dispatch import Precision
from subjects.base import STEP_SIZE, Subject, index_of

__all__ = ["FAMILIES", "ours", "pyjuice"]

PSEUDOCOUNT = 0.01

FAMILIES = {
    "categorical": lambda: einet.Categorical(256),
    "gaussian": lambda: einet.Gaussian(),
    "bernoulli": lambda: einet.Bernoulli(),
}


def ours(
    graph: einet.RegionGraph, leaves: str, num_sums: int, x: Tensor, precision: Precision
) -> tuple[Subject, einet.Einet]:
    """A model on the graph, its leaves set from the rows."""
    model = einet.Einet(
        graph, FAMILIES[leaves](), num_sums, sums="linear", precision=precision, device=x.device
    )
    model.initialize(x)
    subject = Subject(
        train=lambda rows: model.em_step(rows, step_size=STEP_SIZE),
        log_prob=model.log_prob,
        parameters=model.num_parameters,
        precision=precision,
    )
    return subject, model


def pyjuice(graph: einet.RegionGraph, leaves: str, num_sums: int, x: Tensor) -> Subject:
    """The same tree: K inputs for each variable, products entry by entry, K sums over them.

    Blocks are of K nodes, at most 256, which lets it use its tensor-core kernels.
    """
    import pyjuice as juice  # pyright: ignore[reportMissingImports]

    distributions = juice.distributions
    family = {
        "categorical": lambda: distributions.Categorical(num_cats=256),
        "gaussian": lambda: distributions.Gaussian(mu=0.0, sigma=1.0),
        "bernoulli": lambda: distributions.Categorical(num_cats=2),
    }[leaves]
    block = min(256, num_sums & -num_sums)
    made: dict[int, object] = {}

    def vector(region: int):
        partitions = graph.partitions_of(region)
        if not partitions:
            (variable,) = graph.variables(region)
            return juice.inputs(variable, num_node_blocks=num_sums // block, dist=family())
        return juice.summate(product(partitions[0]), num_node_blocks=num_sums // block)

    def product(partition: int):
        return juice.multiply(*(made[child] for child in graph.partitions[partition].children))

    torch.manual_seed(0)
    with juice.set_block_size(block):
        # Children first, without recursion: trees may be deep.
        order = [(graph.root, False)]
        while order:
            region, ready = order.pop()
            below = [c for p in graph.partitions_of(region) for c in graph.partitions[p].children]
            if not ready:
                order += [(region, True), *((child, False) for child in below)]
            elif region != graph.root:
                made[region] = vector(region)
        top = graph.partitions_of(graph.root)[0]
        root = juice.summate(product(top), num_node_blocks=1, block_size=1)
    network = juice.compile(root, verbose=False)
    network.to(index_of(x.device))
    rows_as = torch.float32 if leaves == "gaussian" else torch.long

    def step(rows: Tensor) -> None:
        with torch.no_grad():
            network(rows, record_cudagraph=True)
            network.backward(rows, flows_memory=0.0, record_cudagraph=True)
            network.mini_batch_em(step_size=STEP_SIZE, pseudocount=PSEUDOCOUNT)

    def log_prob(rows: Tensor) -> Tensor:
        with torch.no_grad():
            return network(rows, record_cudagraph=True).flatten()

    return Subject(
        train=lambda rows: step(rows.to(rows_as)),
        log_prob=lambda rows: log_prob(rows.to(rows_as)),
        parameters=sum(each.numel() for each in network.parameters()),
        precision="bf16/tf32" if block >= 16 else "float32",
        notes=[f"PyJuice {importlib.metadata.version('pyjuice')}, CUDA graphs on"],
    )
