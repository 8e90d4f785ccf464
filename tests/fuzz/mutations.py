"""Ways to damage a file of a model: blindly, or by its parts as one who knows the format would."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from einet import Model
from einet.data.files import read_tensors, write_tensors

__all__ = ["Parts", "change_parts", "damage", "nested"]

Random = np.random.Generator

NUMBERS = [math.nan, math.inf, -math.inf, 0.0, -1.0, 0.5, 1.0, 2.0, 1e30, 1e38, 1e300, 1e-300, 3.7]
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 10_000, 10**8, 2**31, 2**63, 10**30, 1.5, math.nan, math.inf,
    "", "x", "Einet", "Mixture", "linear", "einsum", "float32", "float64", "float16", "Categorical",
    "Gaussian", "graphs.0", "graphs.1", [], {}, [0], [{}], {"kind": "Einet"}, "\x1b[2J\n",
]  # fmt: skip
TYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.uint8, torch.bool,
]  # fmt: skip


# -- blindly ---------------------------------------------------------------------------------------


def damage(content: bytes, random: Random) -> bytes:
    """A few bytes changed, lost, added or moved."""
    changed = bytearray(content)
    at, other = (int(random.integers(len(content))) for _ in range(2))
    size = int(random.integers(1, 65))
    match random.integers(9):
        case 0:
            for bit in random.integers(8 * len(content), size=random.integers(1, 9)):
                changed[bit // 8] ^= 1 << int(bit % 8)
        case 1:
            changed[at : at + size] = random.bytes(len(changed[at : at + size]))
        case 2:
            filler = bytes([random.choice([0, 255])])
            changed[at : at + size] = filler * len(changed[at : at + size])
        case 3:
            del changed[at:]
        case 4:
            changed += random.bytes(size)
        case 5:
            del changed[at : at + size]
        case 6:
            changed[other:other] = changed[at : at + size]
        case 7:
            length = min(size, len(content) - max(at, other), abs(at - other))
            one, two = changed[at : at + length], changed[other : other + length]
            changed[at : at + length], changed[other : other + length] = two, one
        case _:
            lengths = [0, 1, 2**32, 2**63, 2**64 - 1, len(content), at]
            changed[:8] = lengths[random.integers(len(lengths))].to_bytes(8, "little")
    return bytes(changed)


# -- by parts --------------------------------------------------------------------------------------


@dataclass
class Parts:
    """A file taken apart: its header and its tensors."""

    header: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, path: Path) -> Parts:
        """The parts of a file."""
        return cls(*read_tensors(path, "einet"))

    @classmethod
    def of_model(cls, model: Model) -> Parts:
        """The parts of a file that a model is saved to."""
        with TemporaryDirectory() as folder:
            model.save(f"{folder}/model.einet")
            return cls.of(Path(folder) / "model.einet")

    def copy(self) -> Parts:
        """Parts that can be changed."""
        tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}
        return Parts(copy.deepcopy(self.header), tensors)

    def write(self, path: Path) -> None:
        """A file with a checksum that fits whatever the parts are."""
        write_tensors(path, self.tensors, "einet", self.header)

    def write_unsigned(self, path: Path) -> None:
        """A file as earlier releases wrote them, without a checksum."""
        header = {name: value for name, value in self.header.items() if name != "checksum"}
        save_file(self.tensors, path, {"einet": json.dumps(header)})


def nested(model: dict[str, Any], levels: int) -> dict[str, Any]:
    """A description within mixtures of one component each."""
    for _ in range(levels):
        model = {"kind": "Mixture", "dtype": "float32", "components": [model]}
    return model


def change_parts(parts: Parts, random: Random) -> None:
    """One to three changes of the header or of tensors."""
    for _ in range(random.integers(1, 4)):
        changes = (_change_header, _change_numbers, _change_tensor, _change_names, _change_levels)
        chosen = random.choice(len(changes), p=[0.35, 0.3, 0.15, 0.15, 0.05])
        changes[chosen](parts, random)


def _change_header(parts: Parts, random: Random) -> None:
    """A value of the description replaced or removed."""
    places: list[tuple[Any, Any]] = []
    # The release that wrote the file, and what a user told, may be anything.
    names = [name for name in ("format", "version", "model") if name in parts.header]
    top = {name: parts.header.pop(name) for name in names}
    pending: list[Any] = [top]
    while pending:
        place = pending.pop()
        keys = place if isinstance(place, dict) else range(len(place))
        for key in keys:
            places.append((place, key))
            if isinstance(place[key], dict | list):
                pending.append(place[key])
    if places:
        place, key = places[random.integers(len(places))]
        if random.random() < 0.15:
            del place[key]
        else:
            place[key] = copy.deepcopy(VALUES[random.integers(len(VALUES))])
    parts.header.update(top)


def _any_name(parts: Parts, random: Random) -> str | None:
    names = sorted(parts.tensors)
    return names[random.integers(len(names))] if names else None


def _change_numbers(parts: Parts, random: Random) -> None:
    """Some numbers of a tensor: hostile, scaled, shuffled or nearly the same."""
    name = _any_name(parts, random)
    if name is None or not parts.tensors[name].numel():
        return
    tensor = parts.tensors[name]
    flat = tensor.reshape(-1)
    if not tensor.is_floating_point():
        hostile = [-1, 0, 1, 2, 7, 100, 2**31 - 1, -(2**31)]
        value = int(random.choice(hostile)) & (0xFF if tensor.dtype == torch.uint8 else -1)
        if tensor.dtype in (torch.int16, torch.bool):
            value %= 2
        flat[random.integers(len(flat))] = value
        return
    # What is too large for a type becomes infinite in it.
    number = torch.tensor(random.choice(NUMBERS), dtype=torch.float64).to(tensor.dtype)
    match random.integers(5):
        case 0 | 1:
            flat[random.integers(len(flat))] = number
        case 2:
            flat *= float(random.choice([0.0, 0.5, -1.0, 1 + 1e-7, 1.001, 1e10]))
        case 3:
            flat[:] = flat[torch.from_numpy(random.permutation(len(flat)))]
        case _:
            flat.fill_(number)


def _change_tensor(parts: Parts, random: Random) -> None:
    """A tensor's type or shape."""
    name = _any_name(parts, random)
    if name is None:
        return
    old = parts.tensors[name]
    shapes: list[Callable[[], Tensor]] = [
        lambda: old.reshape(-1),
        lambda: old.unsqueeze(0),
        lambda: old.repeat(2, *[1] * (old.ndim - 1)) if old.ndim else old.repeat(2),
        lambda: old.reshape(-1)[:-1],
        lambda: old.new_empty(0),
        lambda: old.mT if old.ndim > 1 else old.reshape(-1, 1),
        lambda: old.to(TYPES[random.integers(len(TYPES))]),
        lambda: old.new_zeros([1] * 12),
    ]
    parts.tensors[name] = shapes[random.integers(len(shapes))]().contiguous().clone()


