"""Reading models from files."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from einet._version import __version__
from einet.clusters.clustered import ClusteredEinet
from einet.clusters.stand_in import twin
from einet.families import ExponentialFamily, family_from_config
from einet.models.base import Model
from einet.models.einet import Einet
from einet.models.mixture import Mixture
from einet.models.record import (
    FORMAT,
    KEY,
    VERSION,
    FormatError,
    is_typed,
)
from einet.structures import RegionGraph

__all__ = ["load", "load_metadata"]


def load(path: str | os.PathLike[str], device: torch.device | str | None = None) -> Model:
    """Read a model that :func:`save` wrote: the same numbers, bit by bit, in the same type.

    Args:
        path: The file.
        device: Where to put the model; on the CPU by default, wherever it was when saved.

    Raises:
        FormatError: The file is not of this format, is damaged, or of a newer version of it.
        OSError: There is no such file (``FileNotFoundError``), or it cannot be read.

    Example:
        >>> import einet, tempfile
        >>> graph = einet.random_trees(4, 1, 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     einet.Einet(graph, einet.Bernoulli(), num_sums=3).save(f"{folder}/model.einet")
        ...     model = load(f"{folder}/model.einet")
        >>> model.graph == graph
        True
    """
    path = _checked(path)
    try:
        description, tensors = _read(path)
        model = _build(description, "", tensors, {})
        if "columns" in description:
            # Files of earlier releases have none. The setter checks that there is a name for each.
            model.columns = _field(description, "columns", list)
        _expect(
            not tensors, f"it holds {', '.join(list(tensors)[:3])}, which the model does not have"
        )
    except (FormatError, SafetensorError, ValueError, TypeError, RuntimeError) as error:
        raise FormatError(f"{path} is no model that can be loaded: {error}") from error
    return model if device is None else model.to(device)


def load_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What :func:`save` was given as ``metadata``; empty where it was given none.

    Args:
        path: The file. Its tensors are not read.

    Raises:
        FormatError, OSError: As :func:`load`.

    Example:
        >>> import einet, tempfile
        >>> model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.einet", metadata={"units": "mm", "columns": [3, 1]})
        ...     load_metadata(f"{folder}/model.einet")
        {'units': 'mm', 'columns': [3, 1]}
    """
    path = _checked(path)
    try:
        with safe_open(path, framework="pt") as file:
            return _field({"metadata": {}, **_header(file.metadata())}, "metadata", dict)
    except (FormatError, SafetensorError) as error:
        raise FormatError(f"{path} is no model that can be loaded: {error}") from error


def _checked(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "A model is one file, not a folder", str(path))
    return path


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise FormatError(otherwise)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description of the model and all tensors of a file."""
    with safe_open(path, framework="pt") as file:
        header = _header(file.metadata())
        # Copies: the file may change or vanish while the model lives.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    return _field(header, "model", dict), tensors


def _header(metadata: dict[str, str] | None) -> dict[str, Any]:
    """What a file says beside its tensors, if it is of this format and of a known version."""
    metadata = metadata or {}
    _expect(KEY in metadata, "it is a safetensors file, but einet did not write it")
    try:
        header = json.loads(metadata[KEY])
    except ValueError as error:
        raise FormatError(f"its metadata are damaged: {error}") from error
    _expect(isinstance(header, dict), "its metadata are damaged: they must be a JSON object")
    written = header.get("format")
    _expect(written == FORMAT, f"its format must be {FORMAT!r}, got {written!r}")
    version = _field(header, "version", int)
    _expect(
        version <= VERSION,
        f"it has version {version} of the format, and this release of einet ({__version__}) "
        f"reads version {VERSION}; install a newer one (it was written by einet "
        f"{header.get('einet')})",
    )
    _expect(version >= 1, f"version must be at least 1, got {version}")
    return header


def _field(description: dict[str, Any], name: str, kind: type) -> Any:
    value = description.get(name)
    # JSON's true is an int to Python.
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    _expect(right, f"its metadata are damaged: {name} must be {kind.__name__}, got {value!r}")
    return value


def _build(
    description: dict[str, Any],
    prefix: str,
    tensors: dict[str, Tensor],
    graphs: dict[str, RegionGraph],
) -> Model:
    """The model of a description, filled from the tensors under ``prefix``, which are removed.

    ``graphs`` collects the graphs met so far, so that components share what they shared.
    """
    kind = _field(description, "kind", str)
    if kind == "Einet":
        model = _build_einet(description, prefix, tensors, graphs)
    else:
        _expect(kind == "Mixture", f"kind must be Einet or Mixture, got {kind!r}")
        model = _build_mixture(description, prefix, tensors, graphs)
    _fill(model, _field(description, "dtype", str), prefix, tensors)
    return model


def _build_mixture(
    description: dict[str, Any],
    prefix: str,
    tensors: dict[str, Tensor],
    graphs: dict[str, RegionGraph],
) -> Mixture:
    # Files of earlier releases do not say.
    clustered = _field({"clustered": False, **description}, "clustered", bool)
    parts: list[Any] = []
    descriptions = _field(description, "components", list)
    for number, part in enumerate(descriptions):
        _expect(isinstance(part, dict), "its metadata are damaged: a component is no object")
        start = f"{prefix}components.{number}."
        if clustered and parts and _alike(part, descriptions[0]):
            # Copying is faster than compiling the structure and drawing parameters once more.
            parts.append(twin(parts[0]))
            parts[-1].initialized = _field(part, "initialized", bool)
            _fill(parts[-1], _field(part, "dtype", str), start, tensors)
        else:
            parts.append(_build(part, start, tensors, graphs))
    return ClusteredEinet.of(parts) if clustered else Mixture(parts)


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two Einets are to be built in the same way."""
    same = {**one, "initialized": other.get("initialized")} == other
    return same and one.get("kind") == "Einet"


def _build_einet(
    description: dict[str, Any],
    prefix: str,
    tensors: dict[str, Tensor],
    graphs: dict[str, RegionGraph],
) -> Einet:
    name = _field(description, "graph", str)
    if name not in graphs:
        keys = [key for key in tensors if key.startswith(f"{name}.")]
        arrays = {key.removeprefix(f"{name}."): tensors.pop(key).numpy() for key in keys}
        graphs[name] = RegionGraph.from_arrays(arrays)
    graph = graphs[name]
    model = Einet(
        graph,
        _families(_field(description, "families", list), graph.num_variables, prefix, tensors),
        num_sums=_field(description, "num_sums", int),
        num_leaves=_field(description, "num_leaves", int),
        # The first version knows of one kind only.
        sums=_field({"sums": "einsum", **description}, "sums", str),
        num_classes=_field(description, "num_classes", int),
    )
    model.initialized = _field(description, "initialized", bool)
    for part, order in model.compiled_order().items():
        _expect(
            description.get(part) == order,
            f"its {part} are not what this release of einet compiles from its graph",
        )
    return model


def _families(
    descriptions: list[Any], num_variables: int, prefix: str, tensors: dict[str, Tensor]
) -> ExponentialFamily | list[ExponentialFamily]:
    """One family for all variables where there is one group, else one for each variable."""
    result: list[ExponentialFamily | None] = [None] * num_variables
    for number, description in enumerate(descriptions):
        _expect(isinstance(description, dict), "its metadata are damaged: a family is no object")
        start = f"{prefix}leaf.groups.{number}."
        hyper = {key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)}
        _expect("variables" in hyper, f"the tensor {start}variables is missing")
        variables = hyper.pop("variables").tolist()
        config = _field(description, "config", dict)
        family = family_from_config(_field(description, "name", str), config, hyper)
        _check_family(family, config, start, len(variables))
        if len(descriptions) == 1:
            return family
        for column, variable in enumerate(variables):
            _expect(
                isinstance(variable, int) and 0 <= variable < num_variables,
                f"{start}variables holds {variable}, which is no variable of the model",
            )
            result[variable] = family.at(torch.tensor(column))
    complete = [family for family in result if family is not None]
    _expect(len(complete) == num_variables, "its families do not cover all variables")
    return complete


