"""What `model.memory` says beside what a GPU measures, and learning where memory is short.

``"what": "said"`` has the parts of what was said of a mini-batch and of a full batch, and
``measured_mib``: the peak of `fit`, whose rows lie on the device already, with the model and
without all that was there before. `fit` has learnt before, so that compilers and libraries have
taken theirs.

``"what": "halved"`` learns the same twice from the same start. First with room; then the process
may have `_SHARE` of what that took, so that `fit` has to go on with fewer rows at a time, as its
warnings say. ``difference`` is the largest one of parameters, relative to 1 + |parameter|.
"""

from __future__ import annotations

import gc
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

import einet

__all__ = ["MODELS", "halved", "made", "measure", "said"]

#: Kind, variables and K.
MODELS = {
    "random trees, K 40": ("random", 512, 40),
    "hidden tree, K 256": ("hidden", 256, 256),
    "mixture of 4 random trees, K 40": ("mixture", 512, 40),
}
_BATCH, _STEPS = 500, 4
_MIB = 2**20
#: Of the memory that the run with room takes, the other may have this much.
_SHARE = 0.4
#: Type, K and rows of a mini-batch where memory is short.
_SHORT = (("float32", 40, 8000), ("float64", 8, 8000))
_FEWER = re.compile(r"at most (\d+) rows at a time")


def measure(quick: bool) -> Iterator[dict[str, Any]]:
    """Rows of the first CUDA device; none where there is none."""
    if not torch.cuda.is_available():
        return
    device = torch.device("cuda", torch.cuda.current_device())
    about = {"device": torch.cuda.get_device_name()}
    for name in list(MODELS)[:1] if quick else MODELS:
        for full in (False, True):
            yield {**about, **_measured(name, full, device)}
    for dtype, K, batch in _SHORT:
        fit = _learner(dtype, K, batch, device)
        room = _peak_of(lambda fit=fit: fit(1), device)
        told = halved(fit, lambda room=room: _limited(int(_SHARE * room), device))
        yield {
            **about,
            "model": f"random trees, K {K}",
            "dtype": dtype,
            "batch": batch,
            "with_room_mib": round(room / _MIB),
            "limit_mib": round(_SHARE * room / _MIB),
            **told,
        }


# -- what was said -------------------------------------------------------------------------------


def made(name: str, device: torch.device) -> tuple[einet.Model, Tensor]:
    """A model by its name, and rows for it on its device."""
    kind, variables, K = MODELS[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_BATCH * _STEPS, variables, generator=generator).cumsum(1) / 8
    if kind == "hidden":
        x = x.clamp(-2, 1.9).add(2).mul(4).floor()
        graph = einet.chow_liu(x)
        model: einet.Model = einet.Einet(graph, einet.Categorical(16), K, sums="linear")
    else:
        graph = einet.random_trees(variables, depth=4, replicas=10, seed=0)
        count = 4 if kind == "mixture" else 1
        models = [einet.Einet(graph, einet.Gaussian(), K, seed=seed) for seed in range(count)]
        model = einet.Mixture(models) if kind == "mixture" else models[0]
    return model.initialize(x).to(device), x.to(device)


def said(name: str, model: einet.Model, full: bool) -> dict[str, Any]:
    """What a model says of its memory, in MiB."""
    memory = model.memory(_BATCH, full_batch=full)
    parts = ("parameters", "copies", "values", "statistics", "work", "total")
    return {
        "what": "said",
        "model": name,
        "batch": _BATCH,
        "learner": "EM" if full else "StochasticEM",
        **{f"{part}_mib": round(getattr(memory, part) / _MIB, 1) for part in parts},
    }


def _measured(name: str, full: bool, device: torch.device) -> dict[str, Any]:
    began = time.perf_counter()
    model, x = made(name, device)
    row = said(name, model, full)

    def learn() -> None:
        learner = einet.EM() if full else einet.StochasticEM(0.3)
        einet.fit(model, x, epochs=2, batch_size=_BATCH, optimizer=learner, progress=False)

    learn()
    own = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    measured = _peak_of(learn, device, reserved=False) + own
    return {
        **row,
        "measured_mib": round(measured / _MIB, 1),
        "said_of_measured": round(row["total_mib"] * _MIB / measured, 2),
        "seconds": round(time.perf_counter() - began, 1),
    }


def _peak_of(work: Callable[[], object], device: torch.device, reserved: bool = True) -> int:
    """The bytes that some work has at its peak: more than before, or all that is reserved."""
    torch.cuda.synchronize(device)
    _forget()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    if reserved:
        return torch.cuda.max_memory_reserved(device)
    return torch.cuda.max_memory_allocated(device) - before


def _forget() -> None:
    """Give back what nobody needs."""
    gc.collect()
    torch.cuda.empty_cache()


# -- where memory is short -----------------------------------------------------------------------

#: Learns for so many epochs; the parameters and the log-likelihood.
Fit = Callable[[int], tuple[list[Tensor], float]]


def _learner(dtype: str, K: int, batch: int, device: torch.device) -> Fit:
    kind = getattr(torch, dtype)
    graph = einet.random_trees(64, depth=4, replicas=10, seed=0)
    x = torch.randn(2 * batch, 64, generator=torch.Generator().manual_seed(0)).cumsum(1) / 8
    x = x.to(device, kind)

    def fit(epochs: int) -> tuple[list[Tensor], float]:
        model = einet.Einet(graph, einet.Gaussian(), K, dtype=kind, device=device)
        history = einet.fit(
            model, x, epochs=epochs, batch_size=batch, progress=False,
            optimizer=einet.StochasticEM(0.3, einet.Prior(sums=1.0, leaves=0.1)),
        )  # fmt: skip
        numbers = [parameter.detach().double().cpu() for parameter in model.parameters()]
        return numbers, history.train[-1]

    return fit


def halved(
    fit: Fit, limit: Callable[[], AbstractContextManager[object]], epochs: int = 3
) -> dict[str, Any]:
    """What comes of learning within a limit, beside learning with room.

    Args:
        fit: Learns, always from the same start.
        limit: Makes a block in which memory is short.
        epochs: For how many epochs.
    """
    began = time.perf_counter()
    expected, of_room = fit(epochs)
    with warnings.catch_warnings(record=True) as heard, limit():
        warnings.simplefilter("always")
        numbers, log_likelihood = fit(epochs)
    found = [_FEWER.search(str(warning.message)) for warning in heard]
    worst = max(
        float(((one - other).abs() / (1 + other.abs())).max())
        for one, other in zip(numbers, expected, strict=True)
    )
    return {
        "what": "halved",
        "rows_at_a_time": [int(words[1]) for words in found if words is not None],
        "difference": worst,
        "log_likelihood": log_likelihood,
        "with_room": of_room,
        "seconds": round(time.perf_counter() - began, 1),
    }


@contextmanager
def _limited(most: int, device: torch.device) -> Iterator[None]:
    """A block in which this process may have so many bytes of a device."""
    _, total = torch.cuda.mem_get_info(device)
    _forget()
    torch.cuda.set_per_process_memory_fraction(most / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()
