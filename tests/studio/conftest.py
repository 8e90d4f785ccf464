"""A small table, a model of it, and a studio that is asked without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from anyio.from_thread import start_blocking_portal

import einet
from einet.studio.app import create_app
from einet.studio.session import Session

HOST, TOKEN = "127.0.0.1:8765", "a-token"


class Client:
    """Asks an application as a browser would, one call after the other or many at once."""

    def __init__(self, app: Any, portal: Any) -> None:
        self._portal = portal
        headers = {"x-einet-token": TOKEN}
        transport = httpx.ASGITransport(app)
        self._client = httpx.AsyncClient(
            transport=transport, base_url=f"http://{HOST}", headers=headers, timeout=120
        )

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            return await self._client.request(method, path, **options)

        return self._portal.call(ask)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def ok(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        """The answer to what must be answered."""
        response = self.request(method, path, **options)
        assert response.status_code == status, response.text
        return response.json()

    def refused(self, status: int, method: str, path: str, **options: Any) -> str:
        """The sentence with which something is refused."""
        response = self.request(method, path, **options)
        assert response.status_code == status, response.text
        return response.json()["error"]


def make_frame(rows: int = 300) -> pd.DataFrame:
    """Columns of all kinds, with holes."""
    generator = np.random.default_rng(0)
    sex = generator.choice(["f", "m"], rows)
    height = generator.normal(np.where(sex == "f", 165, 180), 7)
    gain = np.where(generator.random(rows) < 0.6, 0.0, generator.gamma(2.0, 50.0, rows))
    age = (height - 130 + generator.normal(0, 5, rows)).round().astype(int)
    days = generator.integers(0, 900, rows)
    frame = pd.DataFrame(
        {
            "row": [f"name {n}" for n in range(rows)],
            "sex": sex,
            "height": height,
            "gain": gain,
            "age": age,
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D"),
            "size": pd.Categorical(
                np.where(height < 165, "S", np.where(height < 175, "M", "L")),
                ["S", "M", "L"],
                ordered=True,
            ),
            "tall": height > 172,
            "always": "same",
        }
    )
    for column in ("sex", "height", "gain"):
        frame.loc[generator.random(rows) < 0.1, column] = None
    return frame


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    return make_frame()


@pytest.fixture(scope="session")
def model(frame: pd.DataFrame) -> einet.TableModel:
    with pytest.warns(UserWarning, match="identifier"):
        return einet.TableModel.fit(frame, num_sums=4, epochs=3, device="cpu")


@pytest.fixture(scope="session")
def files(frame: pd.DataFrame, model: einet.TableModel, tmp_path_factory: Any) -> Path:
    """A folder with the table and the model."""
    folder = tmp_path_factory.mktemp("studio")
    frame.to_parquet(folder / "people.parquet")
    model.save(folder / "people.einet")
    return folder


@pytest.fixture(scope="session")
def portal() -> Iterator[Any]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="session")
def session(files: Path) -> Iterator[Session]:
    """A table and its model, both open; nobody changes them."""
    with Session() as session:
        session.open_model(None, str(files / "people.einet"))
        session.open_data(None, str(files / "people.parquet"))
        yield session


@pytest.fixture(scope="session")
def client(session: Session, portal: Any) -> Client:
    return Client(create_app(session, TOKEN, [HOST]), portal)


@pytest.fixture
def empty(portal: Any) -> Iterator[tuple[Session, Client]]:
    """A studio of which nothing is known yet."""
    with Session() as session:
        yield session, Client(create_app(session, TOKEN, [HOST]), portal)
