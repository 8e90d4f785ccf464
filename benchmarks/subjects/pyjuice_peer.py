"""PyJuice: the same random trees in its node language, its mini-batch EM, its CUDA graphs.

PyJuice's own `RAT_SPN` multiplies entry by entry and shares the input nodes between the trees. To
hold the same distributions as an Einsum Network, the circuit is built by hand from
`einet`'s region graph:

- every tree has input nodes of its own: K Gaussians for each variable;
- a product of two regions has K² nodes, one for each pair of entries (`edge_ids`, `sparse_edges`),
  and K sums over all of them; the root sums over the K² products of all trees at once;
- a product may not have products as children, so K sums over its K products follow each leaf of
  more than one variable: K² weights more than `einet` has there.

Nodes lie in blocks of the largest power of two that divides K, PyJuice's own choice; from blocks of
16 on its products are of bf16 or tf32. Its optional CUTLASS kernels need blocks of 128 nodes, or of
64 and batches that are multiples of 32: no point of the study has either.
"""

from __future__ import annotations

import importlib.metadata

import pyjuice as juice  # pyright: ignore[reportMissingImports]
import torch
from points import Point
from torch import Tensor

from einet import RegionGraph
from subjects.base import STEP_SIZE, Subject, Unsupported, index_of
from subjects.ours import graph_of

__all__ = ["build", "circuit", "version"]

PSEUDOCOUNT = 0.01


def version() -> str:
    return importlib.metadata.version("pyjuice")


def build(point: Point, mode: str, data: Tensor) -> Subject:
    if not point.is_random_trees:
        raise Unsupported("built for random binary trees only")
    torch.manual_seed(0)
    graph, K = graph_of(point), point.num_sums
    network = juice.compile(circuit(graph, K), verbose=False)
    network.to(index_of(data.device))

    subject = Subject(
        train=lambda x: None,
        log_prob=lambda x: x,
        parameters=_num_parameters(graph, K),
        precision="bf16/tf32" if K & -K >= 16 else "float32",
        notes=["CUDA graphs on"],
    )
    recording = [True]

    def forward(x: Tensor) -> Tensor:
        with torch.no_grad():
            return network(x, record_cudagraph=recording[0])

    def step(x: Tensor) -> None:
        with torch.no_grad():
            network(x, record_cudagraph=recording[0])
            # A flows_memory of 0 forgets the previous batch's flows.
            network.backward(x, flows_memory=0.0, record_cudagraph=recording[0])
            network.mini_batch_em(step_size=STEP_SIZE, pseudocount=PSEUDOCOUNT)

    def or_eager(call):
        """Record CUDA graphs; where that fails, go on without them and say so."""

        def attempt(x: Tensor):
            if not recording[0]:
                return call(x)
            try:
                return call(x)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                recording[0] = False
                network._recorded_cuda_graphs.clear()
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                subject.notes[:] = [f"without CUDA graphs: {reason[:150]}"]
                return call(x)

        return attempt

    subject.train, subject.log_prob = or_eager(step), or_eager(lambda x: forward(x).flatten())
    return subject


def circuit(graph: RegionGraph, num_sums: int):
    """The root of PyJuice's circuit for a region graph of random binary trees."""
    K = num_sums
    block = min(256, K & -K)
    count = K // block
    entries = torch.arange(K)
    outer = torch.cartesian_prod(entries, entries)

    def product(partition: int):
        left, right = graph.partitions[partition].children
        return juice.multiply(vector(left), vector(right), edge_ids=outer, sparse_edges=True)

    def vector(region: int):
        partitions = graph.partitions_of(region)
        if partitions:
            return juice.summate(product(partitions[0]), num_node_blocks=count)
        family = juice.distributions.Gaussian(mu=0.0, sigma=1.0)
        inputs = [
            juice.inputs(variable, num_node_blocks=count, dist=family)
            for variable in graph.variables(region)
        ]
        if len(inputs) == 1:
            return inputs[0]
        return juice.summate(juice.multiply(*inputs), num_node_blocks=count)

    with juice.set_block_size(block):
        products = [product(partition) for partition in graph.partitions_of(graph.root)]
        return juice.summate(*products, num_node_blocks=1, block_size=1)


def _num_parameters(graph: RegionGraph, num_sums: int) -> int:
    K = num_sums
    sizes = [len(graph.variables(leaf)) for leaf in graph.leaves]
    trees = len(graph.partitions_of(graph.root))
    gaussians = 2 * K * sum(sizes)
    after_leaves = K**2 * sum(size > 1 for size in sizes)
    inner = (len(graph.partitions) - trees) * K**3
    return gaussians + after_leaves + inner + trees * K**2
