"""The reference against the model, on every family and structure."""

import ast
import json
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

import einet
import einet.storage.reference
from einet import Einet, ExponentialFamily, RegionGraph
from einet.models.mixture import Mixture
from einet.storage.reference import Reference
from tests.families.cases import CASES, Case
from tests.structures.strategies import region_graphs

NAN = math.nan
# The format describes the library's families, not those of others.
OURS = [case for case in CASES if type(case.family).__module__.startswith("einet.")]
FAMILIES = [case.family for case in OURS]

GRAPHS = {
    "one leaf": RegionGraph(3, [0b111], []),
    "one replica": einet.random_trees(5, depth=2, replicas=1),
    "three replicas": einet.random_trees(5, depth=2, replicas=3),
    "Poon-Domingos": einet.poon_domingos((2, 3), delta=1),
    "partition of four": RegionGraph(4, [1, 2, 4, 8, 15], [(4, (0, 1, 2, 3))]),
    # Region 5 is the child of two partitions of the root, which has four; one is of three.
    "several of several": RegionGraph(
        3,
        [1, 2, 4, 2, 0b110, 0b110, 0b111],
        [(5, (1, 2)), (5, (3, 2)), (6, (0, 5)), (6, (4, 0)), (6, (0, 1, 2)), (6, (5, 0))],
    ),
}
SIZES = [(3, 3, 1), (2, 4, 3), (4, 2, 1), (1, 1, 2)]