def _check_family(
    family: ExponentialFamily, config: dict[str, Any], start: str, num_variables: int
) -> None:
    for name, value in family.hyper.items():
        _expect(
            value.is_floating_point() and value.shape == (num_variables,),
            f"{start}{name} must hold a number for each of {num_variables} variables, "
            f"got {value.dtype} of shape {list(value.shape)}",
        )
    try:
        same = family.config() == config
    except AttributeError:
        same = False
    kind = type(family).__name__
    _expect(same, f"its metadata are damaged: {config} does not describe a {kind} family")


def _fill(model: Model, dtype: str, prefix: str, tensors: dict[str, Tensor]) -> None:
    """Put tensors into a model just built, and check that it was built as the saved one was.

    A mixture's components are filled already.
    """
    state = {}
    for name, built in model.state_dict().items():
        if name.startswith("components."):
            continue
        _expect(prefix + name in tensors, f"the tensor {prefix}{name} is missing")
        stored = tensors.pop(prefix + name)
        kind = f"torch.{dtype}" if is_typed(name, built) else str(built.dtype)
        _expect(
            stored.shape == built.shape and str(stored.dtype) == kind,
            f"{prefix}{name} must be {kind} of shape {list(built.shape)}, "
            f"got {stored.dtype} of shape {list(stored.shape)}",
        )
        _expect(
            built.is_floating_point() or torch.equal(stored, built.cpu()),
            f"{prefix}{name} is not what this release of einet compiles from its graph",
        )
        state[name] = stored
    model.load_state_dict(state, strict=False, assign=True)
