"""Two processes on one CUDA device: whether they arrive where one process does.

NCCL mostly refuses one device twice; then gloo moves the sums by way of main memory. It is about
being right, not about speed.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

import einet
from einet.engine import expectation

_SECONDS = 40.0


def measure(quick: bool) -> Iterator[dict[str, Any]]:
    if not torch.cuda.is_available():
        return
    for backend in ("nccl", "gloo"):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            context = processes.start_processes(  # type: ignore[attr-defined]
                _work, (folder, backend), nprocs=2, join=False, start_method="spawn"
            )
            assert context is not None
            ends = time.monotonic() + _SECONDS
            error = None
            try:
                while time.monotonic() < ends and not context.join(1.0):
                    pass
            except Exception as failed:
                words = [line for line in str(failed).splitlines() if line.strip()]
                error = next((w for w in words if "Duplicate GPU" in w), words[-1])[:200]
            for process in context.processes:
                if process is not None and process.is_alive():
                    error = error or f"no answer within {_SECONDS:g} s"
                    process.kill()
            seconds = round(time.perf_counter() - began, 1)
            told = sorted(Path(folder).glob("*.json"))
            rows = [json.loads(path.read_text()) for path in told]
            about = {"backend": backend, "device": torch.cuda.get_device_name(), "seconds": seconds}
            if error is not None:
                yield {**about, "error": error}
            for row in rows:
                yield {**about, **row}


def _work(rank: int, folder: str, backend: str) -> None:
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    torch.cuda.set_device(0)
    dist.init_process_group(
        backend, init_method=f"file://{folder}/group", rank=rank, world_size=2,
        timeout=timedelta(seconds=30),
    )  # fmt: skip
    if backend == "nccl":
        dist.all_reduce(torch.ones(1, device="cuda"))
    plans = (
        ("float64", torch.float64, "kernels of torch", expectation._WORTH),
        ("float32", torch.float32, "recorded, then summed", 1 << 60),
        ("float32", torch.float32, "summed during the backward pass", 0),
    )
    for kind, dtype, how, worth in plans:
        expectation._WORTH = worth
        together, history = _fitted(dtype, None)
        alone, expected = _fitted(dtype, False)
        if rank == 0:
            # Sums of weights are 1: an absolute difference is one of probability.
            worst = max(
                float(((one - other).abs() / (1 + other.abs())).max())
                for one, other in zip(together, alone, strict=True)
            )
            row = {
                "dtype": kind, "how": how, "difference": worst,
                "log_likelihood": history.train[-1], "of_one_process": expected.train[-1],
            }  # fmt: skip
            Path(folder, f"{kind}-{worth > 0}-{worth > 1 << 40}.json").write_text(json.dumps(row))
    dist.destroy_process_group()


def _fitted(dtype: torch.dtype, distributed: bool | None) -> tuple[list[torch.Tensor], Any]:
    x = torch.randn(400, 32, generator=torch.Generator().manual_seed(0)).to(dtype).cumsum(1)
    graph = einet.random_trees(32, depth=2, replicas=2, seed=0)
    model = einet.Einet(graph, einet.Gaussian(), 16, dtype=dtype, device="cuda")
    history = einet.fit(
        model, x, epochs=3, batch_size=128, progress=False, distributed=distributed,
        optimizer=einet.StochasticEM(0.3, einet.Prior(sums=1.0, leaves=0.1)),
    )  # fmt: skip
    return [parameter.detach().double().cpu() for parameter in model.parameters()], history
