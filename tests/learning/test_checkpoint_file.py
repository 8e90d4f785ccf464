"""Checkpoints are told from all other files."""

import os
from pathlib import Path

import torch

import einet
from einet.learning.checkpoint_file import is_checkpoint


def test_checkpoints_are_told_from_other_files(tmp_path: Path):
    model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=2)
    clusters = einet.ClusteredEinet(einet.random_trees(4, 1, 2), einet.Gaussian(), 2, 2)
    rows = torch.randn(30, 4, generator=torch.manual_seed(0))
    einet.fit(model, rows, epochs=1, checkpoint=tmp_path / "fit", progress=False)
    clusters.fit(rows, epochs=1, checkpoint=tmp_path / "clusters", progress=False)
    clusters.refine(rows, epochs=1, checkpoint=tmp_path / "refine", progress=False)
    (tmp_path / "link").symlink_to("fit")
    for name in ("fit", "clusters", "refine", "link"):
        assert is_checkpoint(tmp_path / name)
    model.save(tmp_path / "model")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("einet.checkpoint")
    (tmp_path / "cut").write_bytes((tmp_path / "fit").read_bytes()[:50])
    os.mkfifo(tmp_path / "pipe")
    for name in ("model", "empty", "text", "cut", "pipe", "nowhere", "."):
        assert not is_checkpoint(tmp_path / name)
