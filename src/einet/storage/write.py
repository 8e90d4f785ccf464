"""Writing models to files."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from einet.base import Model
from einet.clustered import ClusteredEinet
from einet.families import FAMILIES
from einet.mixture import Mixture
from einet.model import Einet
from einet.storage.format import FORMAT, KEY, compiled_order, is_typed, release, version_of
from einet.structures import RegionGraph

__all__ = ["save", "write_tensors"]


def save(
    model: Model, path: str | os.PathLike[str], metadata: Mapping[Any, Any] | None = None
) -> None:
    """Write a model to one file that :func:`load` and other programs can read.

    The file appears in one step: whoever looks at ``path`` sees the file that was there before or
    the whole new one, also if writing fails midway. The same model always gives the same bytes.
    Within :func:`einet.unconstrained` the parameters written are the canonical ones.

    Args:
        model: An :class:`~einet.Einet` or an :class:`~einet.Mixture`.
        path: The file; its folder must exist.
        metadata: What else the file shall tell of the model, such as the units of its data:
            anything that JSON can say, by name. :func:`load_metadata` reads it back; the model
            itself has no use for it.

    Example:
        >>> import einet, tempfile, torch
        >>> model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=3)
        >>> x = torch.randn(5, 4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(model, f"{folder}/model.einet")
        ...     again = einet.load(f"{folder}/model.einet")
        >>> torch.equal(again.log_prob(x), model.log_prob(x))
        True
    """
    graphs: dict[RegionGraph, str] = {}
    description = _describe(model, graphs)
    header = {
        "format": FORMAT,
        "version": version_of(description),
        "einet": release(),
        "model": description,
    }
    if metadata:
        header["metadata"] = _plain(metadata)
    tensors = dict(_canonical(model))
    for graph, name in graphs.items():
        for part, array in graph.to_arrays().items():
            tensors[f"{name}.{part}"] = torch.from_numpy(array)
    write_tensors(path, tensors, {KEY: json.dumps(header)})


def _plain(metadata: Any) -> dict[str, Any]:
    """A user's metadata, checked to come back from the file as they are."""
    names = isinstance(metadata, Mapping) and all(isinstance(name, str) for name in metadata)
    if not names:
        raise TypeError(f"metadata must be a dict with strings for keys, got {metadata!r}")
    try:
        return json.loads(json.dumps(dict(metadata), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(f"metadata must hold what JSON can say: {error}") from error


def _describe(model: Model, graphs: dict[RegionGraph, str]) -> dict[str, Any]:
    """What a file says of a model beside its tensors; names new graphs in ``graphs``."""
    if isinstance(model, Mixture):
        components = [_describe(component, graphs) for component in model.models]
        description = {"kind": "Mixture", "dtype": _common_dtype(model), "components": components}
        clustered = isinstance(model, ClusteredEinet)
        # To a reader that does not know of it, it is a mixture.
        return {**description, "clustered": True} if clustered else description
    if not isinstance(model, Einet):
        raise TypeError(f"model must be an Einet or a Mixture, got {type(model).__name__}")
    families = []
    for group in model.leaf.family_groups:
        name = type(group.family).__name__
        if FAMILIES.get(name) is not type(group.family):
            raise ValueError(
                f"the family {name} could not be loaded again: add it to einet.families.FAMILIES, "
                f"which holds {', '.join(FAMILIES)}"
            )
        families.append({"name": name, "config": group.family.config()})
    return {
        "kind": "Einet",
        "dtype": _common_dtype(model),
        "graph": graphs.setdefault(model.graph, f"graphs.{len(graphs)}"),
        "sums": model.sums,
        "num_sums": model.num_sums,
        "num_leaves": model.num_leaves,
        "num_classes": model.num_classes,
        "initialized": model.initialized,
        "families": families,
        **compiled_order(model),
    }


def _common_dtype(model: Model) -> str:
    types = {
        str(tensor.dtype) for name, tensor in model.state_dict().items() if is_typed(name, tensor)
    }
    if len(types) > 1:
        raise ValueError(
            f"the parameters must be of one type, got {', '.join(sorted(types))}; cast the model "
            "as a whole, as by model.to(torch.float32)"
        )
    return types.pop().removeprefix("torch.")


def _canonical(model: Model) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers by name, as if nothing were parametrised."""
    for name in model.state_dict():
        # A parametrised module computes under the old name what it keeps under this one.
        name = name.replace("parametrizations.", "").removesuffix(".original")
        owner, _, attribute = name.rpartition(".")
        yield name, getattr(model.get_submodule(owner), attribute).detach()


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous and each in memory of its own."""
    result, seen = {}, set()
    for name, tensor in tensors.items():
        tensor = tensor.cpu().contiguous()
        place = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return result


def write_tensors(
    path: str | os.PathLike[str], tensors: dict[str, Tensor], metadata: dict[str, str]
) -> None:
    """Write a safetensors file in one step: it is the old one or the new one at any time."""
    # A link stays a link: what it points to is replaced.
    path, tensors = Path(os.path.realpath(path)), _apart(tensors)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "There is no such folder", str(path.parent))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "This must be one file, not a folder", str(path))
    # In the same folder: a rename is one step only within a file system.
    temporary = path.with_name(f".einet-{secrets.token_hex(8)}.tmp")
    try:
        # safetensors makes files that only their owner may read; the user's umask shall decide.
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        mode = os.fstat(descriptor).st_mode & 0o777
        os.close(descriptor)
        save_file(tensors, temporary, metadata)
        os.chmod(temporary, mode)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, SafetensorError):
            raise OSError(f"{path} could not be written: {error}") from error
        raise
    if os.name == "posix":
        # The new name is safe from a crash only once its folder is on the disk too.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