def _change_names(parts: Parts, random: Random) -> None:
    """A tensor lost, renamed, doubled or in the place of another."""
    name, other = _any_name(parts, random), _any_name(parts, random)
    if name is None or other is None:
        return
    tensors = parts.tensors
    match random.integers(4):
        case 0:
            del tensors[name]
        case 1:
            tensors[name + "x"] = tensors.pop(name)
        case 2:
            tensors["surplus\x1b[31m"] = tensors[name].clone()
        case _:
            tensors[name], tensors[other] = tensors[other].clone(), tensors[name].clone()


def _change_levels(parts: Parts, random: Random) -> None:
    """The model within mixtures, with tensors to match, or a mixture of more than there is."""
    model = parts.header.get("model")
    if not isinstance(model, dict):
        return
    components = model.get("components")
    if isinstance(components, list) and random.random() < 0.5:
        components.append(copy.deepcopy(components[0]) if components else {})
        return
    levels = int(random.choice([1, 2, 40, 200]))
    kept = {name: t for name, t in parts.tensors.items() if name.startswith("graphs.")}
    moved = {
        "components.0." * levels + name: t for name, t in parts.tensors.items() if name not in kept
    }
    weights = {"components.0." * n + "log_weights": torch.zeros(1) for n in range(levels)}
    parts.tensors = {**kept, **moved, **weights}
    parts.header["model"] = nested(model, levels)
