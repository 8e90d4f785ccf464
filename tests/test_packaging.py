"""What is installed for everyone is enough for everything but the extras."""

import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import einet

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# The modules of the extras' packages, none of which may be needed without its extra.
OPTIONAL = (
    "PIL", "matplotlib", "narwhals", "pandas", "pyarrow", "scipy", "sklearn", "starlette", "typer",
    "uvicorn",
)  # fmt: skip

# None in this place makes an import fail as if the package were not there.
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL}))\n"


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, where the extras' packages cannot be imported."""
    program = [sys.executable, "-W", "error", "-c", BLOCK + textwrap.dedent(code), *arguments]
    environment = {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(program, env=environment, capture_output=True, text=True)


def test_the_library_needs_no_extra(tmp_path: Path):
    code = """
        import importlib, pkgutil
        import torch
        import einet

        model = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=2)
        rows = torch.randn(20, 4)
        einet.fit(model, rows, epochs=2, batch_size=10, progress=False)
        model.given(rows).mean()
        model.save(sys.argv[1])
        einet.load(sys.argv[1])
        for module in pkgutil.walk_packages(einet.__path__, "einet."):
            # The commands need typer, estimators scikit-learn, kernels of Triton its compiler, and
            # the studio its server.
            needs = (
                "einet.cli.", "einet.tables.estimators", "einet.kernels.triton", "einet.studio."
            )
            if not module.name.startswith(needs):
                importlib.import_module(module.name)
    """
    result = run(code, str(tmp_path / "model.einet"))
    assert result.returncode == 0, result.stderr


# What a user who asks for everything is spared.
NOT_FOR_USERS = {"all", "browser", "dev", "docs"}


def test_what_is_installed_for_everyone():
    core = {requirement.split(">=")[0] for requirement in PROJECT["dependencies"]}
    assert core == {"jaxtyping", "numpy", "rich", "safetensors", "torch"}
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    assert everything == f"einet[{','.join(sorted(extras.keys() - NOT_FOR_USERS))}]"


def test_types_are_for_users_too():
    """Without this file a type checker takes the annotations of an installed package for none."""
    assert (ROOT / "src" / "einet" / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_the_citation_is_of_this_release():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r'^([a-z-]+): *"?([^"\n]*)"?$', cited, re.MULTILINE))
    assert fields["cff-version"] == "1.2.0"
    assert fields["version"] == einet.__version__
    assert fields["license"] == PROJECT["license"]
    assert fields["type"] == "software"
    assert f'- name: "{PROJECT["authors"][0]["name"]}"' in cited
