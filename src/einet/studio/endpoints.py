"""What each address answers: what takes time is done in threads, of which there are not many."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from anyio import CapacityLimiter, Semaphore, to_thread
from starlette.requests import Request
from starlette.responses import Response

from einet.studio.answers import ApiError, answer, download, refusal
from einet.studio.bodies import file_name, read_body, read_json
from einet.studio.code import code_for
from einet.studio.files import read_data
from einet.studio.parameters import describe_parameters
from einet.studio.rows import describe_row, table_rows
from einet.studio.session import Session
from einet.studio.structure import describe_model, describe_regions
from einet.studio.tables_out import filled_csv, sampled_csv
from einet.tables import QueryError

__all__ = ["Endpoints"]

_CSV = "text/csv; charset=utf-8"
_LONGEST_QUESTION = 10_000
_MOST_UPLOADS = 2
# What a wrong file or question raises; anything else is a mistake of ours.
_EXPECTED = (ValueError, TypeError, OSError, MemoryError, ArithmeticError)


class Endpoints:
    """Answers requests: what takes time is done in threads, of which there are not many.

    Args:
        session: What is open.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.limits = session, session.limits
        self._quick: CapacityLimiter | None = None
        self._slow: CapacityLimiter | None = None
        self._uploads: Semaphore | None = None

    def routes(self) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
        """Method, path and answer of each question."""
        return [
            ("GET", "/state", self.state),
            ("POST", "/data", self.open_data),
            ("GET", "/schema", self.schema),
            ("POST", "/training", self.train),
            ("GET", "/training", self.training),
            ("DELETE", "/training", self.stop_training),
            ("POST", "/model", self.open_model),
            ("GET", "/model", self.model),
            ("GET", "/model/file", self.model_file),
            ("GET", "/model/regions", self.regions),
            ("GET", "/model/parameters", self.parameters),
            ("GET", "/columns", self.columns),
            ("POST", "/marginals", self.marginals),
            ("POST", "/ask", self.ask),
            ("GET", "/rows", self.rows),
            ("POST", "/row", self.row),
            ("POST", "/sample", self.sample),
            ("POST", "/impute", self.impute),
            ("POST", "/information", self.information),
            ("POST", "/code", self.code),
            ("GET", "/images", self.images),
            ("POST", "/images/samples", self.image_samples),
            ("GET", "/images/test", self.image_test),
            ("POST", "/images/picture", self.picture),
            ("POST", "/images/inpaint", self.inpaint),
        ]

    def endpoint(
        self, call: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """The same, with a plain answer where there is none."""

        async def answered(request: Request) -> Response:
            return await self._answered(call, request)

        return answered

    async def _answered(
        self, call: Callable[[Request], Awaitable[Response]], request: Request
    ) -> Response:
        try:
            return await call(request)
        except ApiError as error:
            return refusal(error)
        except QueryError as error:
            return refusal(ApiError(422, error.message, position=error.position))
        except _EXPECTED as error:
            return refusal(ApiError(422, str(error) or type(error).__name__))
        except Exception as error:
            traceback.print_exception(error, file=sys.stderr)
            return refusal(ApiError(500, f"something went wrong in the studio itself ({error!r})"))

    async def _run(self, call: Callable[..., Any], *args: Any, slow: bool = False) -> Any:
        """Call something in a thread; the slow have threads of their own, so that none waits."""
        if self._quick is None or self._slow is None:
            # They belong to the loop that runs.
            self._quick = CapacityLimiter(self.limits.workers)
            self._slow = CapacityLimiter(2)
        limiter = self._slow if slow else self._quick
        # At the end nobody waits for an answer that nobody will read.
        options = {"limiter": limiter, "abandon_on_cancel": True}
        return await to_thread.run_sync(partial(call, *args), **options)

    async def _upload(self, request: Request, what: str) -> bytes:
        """The file of a request; of those that are large, few are held at the same time."""
        if self._uploads is None:
            self._uploads = Semaphore(_MOST_UPLOADS)
        async with self._uploads:
            return await read_body(request, self.limits.max_bytes, what)

    async def _json(self, request: Request) -> dict[str, Any]:
        return await read_json(request, self.limits.max_json)

    # -- what is open ----------------------------------------------------------------------------

    async def state(self, request: Request) -> Response:
        """What is open."""
        return answer(self.session.state())

    async def open_data(self, request: Request) -> Response:
        """Take a table."""
        name = file_name(request, "table.csv")
        content = await self._upload(request, name)
        return answer(await self._run(self.session.open_data, content, name, slow=True))

    async def schema(self, request: Request) -> Response:
        """The columns of the table."""
        return answer(await self._run(self.session.schema))

    async def train(self, request: Request) -> Response:
        """Begin to learn a model."""
        asked = await self._json(request)
        return answer(await self._run(self.session.train, asked, slow=True), 202)

    async def training(self, request: Request) -> Response:
        """How far that is."""
        return answer(self.session.training())

    async def stop_training(self, request: Request) -> Response:
        """End it."""
        return answer(await self._run(self.session.stop_training))

    async def open_model(self, request: Request) -> Response:
        """Take a saved model."""
        name = file_name(request, "model.einet")
        content = await self._upload(request, name)
        return answer(await self._run(self.session.open_model, content, name, slow=True))

    # -- the model -------------------------------------------------------------------------------

    async def model(self, request: Request) -> Response:
        """The model in numbers."""
        return answer(await self._run(describe_model, self.session.opened, slow=True))

    async def model_file(self, request: Request) -> Response:
        """The model's file."""
        opened = self.session.opened
        content = await self._run(opened.file.read_bytes)
        return download(content, opened.name, "application/octet-stream")

    async def regions(self, request: Request) -> Response:
        """A region, and those right below it."""
        root = request.query_params.get("root")
        return answer(await self._run(describe_regions, self.session.opened, root))

    async def parameters(self, request: Request) -> Response:
        """What a region holds."""
        region = request.query_params.get("region", "")
        return answer(await self._run(describe_parameters, self.session.opened, region))

    # -- tables ----------------------------------------------------------------------------------

    async def columns(self, request: Request) -> Response:
        """All columns, with data and prior."""

        def find() -> Any:
            frame = self.session.frame_for(self.session.opened)
            return self.session.panels.columns(frame)

        return answer(await self._run(find))

    async def marginals(self, request: Request) -> Response:
        """All columns given evidence."""
        asked = await self._json(request)

        def find() -> Any:
            mass = asked.get("mass", 0.9)
            return self.session.panels.marginals(asked.get("evidence"), asked.get("columns"), mass)

        return answer(await self._run(find))

    async def ask(self, request: Request) -> Response:
        """A question in words."""
        asked = await self._json(request)
        question = asked.get("question")
        if not isinstance(question, str) or not 0 < len(question.strip()) <= _LONGEST_QUESTION:
            raise ApiError(400, "question must be a text such as P(survived=1 | sex=female)")

        def find() -> Any:
            found = self.session.panels.model.query(question)
            told = {"text": str(found), **found.to_dict()}
            if isinstance(found.value, dict):
                pairs = found.to_dict()["value"].items()
                told["values"] = [{"value": value, "number": number} for value, number in pairs]
            return told

        return answer(await self._run(find))

    async def rows(self, request: Request) -> Response:
        """Some rows of the table."""
        asked, data = request.query_params, self.session.data

        def find() -> Any:
            return table_rows(data.frame, data.table, asked.get("start"), asked.get("count"))

        return answer(await self._run(find))

    async def row(self, request: Request) -> Response:
        """One row, cell by cell."""
        asked = await self._json(request)

        def find() -> Any:
            frame = self.session.frame_for(self.session.opened)
            return describe_row(self.session.panels, asked, frame)

        return answer(await self._run(find))

    async def sample(self, request: Request) -> Response:
        """Synthetic rows as csv."""
        asked = await self._json(request)

        def find() -> bytes:
            panels = self.session.panels
            known = panels.known(asked.get("evidence"))
            most = self.limits.max_draws
            return sampled_csv(panels.model, known, asked.get("n"), asked.get("seed"), most)

        return download(await self._run(find, slow=True), "synthetic.csv", _CSV)

    async def impute(self, request: Request) -> Response:
        """A table without its holes as csv."""
        method, content = request.query_params.get("method"), None
        asked: dict[str, Any] = {}
        if method is None:
            asked = await self._json(request)
        else:
            name = file_name(request, "table.csv")
            content = await self._upload(request, name)

        def find() -> bytes:
            panels = self.session.panels
            if content is None:
                frame = self.session.frame_for(self.session.opened)
                if frame is None:
                    raise ApiError(409, "there is no table that fits the model; open one first")
            else:
                frame = read_data(content, name, self.limits).frame
            known = panels.known(asked.get("evidence"))
            how = asked.get("method") if method is None else method
            return filled_csv(panels.model, frame, how, known, asked.get("seed"))

        return download(await self._run(find, slow=True), "filled.csv", _CSV)

    async def information(self, request: Request) -> Response:
        """How much columns tell of one another."""
        asked = await self._json(request)
        found = await self._run(self.session.information, asked.get("evidence"), slow=True)
        return answer(found)

    async def code(self, request: Request) -> Response:
        """The code of what is on the screen."""
        asked = await self._json(request)
        return answer(await self._run(code_for, self.session, asked))

    # -- images ----------------------------------------------------------------------------------

    async def images(self, request: Request) -> Response:
        """What images the model is of."""
        return answer(self.session.images.described())

    async def image_samples(self, request: Request) -> Response:
        """New images."""
        asked = await self._json(request)
        return answer(await self._run(self.session.images.samples, asked))

    async def image_test(self, request: Request) -> Response:
        """An image to try the model with."""
        index = request.query_params.get("index", "0")
        return answer(await self._run(self.session.images.test, index))

    async def picture(self, request: Request) -> Response:
        """A picture of the user's, fitted."""
        content = await read_body(request, self.limits.max_json * 4, "the picture")
        return answer(await self._run(self.session.images.picture, content))

    async def inpaint(self, request: Request) -> Response:
        """What may lie under covered parts."""
        asked = await self._json(request)
        return answer(await self._run(self.session.images.inpaint, asked))
