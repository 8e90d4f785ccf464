"""Calls recorded on a tape."""

from __future__ import annotations

import pytest
import torch

from einet.engine.tape import Tape, on


def test_a_cpu_needs_no_current_device():
    with on(torch.device("cpu")):
        assert torch.zeros(1).device.type == "cpu"


@pytest.mark.gpu
def test_a_call_is_made_again_with_what_it_finds():
    device = torch.device("cuda", torch.cuda.current_device())
    x = torch.ones(1000, device=device)
    tape = Tape(device)
    first = tape.record(lambda: x * 2)
    second = tape.record(lambda: first.out.cumsum(0) + 1)
    for number in range(5):
        x.fill_(number)
        stream = torch.cuda.Stream() if number % 2 else torch.cuda.default_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            tape.begin()
            assert (first.replay() == 2 * number).all()
            assert second.replay()[-1] == 2000 * number + 1
            # What the first call returns is not written to by others.
            assert (first.out == 2 * number).all()
        torch.cuda.current_stream().wait_stream(stream)
    tape.settle()
