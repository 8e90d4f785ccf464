"""All code on the plain pages of docs/ runs, on small stand-ins for the data that it names.

Code cells of notebook pages are executed when the site is built; a block of another library in one
of them says so.
"""

from __future__ import annotations

import math
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import einet
from einet.imaging import Pixels, measure
from einet.learning.fit import fit
from tests.data.images import test_celeba, test_idx
from tests.data.images.test_files import write as write_image
from tests.data.images.test_svhn import write as write_svhn

DOCS = Path(__file__).parents[2] / "docs"
PLAIN = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What is smaller here than on the pages, so that it takes a moment, and runs without a GPU.
SMALLER = {
    'device="cuda"': 'device="cpu"',
    "num_sums=40": "num_sums=2",
    'paper_split("svhn")': 'paper_split("svhn", num_train=50)',
    "Recipe()": "Recipe(num_sums=2)",
    "from_clusters=True": "from_clusters=True, epochs=1",
    "optimizer=recipe.learner()": "optimizer=recipe.learner(), epochs=1",
    "/shared/model.einet": "model.einet",
}


def is_notebook(page: Path) -> bool:
    return page.read_text(encoding="utf-8").startswith("---\nfile_format: mystnb")


PAGES = sorted(page for page in DOCS.rglob("*.md") if not page.name.startswith("_"))
WITH_CODE = [
    page
    for page in PAGES
    # The code of tables.md has a test of its own, tests/tables/test_page.py.
    if page.stem != "tables"
    and not is_notebook(page)
    and PLAIN.search(page.read_text(encoding="utf-8"))
]


def quick_fit(model: einet.Model, *data: Any, **options: Any) -> einet.History:
    """``einet.fit`` for one epoch, of a model that may have met other columns on the same page."""
    model.columns = None
    return fit(model, *data, **{**options, "epochs": 1, "progress": False})


def small_model(variables: int) -> einet.Einet:
    graph = einet.random_trees(variables, depth=1, replicas=1)
    return einet.Einet(graph, einet.Gaussian(), num_sums=2)


def rows(count: int, variables: int) -> torch.Tensor:
    return torch.randn(count, variables, generator=torch.Generator().manual_seed(0))


def checkpoints() -> dict[str, Any]:
    return {"model": small_model(3), "x": rows(40, 3)}


def data() -> dict[str, Any]:
    for split in ("train", "test"):
        stem = {"train": "train", "test": "t10k"}[split]
        test_idx.write(Path(f"mnist/{stem}-images-idx3-ubyte"), test_idx.images(split), False)
    svhn()
    test_celeba.write_zip(Path("celeba/img_align_celeba.zip"))
    test_celeba.write_partition(Path("celeba/list_eval_partition.txt"))
    for number in range(3):
        write_image(Path(f"photos/{number}.png"), number, 60, 70)
    return {}


def svhn() -> None:
    Path("svhn").mkdir()
    generator = np.random.default_rng(0)
    for split, count in {"train": 60, "extra": 10, "test": 10}.items():
        pixels = generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        write_svhn(Path(f"svhn/{split}_32x32.mat"), pixels, np.arange(count) % 10, False)


def distributed() -> dict[str, Any]:
    ray: Any = types.ModuleType("ray")
    train: Any = types.ModuleType("ray.train")
    in_torch: Any = types.ModuleType("ray.train.torch")

    class Trainer:
        """As Ray's: it calls a function in each process, of which there is one here."""

        def __init__(self, learn: Callable[[], None], scaling_config: Any) -> None:
            self.fit = learn

    train.ScalingConfig = lambda **options: options
    in_torch.TorchTrainer, in_torch.get_device = Trainer, lambda: "cpu"
    modules = {"ray": ray, "ray.train": train, "ray.train.torch": in_torch}
    graph = einet.random_trees(3, depth=1, replicas=1)
    return {"graph": graph, "train": rows(40, 3), "valid": rows(10, 3), "modules": modules}


def gpu() -> dict[str, Any]:
    return {"graph": einet.random_trees(3, depth=1, replicas=1), "train": rows(40, 3)}


def images() -> dict[str, Any]:
    svhn()
    return {"Pixels": Pixels, "measure": measure}


def large_data() -> dict[str, Any]:
    frame = pd.DataFrame(rows(60, 2).numpy(), columns=["a", "b"]).round()
    frame["a"], frame["b"] = frame["a"].abs(), frame["b"].abs()
    frame.to_parquet("clicks.parquet")
    frame.to_parquet("clicks-valid.parquet")
    Path("clicks").mkdir()
    frame.assign(bought=0, count=1.0).to_parquet("clicks/one.parquet")
    np.save("images.npy", rows(20, 2).numpy())
    dataset = torch.utils.data.TensorDataset(rows(20, 2))
    return {"model": small_model(2), "dataset": dataset}


def threads() -> dict[str, Any]:
    graph = einet.random_trees(2, depth=1, replicas=1)
    einet.Einet(graph, einet.Gaussian(), num_sums=2).save("model.einet")
    return {}


# A page with code and without a line here fails below.
PREPARED: dict[str, Callable[[], dict[str, Any]]] = {
    "checkpoints": checkpoints,
    "data": data,
    "distributed": distributed,
    "gpu": gpu,
    "images": images,
    "large_data": large_data,
    "threads": threads,
}


@pytest.mark.skipif(not DOCS.exists(), reason="documents are in the repository only")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(einet, "fit", quick_fit)
    threads_before = torch.get_num_threads()
    names = {"einet": einet, "torch": torch, "math": math, "pd": pd, **PREPARED[page.stem]()}
    for name, module in names.pop("modules", {}).items():
        monkeypatch.setitem(sys.modules, name, module)
    try:
        for block in PLAIN.findall(page.read_text(encoding="utf-8")):
            for large, small in SMALLER.items():
                block = block.replace(large, small)
            exec(compile(block, page.name, "exec"), names)
    finally:
        torch.set_num_threads(threads_before)
    if page.stem == "threads":
        assert names["answer"]([[0.5, math.nan]])[0].isfinite().all()


NOTEBOOKS = [page for page in PAGES if is_notebook(page)]


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: str(page.relative_to(DOCS)))
def test_notebooks_say_which_code_is_not_run(page: Path):
    text = page.read_text(encoding="utf-8")
    for block in PLAIN.finditer(text):
        before = text[: block.start()].rstrip().splitlines()[-1]
        assert "not run here" in before, f"say above a block of {page.name} that it is not run"


def test_notebooks_are_found():
    assert len(NOTEBOOKS) > 15
    assert len(WITH_CODE) >= len(PREPARED)
