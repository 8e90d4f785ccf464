"""Checkpoints are told from all other files, and their folders from other folders."""

import os
from pathlib import Path

import torch

import einet
from einet.learning.checkpoint_file import (
    checkpoints_in,
    is_checkpoint,
    is_run_folder,
    looks_like_checkpoint,
    remove_checkpoints,
)


def test_checkpoints_are_told_from_other_files(tmp_path: Path):
    model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=2)
    clusters = einet.ClusteredEinet(einet.random_trees(4, 1, 2), einet.Gaussian(), 2, 2)
    rows = torch.randn(30, 4, generator=torch.manual_seed(0))
    einet.fit(model, rows, epochs=1, checkpoint=tmp_path / "fit", progress=False)
    clusters.fit(rows, epochs=1, checkpoint=tmp_path / "clusters", progress=False)
    clusters.refine(rows, epochs=1, checkpoint=tmp_path / "refine", progress=False)
    (tmp_path / "link").symlink_to("fit")
    for name in ("fit", "clusters", "refine", "link"):
        files = list(checkpoints_in(tmp_path / name).values())
        assert files
        assert all(map(is_checkpoint, files))
        assert is_run_folder(tmp_path / name)
    newest = list(checkpoints_in(tmp_path / "fit").values())[-1]
    model.save(tmp_path / "model")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("einet.checkpoint")
    (tmp_path / "cut").write_bytes(newest.read_bytes()[:50])
    os.mkfifo(tmp_path / "pipe")
    for name in ("model", "empty", "text", "cut", "pipe", "nowhere", "."):
        assert not is_checkpoint(tmp_path / name)
        assert not is_run_folder(tmp_path / name)
    assert looks_like_checkpoint(tmp_path / "empty")
    assert not looks_like_checkpoint(tmp_path / "model")


def test_only_checkpoints_are_removed(tmp_path: Path):
    model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=2)
    rows = torch.randn(30, 4, generator=torch.manual_seed(0))
    folder = tmp_path / "run"
    einet.fit(model, rows, epochs=1, checkpoint=folder, progress=False)
    remove_checkpoints(folder)
    assert not folder.exists()
    remove_checkpoints(folder)
    einet.fit(model, rows, epochs=1, checkpoint=folder, progress=False)
    (folder / "notes.txt").write_text("mine")
    (folder / "checkpoint-000100.safetensors").write_text("mine, too")
    remove_checkpoints(folder)
    left = sorted(file.name for file in folder.iterdir())
    assert left == ["checkpoint-000100.safetensors", "lock", "notes.txt"]
    # A file of an earlier release goes, one of another kind does not.
    remove_checkpoints(folder / "notes.txt")
    assert (folder / "notes.txt").exists()
