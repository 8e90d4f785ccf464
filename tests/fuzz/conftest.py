"""The fixture that every fuzzer runs in."""

from pathlib import Path

import pytest

from tests.fuzz.campaign import Campaign


@pytest.fixture
def campaign(request: pytest.FixtureRequest, tmp_path: Path) -> Campaign:
    """Short in `make test`; as long, and with what seed, as the options of `make fuzz` say."""
    option = request.config.getoption
    kept, results = option("--fuzz-failures"), option("--fuzz-results")
    return Campaign(
        Path(kept).resolve() if kept else tmp_path,
        seconds=option("--fuzz-seconds"),
        seed=option("--fuzz-seed"),
        only=option("--fuzz-case"),
        results=Path(results).resolve() if results else None,
    )
