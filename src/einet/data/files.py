"""Files of tensors that appear in one step."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["write_tensors"]


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous and each in memory of its own."""
    result, storages = {}, set()
    for name, tensor in tensors.items():
        tensor = tensor.cpu().contiguous()
        place = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if place in storages else tensor
        storages.add(place)
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
