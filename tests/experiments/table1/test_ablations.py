"""One change at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.table1 import ablations
from experiments.table1.settings import MIXED, Kind, Settings


@pytest.mark.parametrize("kind", MIXED)
def test_every_variant_is_one_change(kind: Kind) -> None:
    found = ablations.variants(kind, rows=10_000)
    base = found.pop("as it is").to_dict()
    for name, settings in found.items():
        changed = {key for key, value in settings.to_dict().items() if value != base[key]}
        assert 1 <= len(changed) <= 2, name
    assert len(set(found.values())) == len(found)


def test_the_command(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is kept at once, and made once."""

    def few(kind: Kind, rows: int, epochs: int) -> dict[str, Settings]:
        base = Settings(kind, 2, depth=1, replicas=1, trees=1, batch_size=30, epochs=epochs)
        return {"as it is": base, "random start": replace(base, clusters=False)}

    monkeypatch.setattr(ablations, "variants", few)
    out = tmp_path / "out"
    arguments = ["--root", str(root), "--output", str(out), "--device", "cpu", "--epochs", "1"]
    assert ablations.main([*arguments, "--datasets", "nltcs", "--seeds", "2"]) == 0
    rows = json.loads((out / "ablations.json").read_text())
    assert len(rows) == 8
    assert {row["variant"] for row in rows} == {"as it is", "random start"}
    table = (out / "ablations.md").read_text()
    assert "| random trees | nltcs |" in table
    assert "(+0.000)" in table
    monkeypatch.setattr(ablations, "train", None)
    assert ablations.main([*arguments, "--datasets", "nltcs", "--seeds", "2"]) == 0
    assert json.loads((out / "ablations.json").read_text()) == rows


@pytest.mark.parametrize("bad", [["--seeds", "0"], ["--datasets", "nothing"]])
def test_bad_arguments(root: Path, bad: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ablations.main(["--root", str(root), *bad])
    assert bad[1] in capsys.readouterr().err
