"""Set-up shared by the tests and by the examples in docstrings.

It lies at the root, not in ``tests/``, because it must also run before pytest imports the
package from ``src/`` for the docstrings' sake.
"""

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from importlib.util import find_spec

import torch

if not torch.cuda.is_available():
    # Triton settles at decoration time whether a kernel is compiled or interpreted.
    os.environ.setdefault("TRITON_INTERPRET", "1")

if find_spec("triton") is None:
    collect_ignore_glob = ["src/einet/kernels/triton*"]


class _TritonAsWritten(MetaPathFinder):
    """Keep the shape checks off Triton's kernels.

    A kernel is compiled from its source, never called, and the names in it are looked up in the
    globals of the decorated function: behind a checking wrapper those are the wrong ones.
    """

    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("einet.") and "triton" in fullname.split("."):
            return PathFinder.find_spec(fullname, path, target)
        return None


if find_spec("beartype") is not None:
    from jaxtyping import install_import_hook

    if "einet" in sys.modules:
        raise RuntimeError("einet was imported before conftest.py could turn its shape checks on")
    install_import_hook("einet", "beartype.beartype")
    sys.meta_path.insert(0, _TritonAsWritten())

if find_spec("hypothesis") is not None:
    from hypothesis import HealthCheck, settings

    # Deadlines and speed checks judge the machine, not the code.
    settings.register_profile(
        "einet", deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile("einet-ci", settings.get_profile("einet"), derandomize=True)
    # `make test-long` asks for it.
    settings.register_profile("einet-long", settings.get_profile("einet"), max_examples=500)
    settings.load_profile("einet-ci" if os.environ.get("CI") else "einet")

# The tests' tensors are small, and xdist's workers share the cores already.
torch.set_num_threads(1)


def pytest_addoption(parser):
    """How long the fuzzers of tests/fuzz try, and what."""
    group = parser.getgroup("fuzz")
    group.addoption("--fuzz-seconds", type=float, help="go on so long in each campaign")
    group.addoption("--fuzz-seed", type=int, help="what the cases are drawn from")
    group.addoption("--fuzz-case", type=int, help="the number of the one case to try")
    group.addoption("--fuzz-failures", help="the folder that keeps the files of a failing case")
    group.addoption("--fuzz-results", help="the folder to write the counts to")
