"""Tables of results."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.images import report
from experiments.images.settings import Settings
from experiments.images.store import Store
from experiments.images.variants import DATASETS, VARIANTS

RECORD = {
    "train_seconds": 1.25,
    "kmeans_seconds": 0.0,
    "peak_mib": 12.3,
    "parameters": 1000,
    "train_images": 20,
    "image_shape": [4, 4, 1],
    "test_ll": -1234.56,
    "test_se": 1.0,
    "bits_per_dim": 2.0,
    "device": "cpu",
}


def test_what_is_there(tmp_path: Path) -> None:
    paper = Settings(delta=(4,))
    one = Settings(clusters=1, valid_rows=3, train_rows=20)
    store = Store(tmp_path, "svhn")
    store.finish(
        "paper", RECORD | {"settings": paper.to_dict(), "kmeans_seconds": 0.5, "stripes": 1.5}, []
    )
    more = {"train_ll": -1000.0, "train_bits": 1.5, "valid_ll": -1230.0, "valid_bits": 1.9}
    copied = {"copied_strips": 0.41, "copied_strips_of_images": 0.02}
    store.finish("one", RECORD | {"settings": one.to_dict()} | more | copied, [])
    searched = {name: value for name, value in RECORD.items() if name[:4] not in ("test", "bits")}
    search = Store(tmp_path, "svhn", search=True)
    search.finish("one", searched | more | {"settings": one.to_dict(), "test_read": False}, [])
    assert report.main([str(tmp_path)]) == 0
    lines = (tmp_path / "results.md").read_text(encoding="utf-8").splitlines()
    assert "## SVHN, 4×4×1" in lines
    assert "## SVHN, 4×4×1: a search on validation images" in lines
    models = [line for line in lines if line.startswith(("| paper", "| one"))]
    assert models == [
        "| paper | 20 |  |  | -1,234.6 ± 1.0 |  |  | 2.000 | 1.50 |  | 1,000 | 1.2 + 0.5 | 12 "
        "| cpu | `delta=(4,)` |",
        "| one | 20 | -1,000.0 | -1,230.0 | -1,234.6 ± 1.0 | 1.500 | 1.900 | 2.000 |  | 41% / 2% "
        "| 1,000 | 1.2 | 12 | cpu | `clusters=1` |",
        "| one | 20 | -1,000.0 | -1,230.0 |  | 1.500 | 1.900 |  |  |  | 1,000 | 1.2 | 12 | cpu "
        "| `clusters=1` |",
    ]
    assert not any("CelebA" in line for line in lines)


def test_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(tmp_path)]) == 1
    assert "no results" in capsys.readouterr().err
    assert report.main([str(tmp_path / "nowhere")]) == 2


def test_committed_results() -> None:
    """They are of the models as these are now, and their table is of them."""
    folder = Path(report.__file__).parent / "results"
    results = report.read(folder)
    for dataset in DATASETS:
        assert results[dataset]
        for name, record in results[dataset].items():
            settings = Settings.from_dict(record["settings"])
            assert settings == VARIANTS[dataset][name].settings, name
    table = (folder / "results.md").read_text(encoding="utf-8")
    assert report.markdown(results) == table
