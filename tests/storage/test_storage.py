"""Saving and loading: nothing is lost, nothing half-written, nothing foreign accepted."""

import copy
import inspect
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import einet
import einet.storage
from einet import Einet, Model, RegionGraph
from einet.models.mixture import Mixture
from einet.storage import FORMAT, VERSION, FormatError, load, save
from einet.storage.reference import Reference
from tests.families.cases import CASES, Case

DTYPES = [torch.float32, torch.float64]
NAN = float("nan")

GRAPHS = {
    "one leaf": RegionGraph(3, [0b111], []),
    "one replica": einet.random_trees(5, depth=2, replicas=1),
    "three replicas": einet.random_trees(5, depth=2, replicas=3),
    "Poon-Domingos": einet.poon_domingos((2, 3), delta=1),
    "partition of four": RegionGraph(4, [1, 2, 4, 8, 15], [(4, (0, 1, 2, 3))]),
}
MIXED = [
    einet.Gaussian(),
    einet.Categorical(3),
    einet.Gaussian(min_variance=0.1),
    einet.Binomial(4),
    einet.Categorical(2),
    einet.Poisson(),
]


def rows(num_variables: int, count: int = 20) -> Tensor:
    """Zeros, ones and missing cells: in the support of most families."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 2, (count, num_variables), generator=generator).float()
    x[torch.rand(x.shape, generator=generator) < 0.2] = NAN
    return x


def assert_same(loaded: Model, model: Model) -> None:
    """The same tensors, bit by bit, and the same answers."""
    assert type(loaded) is type(model)
    state, expected = loaded.state_dict(), model.state_dict()
    assert list(state) == list(expected)
    for name, value in expected.items():
        assert state[name].dtype == value.dtype, name
        # Not torch.equal, to which NaN (the mark of a bound relative to data) differs from itself.
        torch.testing.assert_close(state[name], value, rtol=0, atol=0, equal_nan=True)
    parameters = [(name, p.requires_grad) for name, p in loaded.named_parameters()]
    assert parameters == [(name, p.requires_grad) for name, p in model.named_parameters()]
    assert (loaded.initialized, loaded.dtype) == (model.initialized, model.dtype)
    if isinstance(loaded, Einet) and isinstance(model, Einet):
        assert loaded.graph == model.graph
        assert list(map(repr, loaded.families)) == list(map(repr, model.families))
        sizes = [(m.num_sums, m.num_leaves, m.num_classes) for m in (loaded, model)]
        assert sizes[0] == sizes[1]
        assert loaded.sums == model.sums
    x = rows(model.num_variables)
    assert torch.equal(loaded.log_prob(x), model.log_prob(x))


def round_trip(model: Model, path: Path) -> Model:
    save(model, path)
    loaded = load(path)
    assert_same(loaded, model)
    return loaded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.einet"


@pytest.fixture
def model() -> Einet:
    return Einet(GRAPHS["three replicas"], MIXED[:5], num_sums=2, num_leaves=3, num_classes=2)


# -- nothing is lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_structures(graph: RegionGraph, dtype: torch.dtype, path: Path):
    mixed = MIXED[: graph.num_variables]
    round_trip(Einet(graph, einet.Bernoulli(), num_sums=3, dtype=dtype), path)
    round_trip(Einet(graph, mixed, num_sums=2, num_leaves=3, num_classes=2, dtype=dtype), path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_families(case: Case, path: Path):
    graph = einet.random_trees(3, depth=1, replicas=2)
    round_trip(Einet(graph, case.several, num_sums=2), path)
    # Beside another family, and in a type that rounds its hyper-parameters.
    families = [case.family, einet.Gaussian(), case.family]
    round_trip(Einet(graph, families, num_sums=2, dtype=torch.float32), path)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_after_learning(dtype: torch.dtype, model: Einet, path: Path):
    model.to(dtype)
    assert not round_trip(model, path).initialized
    x, labels = rows(5), torch.arange(20) % 3 - 1
    model.initialize(x)
    loaded = None
    for _ in range(2):
        model.m_step(model.e_step(x, labels=labels), 0.5)
        loaded = round_trip(model, path)
    assert loaded is not None
    assert loaded.initialized
    # And learning goes on from there as it would have.
    for learner in (model, loaded):
        learner.m_step(learner.e_step(x))
    assert_same(loaded, model)


def test_mixtures(path: Path):
    graph = GRAPHS["three replicas"]
    parts = [Einet(graph, einet.Bernoulli(), num_sums=2, seed=seed) for seed in range(3)]
    parts[0].initialize(rows(5))
    other = Einet(GRAPHS["one replica"], MIXED[:5], num_sums=2, num_classes=2)
    inner = Mixture(parts[1:], weights=[0.2, 0.8])
    model = Mixture([parts[0], inner, other], weights=[0.5, 0.3, 0.2])
    loaded = round_trip(model, path)
    assert isinstance(loaded, Mixture)
    first, nested, last = loaded.components
    assert isinstance(nested, Mixture)
    assert (first.initialized, last.initialized) == (True, False)
    # One graph for the components that had one.
    assert first.graph is nested.components[0].graph is nested.components[1].graph
    with safe_open(path, "pt") as file:
        roots = [name for name in file.keys() if name.endswith(".root")]  # noqa: SIM118
    assert sorted(roots) == ["graphs.0.root", "graphs.1.root"]
    round_trip(model.double(), path)


def test_within_unconstrained_the_canonical_parameters_are_saved(model: Einet, path: Path):
    x = rows(5)
    for learned in (model, Mixture([model, copy.deepcopy(model)], weights=[0.3, 0.7])):
        with einet.unconstrained(learned):
            with torch.no_grad():
                for parameter in learned.parameters():
                    parameter += 0.1 * torch.randn(parameter.shape)
            save(learned, path)
            expected = learned.log_prob(x)
        assert torch.equal(load(path).log_prob(x), expected)
        assert_same(load(path), learned)


def test_parameters_in_shared_memory(path: Path):
    graph = GRAPHS["one replica"]
    first, second = (Einet(graph, einet.Bernoulli(), num_sums=2, seed=seed) for seed in range(2))
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        other.data = one.data
    round_trip(Mixture([first, second]), path)


def test_loading_draws_nothing_from_the_global_generator(model: Einet, path: Path):
    save(model, path)
    state = torch.get_rng_state()
    load(path)
    assert torch.equal(torch.get_rng_state(), state)


def test_device(model: Einet, path: Path):
    save(model, path)
    assert load(path, device="meta").device.type == "meta"
    assert load(path, torch.device("cpu")).device.type == "cpu"


def test_a_loaded_model_does_not_need_its_file(model: Einet, path: Path):
    save(model, path)
    loaded = load(path)
    size = path.stat().st_size
    with path.open("rb+") as file:
        file.write(bytes(size))
    assert_same(loaded, model)


def test_the_method_and_paths_as_text(model: Einet, path: Path):
    model.save(str(path))
    assert_same(load(str(path)), model)


def test_the_same_model_gives_the_same_bytes(model: Einet, path: Path):
    save(model, path)
    before = path.read_bytes()
    save(load(path), path)
    assert path.read_bytes() == before


# -- nothing is half-written -----------------------------------------------------------------------


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_an_existing_file_is_replaced(model: Einet, path: Path):
    path.write_text("old")
    round_trip(model, path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(os.name != "posix", reason="links and modes as POSIX has them")
def test_links_and_modes(model: Einet, path: Path):
    link = path.with_name("link")
    link.symlink_to(path.name)
    old = os.umask(0o027)
    try:
        save(model, link)
    finally:
        os.umask(old)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert_same(load(link), model)


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*args: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize("existing", [True, False], ids=["over a file", "anew"])
@pytest.mark.parametrize(
    ("name", "replacement", "error"),
    [
        ("files.octets", raising(OSError("disk full")), OSError),
        ("files.octets", raising(KeyboardInterrupt()), KeyboardInterrupt),
        ("replace.os.fsync", raising(OSError("fsync")), OSError),
        ("replace.os.replace", raising(OSError("replace")), OSError),
    ],
    ids=["disk full", "interrupted", "fsync", "replace"],
)
def test_failures_leave_everything_as_it_was(
    name: str,
    replacement: Callable[..., None],
    error: type[BaseException],
    existing: bool,
    model: Einet,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    if existing:
        save(model, path)
    before = content(path.parent)
    changed = Einet(model.graph, einet.Gaussian(), num_sums=2)
    with monkeypatch.context() as patch:
        patch.setattr(f"einet.data.{name}", replacement)
        with pytest.raises(error):
            save(changed, path)
    assert content(path.parent) == before


def test_what_cannot_be_written(model: Einet, path: Path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        save(model, path.parent / "nowhere" / "model.einet")
    with pytest.raises(IsADirectoryError, match="one file"):
        save(model, path.parent)
    assert content(path.parent) == {}


# -- what is no model ------------------------------------------------------------------------------


class Unknown(einet.Bernoulli):
    """A family that files do not know."""


def test_models_that_files_do_not_know(path: Path):
    graph = GRAPHS["one replica"]
    with pytest.raises(TypeError, match="must be an Einet or a Mixture, got"):
        # Without the checks of types, which users do not have.
        inspect.unwrap(save)(nn.Linear(2, 2), path)
    with pytest.raises(ValueError, match=r"family Unknown .*families\.register"):
        save(Einet(graph, Unknown(), num_sums=2), path)
    model = Einet(graph, einet.Bernoulli(), num_sums=2)
    model.leaf.blocks.double()
    with pytest.raises(ValueError, match="one type, got torch.float32, torch.float64"):
        save(model, path)
    assert content(path.parent) == {}


def test_no_file(path: Path):
    with pytest.raises(FileNotFoundError, match="model.einet"):
        load(path)
    with pytest.raises(IsADirectoryError, match="one file"):
        load(path.parent)


@pytest.mark.parametrize("data", [b"", b"PK", b"not a model at all", bytes(1000)], ids=repr)
def test_files_of_other_kinds(data: bytes, path: Path):
    path.write_bytes(data)
    with pytest.raises(FormatError, match="model.einet is no model that can be loaded"):
        load(path)


def test_truncated_files(model: Einet, path: Path):
    save(model, path)
    whole = path.read_bytes()
    for length in [*range(0, 2000, 97), *range(2000, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match="model.einet is no model that can be loaded"):
            load(path)
    path.write_bytes(whole + b"0")
    with pytest.raises(FormatError, match="model.einet is no model that can be loaded"):
        load(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}], ids=str)
def test_safetensors_files_of_others(metadata: dict[str, str] | None, path: Path):
    save_file({"weight": torch.zeros(3)}, path, metadata)
    with pytest.raises(FormatError, match="model.einet .* einet did not write it"):
        load(path)


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Tensor]], Any]) -> None:
    """Change a file's header or its tensors, as a file of an earlier release has them."""
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["einet"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header.pop("checksum", None)
    change(header, tensors)
    save_file(tensors, path, {"einet": json.dumps(header)})


def test_rewriting_changes_nothing_by_itself(model: Einet, path: Path):
    save(model, path)
    rewrite(path, lambda header, tensors: None)
    assert_same(load(path), model)


def test_a_newer_version(model: Einet, path: Path):
    save(model, path)
    rewrite(path, lambda header, tensors: header.update(version=VERSION + 1, einet="99.0"))
    with pytest.raises(FormatError, match=f"version {VERSION + 1} .* newer .* einet 99.0"):
        load(path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"format": "other"}'])
def test_metadata_that_are_no_header(text: str, path: Path):
    save_file({"weight": torch.zeros(3)}, path, {"einet": text})
    with pytest.raises(FormatError, match="model.einet .*(metadata|format)"):
        load(path)


# Wrong values of the header, by the place they stand in, and what the message must say.
HEADERS: list[tuple[str, Any, str]] = [
    ("format", "safetensors", "format must be 'einet.model'"),
    ("version", "1", "version must be int"),
    ("version", True, "version must be int"),
    ("version", 0, "version must be at least 1"),
    ("model", None, "model must be dict"),
    ("model.kind", "Tree", "kind must be Einet or Mixture"),
    ("model.kind", None, "kind must be str"),
    ("model.kind", "Mixture", "components must be list"),
    ("model.dtype", "float64", "must be torch.float64"),
    ("model.dtype", None, "dtype must be str"),
    ("model.graph", "graphs.7", "needs 'num_variables'"),
    ("model.num_sums", 5, "must be .* of shape"),
    ("model.num_sums", "2", "num_sums must be int"),
    ("model.num_sums", 0, "num_sums must be an integer"),
    ("model.num_leaves", 4, "must be .* of shape"),
    ("model.num_classes", 1, "must be .* of shape"),
    ("model.initialized", 1, "initialized must be bool"),
    ("model.families", {}, "families must be list"),
    ("model.families", [], "do not cover"),
    ("model.families", [0], "family is no object"),
    ("model.families.0", {"name": "Gaussian", "config": {"A": 1}}, "does not describe"),
    ("model.families.0", {"name": "Cauchy", "config": {}}, "no family .Cauchy.*families.register"),
    ("model.families.0", {"name": "Bernoulli", "config": {}}, "min_probability is missing"),
    ("model.families.1", {"name": "Categorical", "config": {}}, "does not describe"),
    ("model.families.1", {"name": "Categorical", "config": {"width": 9}}, "must be .* of shape"),
    ("model.blocks", [0], "blocks are not what"),
    ("model.layers.0.kind", "MixingLayer", "layers are not what"),
    ("model.layers.0.target", "top", "layers are not what"),
]


@pytest.mark.parametrize(("place", "value", "message"), HEADERS, ids=str)
def test_damaged_headers(place: str, value: Any, message: str, model: Einet, path: Path):
    def change(header: Any, tensors: dict[str, Tensor]) -> None:
        *steps, last = place.split(".")
        for step in steps:
            header = header[int(step) if isinstance(header, list) else step]
        header[int(last) if isinstance(header, list) else last] = value

    save(model, path)
    rewrite(path, change)
    with pytest.raises(FormatError, match=f"(?s)model.einet .*{message}"):
        load(path)


# Each kind of tensor, and how the message calls it where it is missing.
TENSORS = [
    "log_class_prior",
    "leaf.groups.0.variables",
    "leaf.groups.0.scale",
    "leaf.groups.1.num_categories",
    "leaf.blocks.0.leaves",
    "leaf.blocks.0.columns",
    "leaf.blocks.0.stored",
    "circuit.layers.0.weight",
    "circuit.layers.0.left",
    "circuit.layers.0.right",
    "circuit.layers.2.weight",
    "circuit.layers.2.children_index",
    "circuit.layers.2.counts",
    "graphs.0.root",
    "graphs.0.leaf_variables",
    "graphs.0.partition_children",
]


@pytest.mark.parametrize("name", TENSORS)
def test_damaged_tensors(name: str, model: Einet, path: Path):
    def missing(header: Any, tensors: dict[str, Tensor]) -> None:
        del tensors[name]

    def longer(header: Any, tensors: dict[str, Tensor]) -> None:
        old = tensors[name]
        tensors[name] = torch.cat([old, old]) if old.ndim else old.repeat(2)

    def other_axes(header: Any, tensors: dict[str, Tensor]) -> None:
        tensors[name] = tensors[name].unsqueeze(0).clone()

    def other_type(header: Any, tensors: dict[str, Tensor]) -> None:
        old = tensors[name]
        tensors[name] = old.to(torch.int16 if old.is_floating_point() else torch.float32)

    def other_values(header: Any, tensors: dict[str, Tensor]) -> None:
        tensors[name] += 1

    changes = [missing, longer, other_axes, other_type]
    if name.startswith("graphs.") or not model.state_dict()[name].is_floating_point():
        changes.append(other_values)
    for change in changes:
        save(model, path)
        rewrite(path, change)
        part = name.rpartition(".")[2] if change is not other_values else ""
        with pytest.raises(FormatError, match=f"(?s)model.einet is no model .*: .*{part}"):
            load(path)


def test_a_tensor_too_many(model: Einet, path: Path):
    save(model, path)
    rewrite(path, lambda header, tensors: tensors.update(surplus=torch.zeros(2)))
    with pytest.raises(FormatError, match="surplus, which the model does not have"):
        load(path)


def test_damaged_mixtures(model: Einet, path: Path):
    for components, message in (
        ([], "at least one model"),
        ([1], "component is no object"),
        (None, "components must be list"),
    ):
        save(Mixture([model]), path)
        rewrite(path, lambda header, _, new=components: header["model"].update(components=new))
        with pytest.raises(FormatError, match=message):
            load(path)
    save(Mixture([model]), path)
    rewrite(path, lambda header, tensors: tensors.pop("log_weights"))
    with pytest.raises(FormatError, match="log_weights is missing"):
        load(path)


def test_the_name_of_the_format_is_in_the_file(model: Einet, path: Path):
    save(model, path)
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["einet"])
    assert header["format"] == FORMAT == "einet.model"
    assert header["einet"] == einet.__version__
    # The lowest version that can hold it.
    assert (header["version"], VERSION) == (1, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_linear_sums(graph: RegionGraph, dtype: torch.dtype, path: Path):
    options: dict[str, Any] = {"sums": "linear", "num_classes": 2, "dtype": dtype}
    model = Einet(graph, MIXED[: graph.num_variables], 3, **options)
    loaded = round_trip(model, path)
    assert isinstance(loaded, Einet)
    assert loaded.sums == "linear"
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["einet"])
    assert header["version"] == 2
    assert header["model"]["sums"] == "linear"
    # Also somewhere within a mixture.
    other = Einet(graph, MIXED[: graph.num_variables], 2, num_classes=2, dtype=dtype)
    round_trip(Mixture([other, Mixture([model])]), path)
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["einet"])["version"] == 2


