"""Files that commands must not, or cannot, write."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest
import torch

import einet
from einet.cli import outputs
from einet.cli.outputs import Kind, Output, check_outputs, check_space
from einet.learning.checkpoint_file import checkpoints_in


def out(path: Path, kind: Kind = "any", option: str = "output", folder: bool = False) -> Output:
    return Output(option, path, kind, makes_folder=folder)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "a.png").write_bytes(b"an image")
    (root / "notes.txt").write_text("no image")
    return root


def names_of(file: Path, folder: Path) -> list[Path]:
    """Other names of a file."""
    (folder / "link").symlink_to(file)
    os.link(file, folder / "hard")
    (folder / "folder").symlink_to(file.parent)
    (folder / "twice").symlink_to(folder / "link")
    around = folder / "folder" / ".." / file.parent.name / file.name
    return [file, folder / "link", folder / "hard", folder / "twice", around]


def test_no_input_is_written_by_whatever_name(photos: Path, tmp_path: Path):
    for path in names_of(photos / "inner" / "a.png", tmp_path):
        for data in (photos, photos / "inner", photos / "inner" / "a.png"):
            with pytest.raises(ValueError, match=r"output: .* is read by this command \(data: "):
                check_outputs([out(path)], {"data": data})
        assert path.read_bytes() == b"an image"
    # What is in a folder of images and is none is not read.
    check_outputs([out(photos / "notes.txt")], {"data": photos})
    check_outputs([out(photos / "new.png")], {"data": photos})


def test_no_two_outputs_are_one_file(photos: Path, tmp_path: Path):
    new = tmp_path / "new.einet"
    (tmp_path / "to-new").symlink_to(new)
    there = names_of(photos / "notes.txt", tmp_path)
    same = [(new, new), (new, tmp_path / "to-new"), (new, photos / ".." / "new.einet")]
    same += [(there[0], other) for other in there[1:]]
    for one, other in same:
        with pytest.raises(ValueError, match="checkpoint: .* is the same file as .* written too"):
            check_outputs([out(one), out(other, option="checkpoint")], {})
    check_outputs([out(new), out(tmp_path / "NEW.einet")], {})


def test_case_is_ignored_where_the_system_ignores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outputs, "_ignores_case", lambda folder: True)
    with pytest.raises(ValueError, match="is the same file as"):
        check_outputs([out(tmp_path / "m.einet"), out(tmp_path / "M.EINET")], {})
    assert outputs._ignores_case(tmp_path)
    monkeypatch.undo()
    assert not outputs._ignores_case(Path("/"))


def test_places_where_nothing_can_be_written(photos: Path, tmp_path: Path):
    file = photos / "notes.txt"
    with pytest.raises(FileNotFoundError, match="output: there is no folder .*nowhere"):
        check_outputs([out(tmp_path / "nowhere" / "a")], {})
    check_outputs([out(tmp_path / "nowhere" / "deep" / "a", folder=True)], {})
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(NotADirectoryError, match=r"output: .*notes.txt is no folder"):
        check_outputs([out(file / "a", folder=True)], {})
    with pytest.raises(IsADirectoryError, match="output: .* is a folder"):
        check_outputs([out(photos)], {})
    with pytest.raises(OSError, match="output: .*File name too long"):
        check_outputs([out(tmp_path / ("a" * 300))], {})
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(ValueError, match="output: .* is no file, but a device"):
            check_outputs([out(path)], {})
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(OSError, match="output: .*circle cannot be written"):
        check_outputs([out(tmp_path / "circle")], {})
    before = sorted(tmp_path.rglob("*"))
    check_outputs([out(tmp_path / "fine")], {})
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_folders_that_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    def refuse(dir: Path) -> None:
        raise OSError(code, os.strerror(code), str(dir))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match=f"output: nothing can be written to .*{os.strerror(code)}"):
        check_outputs([out(tmp_path / "a" / "b", folder=True)], {})


def test_files_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a").write_text("mine")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="output: .*a may not be written to"):
        check_outputs([out(tmp_path / "a")], {})


def test_only_what_is_of_a_kind_is_replaced_by_that_kind(tmp_path: Path):
    graph = einet.random_trees(4, 1, 1)
    model = einet.Einet(graph, einet.Gaussian(), num_sums=2)
    files = {kind: tmp_path / kind for kind in ("checkpoint", "model", "png", "text", "empty")}
    model.save(files["model"])
    rows = torch.randn(20, 4)
    folder = tmp_path / "run"
    einet.fit(model, rows, epochs=1, checkpoint=folder, progress=False)
    shutil.copy(list(checkpoints_in(folder).values())[-1], files["checkpoint"])
    files["png"].write_bytes(b"\x89PNG\r\n\x1a\n...")
    files["text"].write_text("text")
    files["empty"].touch()
    for kind in ("checkpoint", "model", "png"):
        for name, path in files.items():
            if name == kind:
                check_outputs([out(path, kind)], {})
            else:
                with pytest.raises(FileExistsError, match=f"{name} is there already and is no"):
                    check_outputs([out(path, kind)], {})
    for path in files.values():
        check_outputs([out(path)], {})
    # Checkpoints lie in folders, which are for nothing else.
    check_outputs([out(folder, "checkpoint")], {})
    with pytest.raises(IsADirectoryError, match="run is a folder; give the name of a file"):
        check_outputs([out(folder, "model")], {})
    (folder / "notes.txt").touch()
    with pytest.raises(FileExistsError, match="run is a folder that holds other things"):
        check_outputs([out(folder, "checkpoint")], {})


def test_disks_that_are_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(9e6, 6e6, 3_000_000))
    new = out(tmp_path / "a" / "new", folder=True)
    check_space([(new, 1_000_000), (new, 2_000_000)])
    with pytest.raises(OSError, match=r"output: there is no room for 4\.0 MB, only for 3\.0") as e:
        check_space([(new, 1_000_000), (out(tmp_path / "other"), 3_000_000)])
    assert e.value.errno == errno.ENOSPC
