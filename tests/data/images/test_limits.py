"""Limits of what files may declare."""

import io
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet.data.images import ImageError, limits
from einet.data.images.limits import Gate, check_pixels, check_unpacked, read_file, read_some


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40), st.integers(1, 1 << 50))
def test_pixels_are_counted(height: int, width: int, most: int):
    if height * width <= most:
        check_pixels("a", height, width, most)
    else:
        with pytest.raises(ImageError, match=rf"a declares {height}×{width} .* {most} .*--max-pix"):
            check_pixels("a", height, width, most)


def test_public_sets_are_within_the_limits():
    check_pixels("CelebA", 218, 178)
    check_pixels("a camera", 9504, 6336)
    check_unpacked("MNIST", 9_912_422, 60_000 * 28 * 28)
    check_unpacked("SVHN's extra images", 1_329_278_602, 531_131 * 32 * 32 * 3)
    check_unpacked("few black images", 1_000, 1_000_000)
    with pytest.raises(ImageError, match=r"a\.gz declares 3000000000 bytes, packed into 3000000"):
        check_unpacked("a.gz", 3_000_000, 3_000_000_000)
    check_unpacked("a.gz", 3_000_000, 3_000_000_000, max_pixels=1_000_000_000)


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (1.5, TypeError), (True, TypeError)])
def test_the_limit_is_a_whole_number(value: object, error: type[Exception]):
    with pytest.raises(error, match="max_pixels must be an integer >= 1, got"):
        limits.as_max_pixels(value)


def test_files_are_read_up_to_a_limit(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    assert read_file(path, 100) == bytes(100)
    with pytest.raises(ImageError, match="a has more than 99 bytes"):
        read_file(path, 99)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImageError, match="pipe is no file"):
        read_file(tmp_path / "pipe", 9)
    with pytest.raises(OSError, match=str(tmp_path)):
        read_file(tmp_path, 9)
    with pytest.raises(FileNotFoundError, match="none"):
        read_file(tmp_path / "none", 9)


@given(st.binary(max_size=50), st.integers(0, 60), st.integers(1, 60))
def test_streams_are_read_in_pieces(content: bytes, size: int, piece: int):
    assert read_some(io.BytesIO(content), size, piece) == content[:size]


def test_a_gate_lets_through_what_fits_together():
    gate, inside, most, lock = Gate(10), [0], [0], threading.Lock()

    def work(weight: int) -> None:
        for _ in range(20):
            with gate.passing(weight):
                with lock:
                    inside[0] += min(weight, 10)
                    most[0] = max(most[0], inside[0])
                with lock:
                    inside[0] -= min(weight, 10)

    threads = [threading.Thread(target=work, args=(weight,)) for weight in (1, 3, 4, 7, 10, 99)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert most[0] <= 10
    with pytest.raises(KeyError), gate.passing(10):
        raise KeyError
    with gate.passing(10):
        pass