def test_a_file_that_does_not_know_of_kinds_of_sums(model: Einet, path: Path):
    save(model, path)
    rewrite(path, lambda header, tensors: header["model"].pop("sums"))
    assert_same(load(path), model)
    for sums, message in (("cubic", "sums must be one of"), (3, "sums must be str")):
        rewrite(path, lambda header, _, new=sums: header["model"].update(sums=new))
        with pytest.raises(FormatError, match=message):
            load(path)


def test_sums_of_another_kind_than_the_file_says(path: Path):
    graph = GRAPHS["three replicas"]
    save(Einet(graph, einet.Bernoulli(), 2, sums="linear"), path)
    rewrite(path, lambda header, _: header["model"].update(sums="einsum"))
    with pytest.raises(FormatError, match="its layers are not what"):
        load(path)


# -- what users add --------------------------------------------------------------------------------


def test_metadata(model: Einet, path: Path):
    told = {"units": "mm", "shape": [2, 3], "nested": {"ä": None, "x": 0.1}}
    model.save(path, metadata=told)
    assert einet.load_metadata(path) == told
    assert_same(load(path), model)
    # The same model and words give the same bytes; without words there is nothing of them.
    before = path.read_bytes()
    save(model, path, metadata=told)
    assert path.read_bytes() == before
    save(model, path)
    assert einet.load_metadata(path) == {}
    with safe_open(path, "pt") as file:
        assert "metadata" not in json.loads(file.metadata()["einet"])


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({1: "one"}, "metadata must be a dict with strings for keys"),
        ({"x": object()}, "metadata must hold what JSON can say: .*object"),
        ({"x": NAN}, "metadata must hold what JSON can say"),
    ],
    ids=["keys", "objects", "NaN"],
)
def test_metadata_that_no_file_can_hold(metadata: Any, message: str, model: Einet, path: Path):
    with pytest.raises(TypeError, match=message):
        save(model, path, metadata=metadata)
    assert not path.exists()


