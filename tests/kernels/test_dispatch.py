"""Which kernels a layer uses, and who may say so."""

import subprocess
import sys
import threading
from contextlib import nullcontext

import jaxtyping
import pytest
import torch

import einet
from einet.kernels import dispatch
from einet.kernels.dispatch import MOST_ENTRIES, MOST_OUTER, backend, fused
from einet.layers import Circuit
from einet.layers.parameter import OnPaper

HERE = torch.zeros(1)


@pytest.fixture
def unchecked():
    """Without the run-time checks of types, as a user runs it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_torch_on_a_cpu():
    assert not fused(HERE)
    with backend("auto"):
        assert not fused(HERE)


def test_within_a_block():
    with backend("triton"):
        assert fused(HERE)
        with backend("torch"):
            assert not fused(HERE)
            with backend("auto"):
                assert not fused(HERE)
        assert fused(HERE)
    assert not fused(HERE)


def test_an_error_ends_the_block_too():
    with pytest.raises(KeyError), backend("triton"):
        raise KeyError
    assert not fused(HERE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_float32_alone_is_fused(dtype: torch.dtype):
    with backend("triton"):
        assert not fused(HERE.to(dtype))


def test_each_thread_for_itself():
    seen = []
    with backend("triton"):
        thread = threading.Thread(target=lambda: seen.append(fused(HERE)))
        thread.start()
        thread.join()
        assert fused(HERE)
    assert seen == [False]


@pytest.mark.parametrize("name", ["cuda", "Triton", "", None])
def test_names_are_checked(name, unchecked):
    wanted = "name must be 'auto', 'torch' or 'triton', got"
    with pytest.raises(ValueError, match=wanted), backend(name):
        pass


class _OnCuda:
    """As much of a tensor on a GPU as is looked at."""

    dtype = torch.float32
    is_cuda = True


@pytest.mark.parametrize("installed", [False, True])
def test_a_gpu_without_triton(installed: bool, monkeypatch, unchecked):
    monkeypatch.setattr(dispatch, "find_spec", lambda name: object() if installed else None)
    dispatch._installed.cache_clear()
    like: torch.Tensor = _OnCuda()  # type: ignore[assignment]
    try:
        if installed:
            assert fused(like)
            with backend("torch"):
                assert not fused(like)
        else:
            with pytest.warns(UserWarning, match="Triton is not installed"):
                assert not fused(like)
            # Said once.
            assert not fused(like)
    finally:
        dispatch._installed.cache_clear()


@pytest.mark.parametrize(
    ("leaves", "sums", "classes"), [(1, 1, 1), (256, 3, 1), (3, 256, 256), (257, 3, 1), (3, 257, 1),
                                    (3, 3, 257)]
)  # fmt: skip
def test_outer_products_must_fit_a_tile(leaves: int, sums: int, classes: int):
    circuit = Circuit(einet.random_trees(4, depth=2, replicas=1), leaves, sums, classes)
    check_fit(circuit, max(leaves, sums, classes) <= MOST_OUTER)


@pytest.mark.parametrize(
    ("sums", "classes"), [(1, 1), (257, 256), (MOST_ENTRIES, 1), (MOST_ENTRIES + 1, 1), (3, 257)]
)
def test_linear_sums_may_be_wide(sums: int, classes: int):
    with OnPaper():
        circuit = Circuit(einet.random_trees(4, 2, 1), sums, sums, classes, "linear")
    check_fit(circuit, sums <= MOST_ENTRIES and classes <= MOST_OUTER)


def check_fit(circuit: Circuit, fits: bool) -> None:
    assert circuit.fits_kernels == fits
    assert not circuit.empty_values(3, HERE).fused
    with backend("triton"), nullcontext() if fits else pytest.warns(UserWarning, match="times"):
        assert circuit.empty_values(3, HERE).fused == fits
        # Nothing to do, a maximum in place of sums, or float64: torch.
        assert not circuit.empty_values(0, HERE).fused
        assert not circuit.empty_values(3, HERE, maximise=True).fused
        assert not circuit.empty_values(3, HERE.double()).fused


def test_triton_is_imported_on_use_only():
    code = (
        "import sys, torch, einet\n"
        "model = einet.Einet(einet.random_trees(2, 1, 1), einet.Gaussian(), 2)\n"
        "model.em_step(torch.zeros(3, 2)); model.log_prob(torch.zeros(3, 2))\n"
        "assert 'triton' not in sys.modules, 'triton was imported'\n"
        "assert not any(name.startswith('einet.kernels.triton') for name in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
