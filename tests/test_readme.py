"""What the README and the other documents say holds: code runs, links lead somewhere."""

import json
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
FOLDERS = (ROOT, *(ROOT / name for name in ("docs", "benchmarks", "experiments")))
DOCUMENTS = sorted(
    path
    for folder in FOLDERS
    for path in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    and path.name != "CHANGELOG.md"  # which may tell of what is no longer there
)


def test_quick_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = README.read_text().split("## Quick start")[1]
    match = re.search(r"```python\n(.*?)```", start, re.DOTALL)
    assert match is not None
    code = match.group(1)
    assert len(code.splitlines()) <= 25
    names: dict = {}
    exec(
        compile(code.replace("batch_size=100", "batch_size=100, progress=False"), "README", "exec"),
        names,
    )
    assert names["filled"].isfinite().all()
    assert names["draws"].shape == (16, 500, 20)
    assert (tmp_path / "model.einet").exists()
    assert names["history"].valid[-1] > names["history"].valid[0]


def test_it_stays_short():
    assert len(README.read_text().splitlines()) < 200


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_pictures_exist(document: Path):
    for target in re.findall(r"\]\(((?!https?:)[^)]+)\)", document.read_text(encoding="utf-8")):
        name, _, heading = target.partition("#")
        path = (document.parent / name) if name else document
        assert path.exists(), target
        if heading:
            assert heading in headings(path), target


def headings(path: Path) -> set[str]:
    """The names by which links reach the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_names_in_documents_exist(document: Path):
    text = document.read_text(encoding="utf-8")
    for name in re.findall(r"(?<![\w./])einet(?:\.\w+)+", text):
        pkgutil.resolve_name(name)  # raises where there is none
    for path in re.findall(r"(?:src|tests|benchmarks|experiments)/[\w./-]+\.py\b", text):
        assert (ROOT / path).exists(), path


def test_likelihoods_of_images_are_the_measured_ones():
    results = {
        name: json.loads((ROOT / f"experiments/images/results/{name}.json").read_text())
        for name in ("celeba", "svhn")
    }
    said = README.read_text(encoding="utf-8")
    for model in ("paper", "clusters-60"):
        nats = f"{results['celeba'][model]['test_ll']:,.0f}".replace("-", "−")
        assert re.search(rf"(?<!\d){nats}(?! ms)\b", said), nats
    seconds = results["svhn"]["paper"]
    assert f"{seconds['train_seconds']:.1f} s and {seconds['kmeans_seconds']:.1f} s of k-means" in (
        said.replace("\n", " ")
    )