def test_metadata_of_other_files(model: Einet, path: Path):
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(FormatError, match="einet did not write it"):
        einet.load_metadata(path)
    save(model, path)
    rewrite(path, lambda header, tensors: header.update(metadata=[1]))
    with pytest.raises(FormatError, match="metadata must be dict"):
        einet.load_metadata(path)
    with pytest.raises(IsADirectoryError):
        einet.load_metadata(path.parent)


def test_categories_that_are_numbers(path: Path):
    graph = einet.random_trees(3, depth=1, replicas=2)
    model = Einet(graph, einet.Categorical(4, numeric=True), num_sums=2)
    loaded = round_trip(model, path)
    assert torch.equal(loaded.mean(), model.mean())
    assert loaded.mean().isfinite().all()
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["einet"])["version"] == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_pruned_weights_take_less_room(dtype: torch.dtype, path: Path):
    graph = einet.random_trees(5, depth=2, replicas=2)
    model = Einet(graph, einet.Bernoulli(), 12, num_classes=2, dtype=dtype)
    save(model, path)
    whole = path.stat().st_size
    pruned = einet.prune(model, rows(5).nan_to_num(0.0), keep=0.2).model
    round_trip(pruned, path)
    assert path.stat().st_size < 0.5 * whole
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["einet"])["version"] == 3
    x = rows(5)
    expected = torch.from_numpy(Reference(path).log_prob(x)).to(dtype)
    torch.testing.assert_close(pruned.log_prob(x), expected, rtol=1e-5, atol=1e-5)
    # Also within a mixture, beside what is not pruned.
    round_trip(Mixture([model, pruned]), path)
    rewrite(path, lambda header, tensors: None)
    assert_same(load(path), Mixture([model, pruned]))