def scrambled(
    graph: RegionGraph,
    family: ExponentialFamily | Sequence[ExponentialFamily],
    num_sums: int = 3,
    num_leaves: int = 3,
    num_classes: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    sums: str = "einsum",
) -> Einet:
    """A model whose leaves and class prior are further apart than those of a fresh one."""
    model = Einet(
        graph,
        family,
        num_sums,
        num_leaves=num_leaves,
        sums=sums,
        num_classes=num_classes,
        seed=seed,
        dtype=dtype,
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for block in model.leaf.leaf_blocks:
            raw = torch.randn(block.stored.shape, generator=generator, dtype=torch.float64)
            block.stored.copy_(block.family.project(block.family.constrain(raw)))
        prior = torch.randn(num_classes, generator=generator, dtype=torch.float64)
        model.log_class_prior.copy_(prior.log_softmax(0))
    return model


def rows(model: Einet, count: int, seed: int = 0) -> Tensor:
    """Values in the supports of the model's families, a third of them missing."""
    generator = torch.Generator().manual_seed(seed)
    columns = []
    for family in model.families:
        phi = family.random_phi((count,), generator)
        columns.append(family.sample(family.project(family.store(phi)), generator))
    x = torch.stack(columns, 1)
    x[torch.rand(x.shape, generator=generator) < 0.3] = NAN
    return x


def check(model: einet.Model, x: Tensor, rtol: float = 1e-12, atol: float = 1e-10) -> np.ndarray:
    """Compare both ways of the model to evaluate, with gradients and without, to the reference."""
    with TemporaryDirectory() as folder:
        model.save(f"{folder}/model.einet")
        reference = Reference(f"{folder}/model.einet")
    expected = reference.log_prob(x)
    assert expected.shape == (len(x),)
    assert not np.isnan(expected).any()
    np.testing.assert_allclose(model.log_prob(x).detach(), expected, rtol, atol)
    with torch.no_grad():
        np.testing.assert_allclose(model.log_prob(x), expected, rtol, atol)
        if isinstance(model, Einet):
            by_class = reference.class_log_prob(x)
            np.testing.assert_allclose(model.class_log_prob(x), by_class, rtol, atol)
    return expected


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_families(case: Case):
    model = scrambled(einet.random_trees(3, depth=1, replicas=2), case.several)
    x = rows(model, 20)
    assert np.isfinite(check(model, x)).all()
    # Outside the support, in each column and beside missing values.
    outside = torch.tensor([*case.outside, math.inf, -math.inf], dtype=torch.float64)
    strange = x[: 3 * len(outside)].clone()
    for column in range(3):
        strange[column * len(outside) : (column + 1) * len(outside), column] = outside
    assert (check(model, strange) == -math.inf).sum() >= 6


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_families_in_float32(case: Case):
    model = scrambled(einet.random_trees(3, 1, 2), case.several, dtype=torch.float32)
    check(model, rows(model, 20), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_structures(graph: RegionGraph, sizes: tuple[int, int, int]):
    families = [FAMILIES[(3 * d) % len(FAMILIES)] for d in range(graph.num_variables)]
    for family in (einet.Gaussian(), families):
        model = scrambled(graph, family, *sizes)
        x = rows(model, 12)
        x[0] = NAN
        assert check(model, x)[0] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("sizes", [(3, 3, 1), (2, 2, 3)], ids=str)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_linear_sums(graph: RegionGraph, sizes: tuple[int, int, int]):
    families = [FAMILIES[(3 * d) % len(FAMILIES)] for d in range(graph.num_variables)]
    for family in (einet.Bernoulli(), families):
        model = scrambled(graph, family, *sizes, sums="linear")
        x = rows(model, 12)
        x[0] = NAN
        assert check(model, x)[0] == pytest.approx(0, abs=1e-12)


@settings(max_examples=25)
@given(
    region_graphs(max_regions=20),
    st.lists(st.sampled_from(FAMILIES), min_size=6, max_size=6),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_any_graph(
    graph: RegionGraph,
    families: list[ExponentialFamily],
    num_sums: int,
    num_leaves: int,
    num_classes: int,
):
    sizes = num_sums, num_leaves, num_classes
    model = scrambled(graph, families[: graph.num_variables], *sizes)
    check(model, rows(model, 8))


@settings(max_examples=25)
@given(region_graphs(), st.integers(1, 2))
def test_the_indices_in_a_file_are_its_graph(graph: RegionGraph, num_leaves: int):
    with TemporaryDirectory() as folder:
        Einet(graph, einet.Bernoulli(), 2, num_leaves=num_leaves).save(f"{folder}/model.einet")
        with safe_open(f"{folder}/model.einet", "numpy") as file:
            layers = json.loads(file.metadata()["einet"])["model"]["layers"]
            tensors = {name: file.get_tensor(name).tolist() for name in file.keys()}  # noqa: SIM118
    # What lies below a node: a leaf, or pairs of children. Equal forms have equal numbers.
    known: dict[tuple, int] = {}

    def pair(*children: tuple) -> tuple:
        return tuple(sorted(known.setdefault(child, len(known)) for child in children))

    leaves: list[tuple] = [("leaf", leaf) for leaf in range(len(graph.leaves))]
    regions = dict(zip(graph.leaves, leaves, strict=True))
    binary = graph.binarized()
    for layer in binary.layers()[1:]:
        for region in layer:
            splits = [binary.partitions[split].children for split in binary.partitions_of(region)]
            pairs = [pair(*(regions[child] for child in split)) for split in splits]
            regions[region] = tuple(sorted(pairs))

    nodes = {"body": leaves, "top": []}
    for index, layer in enumerate(layers):
        name = f"circuit.layers.{index}"
        target = nodes[layer["target"]]
        if layer["kind"] == "EinsumLayer":
            for left, right in zip(tensors[f"{name}.left"], tensors[f"{name}.right"], strict=True):
                child = nodes["body"][left]
                target.append(child if right < 0 else (pair(child, nodes["body"][right]),))
        else:
            children = iter(tensors[f"{name}.children_index"])
            for count in tensors[f"{name}.counts"]:
                simple = [target[next(children)] for _ in range(count)]
                target.append(tuple(sorted(only for (only,) in simple)))
    assert nodes["top"][-1] == regions[binary.root]


def test_weights_of_zero():
    model = scrambled(GRAPHS["several of several"], einet.Gaussian())
    with torch.no_grad():
        for layer in model.circuit.sum_layers:
            for simplex in layer.simplices(layer.weight):
                simplex[simplex < simplex.amax(-1, keepdim=True) / 2] = 0
                simplex /= simplex.sum(-1, keepdim=True)
    check(model, rows(model, 10))


def test_tables_are_normalised_and_their_padding_is_ignored(monkeypatch: pytest.MonkeyPatch):
    # Nothing that is off by more than rounding can be saved.
    monkeypatch.setattr("einet.models.record.check_values", lambda model: None)
    model = scrambled(einet.random_trees(3, 1, 2), einet.Categorical([2, 4, 3]))
    with torch.no_grad():
        model.leaf.leaf_blocks[0].stored.add_(0.1).mul_(3)
    check(model, rows(model, 10))


def test_impossible_rows():
    model = scrambled(GRAPHS["three replicas"], einet.Bernoulli(), num_classes=2)
    x = rows(model, 4)
    x[1:3, 2] = 0.5
    assert (check(model, x) == -math.inf).tolist() == [False, True, True, False]


def test_after_learning():
    graph = einet.random_trees(4, 2, 2)
    families = [einet.Gaussian(), einet.Poisson(), einet.Gamma(), einet.Exponential()]
    model = Einet(graph, families, num_sums=3, dtype=torch.float64)
    # Far from the origin, and in units far from 1.
    x = rows(model, 200) * torch.tensor([1e-3, 1.0, 1e4, 1e-4]) + torch.tensor([50.0, 0, 0, 0])
    model.initialize(x)
    for _ in range(3):
        model.m_step(model.e_step(x))
    check(model, x[:30])


def test_no_rows():
    check(scrambled(GRAPHS["one replica"], einet.Categorical(3)), torch.zeros(0, 5))


def test_mixtures():
    graph = GRAPHS["three replicas"]
    first, second, third = (scrambled(graph, einet.Gaussian(), seed=seed) for seed in range(3))
    other = scrambled(GRAPHS["one replica"], einet.Gaussian(), 2, 4, 3, seed=3)
    inner = Mixture([second, third], weights=[0.2, 0.8])
    model = Mixture([first, inner, other], weights=[0.5, 0.3, 0.2])
    x = rows(first, 10)
    x[0, 0] = math.inf
    assert check(model, x)[0] == -math.inf


def test_a_mixture_has_no_classes(tmp_path: Path):
    model = scrambled(GRAPHS["one replica"], einet.Gaussian())
    Mixture([model]).save(tmp_path / "model.einet")
    with pytest.raises(ValueError, match="classes"):
        Reference(tmp_path / "model.einet").class_log_prob(torch.zeros(1, 5))


@pytest.mark.parametrize("header", [None, {}, {"format": "einet.model", "version": 4}], ids=str)
def test_other_files_are_refused(header: dict | None, tmp_path: Path):
    metadata = None if header is None else {"einet": json.dumps(header)}
    save_file({"a": torch.zeros(1)}, tmp_path / "other", metadata)
    with pytest.raises(
        ValueError, match="other is no file of the format einet.model in version 1 to"
    ):
        Reference(tmp_path / "other")


@pytest.mark.parametrize("place", ["header", "tensors"])
def test_a_damaged_file(place: str, tmp_path: Path):
    path = tmp_path / "model.einet"
    scrambled(GRAPHS["one replica"], einet.Gaussian()).save(path, {"units": "mm"})
    Reference(path)
    content = path.read_bytes()
    damaged = content[:-1] + bytes([content[-1] ^ 1])
    path.write_bytes(damaged if place == "tensors" else content.replace(b"mm", b"cm"))
    with pytest.raises(ValueError, match="is damaged: its checksum is that of another content"):
        Reference(path)


def test_it_shares_no_code_with_the_model():
    tree = ast.parse(Path(einet.storage.reference.__file__).read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "einet").split(".")[0])
    standard = {"__future__", "hashlib", "json", "math", "os", "typing"}
    assert names == standard | {"numpy", "jaxtyping", "safetensors"}
