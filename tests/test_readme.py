"""The README's quick start runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


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


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(((?!http)[^)]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