def test_damaged_bits_of_pruned_weights(path: Path):
    model = Einet(einet.random_trees(4, depth=1, replicas=2), einet.Bernoulli(), 4, num_classes=3)
    pruned = einet.prune(model, rows(4).nan_to_num(0.0), keep=0.1).model
    save(pruned, path)
    with safe_open(path, "pt") as file:
        (name,) = [name for name in file.keys() if name.endswith(".kept")][:1]  # noqa: SIM118
    weight = name.removesuffix(".kept")
    for ending, changed, message in (
        (".kept", lambda t: t[1:], "the bits of .* numbers must be"),
        (".kept", lambda t: t.float(), "the bits of .* numbers must be"),
        (".values", lambda t: t[1:], "there must be a number for each of"),
        (".values", lambda t: t.double(), "must be torch.float32"),
        (".shape", lambda t: t + 1, "its shape must be"),
    ):
        save(pruned, path)
        rewrite(path, lambda _, t, n=weight + ending, new=changed: t.update({n: new(t[n])}))
        with pytest.raises(FormatError, match=message):
            load(path)
    save(pruned, path)
    rewrite(path, lambda _, tensors: tensors.pop(f"{weight}.values"))
    with pytest.raises(FormatError, match="values is missing"):
        load(path)
    save(pruned, path)
    rewrite(path, lambda _, tensors: tensors.update({weight: torch.zeros(1)}))
    with pytest.raises(FormatError, match="twice"):
        load(path)


