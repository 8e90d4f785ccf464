"""The 20 binary data sets on which density estimators are compared (Table 1 of the paper).

They are public ("DEBD", Lowd and Davis, Van Haaren and Davis) and not part of this package: this
module reads the files where you put them and downloads nothing.

Example:
    >>> from einet.data import debd
    >>> debd.canonical("baudio"), debd.file_name("audio"), debd.num_variables("audio")
    ('audio', 'baudio', 100)
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

__all__ = [
    "Debd",
    "Split",
    "canonical",
    "file_name",
    "find",
    "load",
    "names",
    "num_variables",
    "read",
]

Split = Literal["train", "valid", "test"]

#: The paper's name of each set, in the order of its table; the name of its files; its columns.
_SETS: dict[str, tuple[str, int]] = {
    "nltcs": ("nltcs", 16),
    "msnbc": ("msnbc", 17),
    "kdd-2k": ("kdd", 64),
    "plants": ("plants", 69),
    "jester": ("jester", 100),
    "audio": ("baudio", 100),
    "netflix": ("bnetflix", 100),
    "accidents": ("accidents", 111),
    "retail": ("tretail", 135),
    "pumsb-star": ("pumsb_star", 163),
    "dna": ("dna", 180),
    "kosarek": ("kosarek", 190),
    "msweb": ("msweb", 294),
    "book": ("book", 500),
    "each-movie": ("tmovie", 500),
    "web-kb": ("cwebkb", 839),
    "reuters-52": ("cr52", 889),
    "20ng": ("c20ng", 910),
    "bbc": ("bbc", 1058),
    "ad": ("ad", 1556),
}
_CANONICAL = {files: name for name, (files, _) in _SETS.items()} | {name: name for name in _SETS}


@dataclass(frozen=True)
class Debd:
    """One data set: its name as the paper spells it, and zeros and ones in three splits.

    Args:
        name: Its name.
        train, valid, test: The rows of each split.

    Example:
        >>> from einet.data import debd
        >>> zeros = torch.zeros(6, 16, dtype=torch.uint8)
        >>> data = debd.Debd("nltcs", train=zeros, valid=zeros[:2], test=zeros[:3])
        >>> data, data.num_variables
        (Debd('nltcs', num_variables=16, train=6, valid=2, test=3), 16)
    """

    name: str
    train: UInt8[Tensor, "train variables"]
    valid: UInt8[Tensor, "valid variables"]
    test: UInt8[Tensor, "test variables"]

    @property
    def num_variables(self) -> int:
        """The number of columns, the same in all three parts."""
        return self.train.shape[1]

    def __repr__(self) -> str:
        rows = ", ".join(f"{split}={len(getattr(self, split))}" for split in get_args(Split))
        return f"Debd({self.name!r}, num_variables={self.num_variables}, {rows})"


def names() -> tuple[str, ...]:
    """The names of all data sets as the paper spells them, in the order of its table.

    Example:
        >>> from einet.data import debd
        >>> debd.names()[:3], len(debd.names())
        (('nltcs', 'msnbc', 'kdd-2k'), 20)
    """
    return tuple(_SETS)


def canonical(name: str) -> str:
    """The paper's spelling of a name; the public files' spelling (``baudio``) is taken too.

    Args:
        name: The name in either spelling.

    Example:
        >>> from einet.data import debd
        >>> debd.canonical("baudio"), debd.canonical("audio")
        ('audio', 'audio')
    """
    try:
        return _CANONICAL[name]
    except (KeyError, TypeError):
        known = (f"{k} ({f})" if f != k else k for k, (f, _) in _SETS.items())
        raise ValueError(f"name must be one of {', '.join(known)}, got {name!r}") from None


def file_name(name: str) -> str:
    """How the public files spell a name.

    Args:
        name: The name in either spelling.

    Example:
        >>> from einet.data import debd
        >>> debd.file_name("audio")
        'baudio'
    """
    return _SETS[canonical(name)][0]


def num_variables(name: str) -> int:
    """The number of columns of a data set.

    Args:
        name: The name in either spelling.

    Example:
        >>> from einet.data import debd
        >>> debd.num_variables("nltcs")
        16
    """
    return _SETS[canonical(name)][1]


def load(name: str, root: str | PathLike[str]) -> Debd:
    """Read the three splits of a data set.

    Args:
        name: The name, in the paper's spelling or that of the public files.
        root: The folder that holds ``NAME/NAME.train.data`` or ``NAME.train.data``, and the same
            for ``valid`` and ``test``; each as it is or compressed, with ``.gz`` at the end.

    Example:
        >>> import pathlib, tempfile
        >>> from einet.data import debd
        >>> row = ",".join("0110" * 4)
        >>> with tempfile.TemporaryDirectory() as root:
        ...     for split in ("train", "valid", "test"):
        ...         written = pathlib.Path(root, f"nltcs.{split}.data").write_text(row)
        ...     debd.load("nltcs", root)
        Debd('nltcs', num_variables=16, train=1, valid=1, test=1)
    """
    train, valid, test = (read(name, split, root) for split in get_args(Split))
    return Debd(canonical(name), train, valid, test)


def find(name: str, split: str, root: str | PathLike[str]) -> Path:
    """The file of a split; raises where there is none.

    Args:
        name: The name, in the paper's spelling or that of the public files.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        root: The folder of the data sets; see :func:`load`.

    Example:
        >>> import pathlib, tempfile
        >>> from einet.data import debd
        >>> with tempfile.TemporaryDirectory() as root:
        ...     pathlib.Path(root, "nltcs.train.data").touch()
        ...     debd.find("nltcs", "train", root).name
        'nltcs.train.data'
    """
    if split not in get_args(Split):
        raise ValueError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(
            f"root must be the folder of the data sets (one folder for each), but {root} is no "
            "folder"
        )
    tried = []
    for spelling in dict.fromkeys((file_name(name), canonical(name))):
        file = f"{spelling}.{split}.data"
        for candidate in (root / spelling / file, root / file):
            for path in (candidate, candidate.with_name(candidate.name + ".gz")):
                if path.is_file():
                    return path
                tried.append(str(path.relative_to(root)))
    raise FileNotFoundError(
        f"the {split} rows of {canonical(name)} are not in root={root}; looked for "
        + ", ".join(tried)
    )


def read(name: str, split: str, root: str | PathLike[str]) -> UInt8[Tensor, "rows variables"]:
    """Read one split alone, so that whoever chooses a model need not even open the test rows.

    Args:
        name: The name, in the paper's spelling or that of the public files.
        split: ``"train"``, ``"valid"`` or ``"test"``.
        root: The folder of the data sets; see :func:`load`.

    Example:
        >>> import pathlib, tempfile
        >>> from einet.data import debd
        >>> with tempfile.TemporaryDirectory() as root:
        ...     rows = pathlib.Path(root, "nltcs.valid.data")
        ...     written = rows.write_text(",".join("0110" * 4))
        ...     debd.read("nltcs", "valid", root).shape
        torch.Size([1, 16])
    """
    columns = num_variables(name)
    path = find(name, split, root)
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no intact gzip file: {error}") from error
    table = _parse(content, columns)
    if table is None:
        table = _parse_lines(content, columns, path, canonical(name))
    return torch.from_numpy(table)


def _parse(content: bytes, columns: int) -> np.ndarray | None:
    """The table of a file that is written just as expected; None if it is not."""
    if not content.endswith(b"\n"):
        content += b"\n"
    cells = np.frombuffer(content, dtype=np.uint8)
    if cells.size == 0 or cells.size % (2 * columns):
        return None
    # Every cell is one digit and one separator.
    cells = cells.reshape(-1, columns, 2)
    digits = cells[:, :, 0] - np.uint8(ord("0"))
    separators = cells[:, :, 1]
    sound = (digits <= 1).all() and (separators[:, :-1] == ord(",")).all()
    return digits if sound and (separators[:, -1] == ord("\n")).all() else None


def _parse_lines(content: bytes, columns: int, path: Path, name: str) -> np.ndarray:
    """The same line by line: other line ends and spaces are fine, and faults are found."""
    rows: list[list[int]] = []
    values = {b"0": 0, b"1": 1}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(b",")]
        if len(cells) != columns:
            raise ValueError(
                f"{path}, line {number} has {len(cells)} columns; {name} has {columns}"
            )
        try:
            rows.append([values[cell] for cell in cells])
        except KeyError as error:
            bad = error.args[0].decode(errors="replace")
            raise ValueError(
                f"{path}, line {number} holds {bad!r}; every value must be 0 or 1"
            ) from None
    if not rows:
        raise ValueError(f"{path} holds no rows")
    return np.array(rows, dtype=np.uint8)
