"""Small files that ask for much memory or time: ``python -m tests.fuzz.bombs FOLDER`` opens them.

It makes them all in the folder, then limits the memory of the process to 1 GB beyond what it has,
and prints of each whether it was refused, with how much memory, after how many seconds.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import einet
from tests.fuzz.mutations import Parts, nested

__all__ = ["PARTS", "TEXTS"]

GRAPH = einet.random_trees(4, depth=2, replicas=2)


def _whole(**options: Any) -> Parts:
    return Parts.of_model(einet.Einet(GRAPH, einet.Categorical(3), 2, **options))


def _numbers(**changes: Any) -> Parts:
    parts = _whole()
    parts.header["model"].update(changes)
    return parts


def _width(value: int) -> Parts:
    parts = _whole()
    parts.header["model"]["families"][0]["config"]["width"] = value
    return parts


def _graph(parts: Parts, **arrays: Any) -> Parts:
    for name, values in arrays.items():
        parts.tensors[f"graphs.0.{name}"] = torch.tensor(values, dtype=torch.int32)
    return parts


def _chain(length: int) -> Parts:
    """Regions within regions: each of them would be a layer of its own."""
    children = [0, 1]
    for variable in range(2, length):
        children += [variable, length + variable - 2]
    return _graph(
        _whole(),
        num_variables=length,
        num_regions=2 * length - 1,
        root=2 * length - 2,
        leaf_regions=list(range(length)),
        leaf_offsets=list(range(length + 1)),
        leaf_variables=list(range(length)),
        partition_regions=list(range(length, 2 * length - 1)),
        partition_offsets=list(range(0, 2 * length - 1, 2)),
        partition_children=children,
    )


def _star(count: int) -> Parts:
    """One region of many children, and many of two, which linear sums place in one layer."""
    leaves, inner = 2 * count, range(2 * count, 3 * count)
    return _graph(
        _whole(sums="linear"),
        num_variables=leaves,
        num_regions=3 * count + 1,
        root=3 * count,
        leaf_regions=list(range(leaves)),
        leaf_offsets=list(range(leaves + 1)),
        leaf_variables=list(range(leaves)),
        partition_regions=[*inner, 3 * count],
        partition_offsets=[*range(0, leaves + 1, 2), 3 * count],
        partition_children=[*range(leaves), *inner],
    )


def _components(count: int) -> Parts:
    parts = _whole()
    components = [parts.header["model"]] * count
    parts.header["model"] = {
        "kind": "Mixture",
        "dtype": "float32",
        "clustered": True,
        "components": components,
    }
    return parts


def _nested(levels: int) -> Parts:
    parts = _whole()
    parts.header["model"] = nested(parts.header["model"], levels)
    return parts


_FAR = 2**31 - 1

#: Files with checksums that fit.
PARTS: dict[str, Callable[[], Parts]] = {
    "leaves": lambda: _numbers(num_leaves=10_000),
    "sums": lambda: _numbers(num_sums=10_000),
    "both": lambda: _numbers(num_sums=10_000, num_leaves=10_000),
    "more than a number holds": lambda: _numbers(num_sums=10**30),
    "more than torch holds": lambda: _numbers(num_sums=2**40),
    "classes": lambda: _numbers(num_classes=10**9),
    "width": lambda: _width(10**8),
    "more width": lambda: _width(2**62),
    "variables": lambda: _graph(_whole(), num_variables=_FAR),
    "one far variable": lambda: _graph(
        _whole(), num_variables=_FAR, leaf_variables=[0, 1, 2, _FAR - 1, 0, 1, 2, 3]
    ),
    "regions": lambda: _graph(_whole(), num_regions=_FAR),
    "a deep graph": lambda: _chain(2000),
    "a wide graph": lambda: _star(20_000),
    "many components": lambda: _components(3000),
    "nested mixtures": lambda: _nested(200),
}

#: What a file begins with, after the length of it.
TEXTS: dict[str, bytes] = {
    "deep JSON": b"[" * 10**6,
    "deep objects": b'{"a":' * 10**6,
    "deep inside": b'{"__metadata__":{"einet":"' + b"[" * 10**6 + b'"}}',
    "many lists": b'{"a":[' + b"[]," * 10**7 + b"[]]}",
    "many objects inside": b'{"__metadata__":{"einet":"[' + b"{}," * 10**7 + b'{}]"}}',
    "a long name": b'{"' + b"x" * 10**7 + b'":1}',
}


def main(folder: Path) -> None:
    """Make all files, and open one after the other."""
    for name, text in TEXTS.items():
        (folder / name).write_bytes(len(text).to_bytes(8, "little") + text)
    (folder / "a long header").write_bytes((2**63).to_bytes(8, "little") + b"{}")
    for name, make in PARTS.items():
        make().write(folder / name)
    with open("/proc/self/status") as status:
        size = next(int(line.split()[1]) for line in status if line.startswith("VmSize"))
    limit = (size << 10) + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for path in sorted(folder.iterdir()):
        before, began = _most(), time.perf_counter()
        try:
            einet.load(path)
            answer = "loaded"
        except einet.FormatError:
            answer = "refused"
        seconds = time.perf_counter() - began
        print(answer, (_most() - before) // 1024, f"{seconds:.2f}", path.name, sep="\t", flush=True)


def _most() -> int:
    """The most memory that this process ever had, in KB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main(Path(sys.argv[1]))