# -- what files promise ----------------------------------------------------------------------------


def test_a_file_of_an_earlier_release():
    """Written before files had a checksum: families, classes, linear sums and mixtures."""
    path = Path(__file__).with_name("earlier.safetensors")
    with safe_open(path, "pt") as file:
        assert "checksum" not in json.loads(file.metadata()["einet"])
    loaded = load(path)
    assert einet.load_metadata(path) == {"units": "mm"}
    assert isinstance(loaded, Mixture)
    assert [type(part) for part in loaded.components] == [Einet, einet.ClusteredEinet]
    x = rows(5)
    expected = torch.from_numpy(Reference(path).log_prob(x)).float()
    torch.testing.assert_close(loaded.log_prob(x), expected, rtol=1e-5, atol=1e-5)


def test_every_header_is_protected(model: Einet, path: Path):
    """A flipped bit anywhere, in a name or a setting or what a user told."""
    save(model, path, metadata={"units": "mm"})
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    generator = torch.Generator().manual_seed(0)
    for place in torch.randperm(size, generator=generator)[:300].tolist():
        changed = bytearray(whole)
        changed[8 + place] ^= 1 << int(torch.randint(8, (1,), generator=generator))
        path.write_bytes(changed)
        try:
            told = einet.load_metadata(path)
        except FormatError:
            told = {"units": "mm"}
        assert told == {"units": "mm"}
        with pytest.raises(FormatError, match="model.einet is no model that can be loaded"):
            load(path)


def test_a_checksum_whose_name_is_damaged(model: Einet, path: Path):
    save(model, path)
    path.write_bytes(path.read_bytes().replace(b"checksum", b"checkrum"))
    for read in (load, einet.load_metadata):
        with pytest.raises(FormatError, match="there is no field .*checkrum"):
            read(path)


def test_numbers_that_are_no_distribution(model: Einet, path: Path):
    """Also in files without a checksum."""

    def change(header: Any, tensors: dict[str, Tensor]) -> None:
        tensors["circuit.layers.0.weight"][0, 0, 0] = 1e30

    save(model, path)
    rewrite(path, change)
    with pytest.raises(FormatError, match=r"circuit.layers.0.weight must hold probabilities"):
        load(path)
    trials = Einet(GRAPHS["one replica"], einet.Binomial(4), 2)
    save(trials, path)
    rewrite(path, lambda _, tensors: tensors["leaf.groups.0.n"].fill_(NAN))
    with pytest.raises(FormatError, match="n must be not NaN"):
        load(path)
