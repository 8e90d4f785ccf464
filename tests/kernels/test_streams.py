"""Work beside the main line of a pass: done when the block ends, and in the right order."""

from functools import partial

import pytest
import torch
from torch import Tensor

from einet.kernels import streams
from einet.kernels.streams import Beside


def _add(total: Tensor, part: Tensor) -> None:
    total += part


def test_on_a_cpu_it_runs_at_once():
    done: list[int] = []
    with Beside(torch.zeros(1)) as beside:
        for number in range(3):
            beside.run(lambda number=number: done.append(number))
            assert done == list(range(number + 1))
    assert done == [0, 1, 2]
    assert not any(device.type == "cpu" for device in streams._streams)


def test_an_error_in_the_work_comes_out():
    def fail() -> None:
        raise KeyError("work")

    with pytest.raises(KeyError, match="work"), Beside(torch.zeros(1)) as beside:
        beside.run(fail)


def test_an_error_beside_the_work_comes_out():
    done: list[int] = []

    def main() -> None:
        with Beside(torch.zeros(1)) as beside:
            beside.run(lambda: done.append(1))
            raise KeyError("main")

    with pytest.raises(KeyError, match="main"):
        main()
    assert done == [1]


def test_no_work():
    with Beside(torch.zeros(1)):
        pass


@pytest.mark.gpu
class TestOnAGpu:
    def test_it_sees_what_was_launched_before_and_is_seen_after(self):
        for _ in range(10):
            x = torch.zeros(1 << 22, device="cuda")
            y = torch.zeros_like(x)
            with Beside(x) as beside:
                for _ in range(20):
                    x += 1
                # Reads what the main line has just written.
                beside.run(partial(_add, y, x))
                z = y.new_zeros(1 << 22)
                z += 1
            # Waits for the work.
            assert (y + z == 21).all()

    def test_memory_outlives_the_work(self):
        """What only the work refers to must not be given to the main line meanwhile."""
        total = torch.zeros(1 << 20, device="cuda")
        with Beside(total) as beside:
            for number in range(50):
                part = torch.full((1 << 20,), float(number), device="cuda")
                beside.run(partial(_add, total, part))
                del part
                torch.full((1 << 20,), torch.nan, device="cuda")
        assert (total == sum(range(50))).all()

    def test_it_can_be_recorded(self):
        x, y = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")

        def work() -> None:
            with Beside(x) as beside:
                x.mul_(2)
                beside.run(partial(_add, y, x))

        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        graph.replay()
        graph.replay()
        torch.cuda.synchronize()
        assert (y == 2 + 4 + 8).all()

    def test_no_work(self):
        with Beside(torch.zeros(1, device="cuda")):
            pass
