"""The map of the code is true."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_map_has_the_rooms_that_there_are():
    map_of_rooms = (ROOT / "CONTRIBUTING.md").read_text().split("## The map")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)/` \|", map_of_rooms, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = project["tool"]["importlinter"]["contracts"]
    *rooms, lowest = contract["layers"]
    assert named == rooms
    folders = [path.name for path in (ROOT / "src" / "einet").iterdir() if path.is_dir()]
    assert sorted(named) == sorted(name for name in folders if name != "__pycache__")
    for module in lowest.split(" | "):
        assert (ROOT / "src" / "einet" / f"{module}.py").exists()
        assert f"`{module}.py`" in map_of_rooms
