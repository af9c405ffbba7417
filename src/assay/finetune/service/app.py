"""Routes of OpenAI's files and fine_tuning.jobs APIs; all other paths go to the models.

Errors have the form and the status codes of OpenAI's errors.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from assay.core.http import BodyAbandoned, make_response, read_body
from assay.errors import RequestTooLarge
from assay.finetune.service.jobs import FileShelf, Job, JobBook, NoRoom, ShelvedFile
from assay.finetune.service.worker import Worker

_FORM_OVERHEAD: Final = 64 << 10
_UPLOAD_PART: Final = 1 << 20
_MOST_LISTED: Final = 100
_UPLOADS_AT_ONCE: Final = 4
_IDLE_S: Final = 60.0


class _Refused(Exception):
    """An error response of the protocol."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param

    def answer(self) -> Response:
        error = {
            "message": str(self),
            "type": "invalid_request_error" if self.status < 500 else "server_error",
            "param": self.param,
            "code": self.code,
        }
        return make_response({"error": error}, self.status)


class _Hyperparameters(BaseModel):
    """Numbers, or 'auto' for the default of the service."""

    model_config = ConfigDict(extra="ignore")

    n_epochs: int | str = 3
    batch_size: int | str = 4
    learning_rate: float | str | None = None
    learning_rate_multiplier: float | str | None = None


class _Supervised(BaseModel):
    hyperparameters: _Hyperparameters | None = None


class _Method(BaseModel):
    type: str
    supervised: _Supervised | None = None


class _JobRequest(BaseModel):
    """Body of a request that creates a job."""

    model: str
    training_file: str
    validation_file: str | None = None
    hyperparameters: _Hyperparameters | None = None
    method: _Method | None = None
    suffix: str | None = Field(default=None, max_length=64)
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    metadata: dict[str, str] | None = Field(default=None, max_length=16)
    integrations: list[Any] | None = None


class FinetuneApp:
    """ASGI application of the service.

    Args:
        shelf: Uploaded files.
        book: Jobs.
        worker: Trains the jobs.
        bases: Default learning rate of each model that can be trained, by name.
        chat: Application for all other paths.
    """

    def __init__(
        self,
        shelf: FileShelf,
        book: JobBook,
        worker: Worker,
        bases: Mapping[str, float],
        chat: ASGIApp,
    ) -> None:
        self._shelf, self._book, self._worker, self._bases = shelf, book, worker, bases
        self._chat = chat
        self._uploads = asyncio.Semaphore(_UPLOADS_AT_ONCE)
        files, jobs = "/v1/files", "/v1/fine_tuning/jobs"
        self._router = Router(
            [
                Route(files, _route(self._upload), methods=["POST"]),
                Route(files, _route(self._files), methods=["GET"]),
                Route(f"{files}/{{id}}", _route(self._file), methods=["GET"]),
                Route(f"{files}/{{id}}", _route(self._delete_file), methods=["DELETE"]),
                Route(f"{files}/{{id}}/content", _route(self._content), methods=["GET"]),
                Route(jobs, _route(self._create), methods=["POST"]),
                Route(jobs, _route(self._jobs), methods=["GET"]),
                Route(f"{jobs}/{{id}}", _route(self._job), methods=["GET"]),
                Route(f"{jobs}/{{id}}/cancel", _route(self._cancel), methods=["POST"]),
                Route(f"{jobs}/{{id}}/events", _route(self._events), methods=["GET"]),
                Route(f"{jobs}/{{id}}/checkpoints", _route(self._checkpoints), methods=["GET"]),
                Route("/v1/models/{name:path}", _route(self._delete_model), methods=["DELETE"]),
            ],
            default=self._nothing,
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        path = scope.get("path", "")
        ours = path.startswith(("/v1/files", "/v1/fine_tuning")) or (
            path.startswith("/v1/models/") and scope["method"] == "DELETE"
        )
        await (self._router if ours else self._chat)(scope, receive, send)

    async def _nothing(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"Unknown request URL: {scope['method']} {scope['path']}"
        await _Refused(404, message, code="unknown_url").answer()(scope, receive, send)

    # Files.

    async def _upload(self, request: Request) -> Response:
        async with self._uploads:
            return make_response((await self._uploaded(request)).told())

    async def _uploaded(self, request: Request) -> ShelvedFile:
        room = self._shelf.room + _FORM_OVERHEAD
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > room:
            raise NoRoom("there is no room for this file; delete files or models first")
        parser = MultiPartParser(
            request.headers, _bounded(request, room), max_files=1, max_fields=8
        )
        if "multipart/form-data" not in request.headers.get("content-type", ""):
            raise _Refused(400, "send the file as multipart/form-data", param="file")
        try:
            form = await parser.parse()
        except (MultiPartException, KeyError, ValueError) as error:
            raise _Refused(400, f"the form cannot be read: {error}") from None
        try:
            file = form.get("file")
            purpose = form.get("purpose") or request.query_params.get("purpose")
            if file is None or isinstance(file, str):
                raise _Refused(400, "'file' is a required property", param="file")
            if purpose != "fine-tune":
                raise _Refused(
                    400,
                    f"purpose {purpose!r} is not allowed; it must be 'fine-tune'",
                    param="purpose",
                )
            with self._shelf.adding(file.filename or "file", purpose) as addition:
                while part := await file.read(_UPLOAD_PART):
                    await asyncio.to_thread(addition.write, part)
                if not addition.size:
                    raise _Refused(400, "the file is empty", param="file")
            return addition.file
        finally:
            await form.close()

    async def _files(self, request: Request) -> Response:
        return _page([file.told() for file in self._shelf.all()], request)

    async def _file(self, request: Request) -> Response:
        return make_response(self._found_file(request.path_params["id"]).told())

    async def _delete_file(self, request: Request) -> Response:
        file = self._found_file(request.path_params["id"])
        if any(file.id in _files_of(job) for job in self._book.all() if not job.ended):
            raise _Refused(409, f"a job that has not ended needs {file.id}")
        self._shelf.remove(file)
        return make_response({"id": file.id, "object": "file", "deleted": True})

    async def _content(self, request: Request) -> Response:
        file = self._found_file(request.path_params["id"])
        return FileResponse(self._shelf.path(file), media_type="application/octet-stream")

    def _found_file(self, name: str) -> ShelvedFile:
        found = self._shelf.find(name)
        if found is None:
            raise _Refused(404, f"No such File object: {name[:100]}", param="id")
        return found

    # Jobs.

    async def _create(self, request: Request) -> Response:
        try:
            asked = _JobRequest.model_validate_json(await read_body(request))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or None
            raise _Refused(400, f"{where or 'the body'}: {first['msg']}", param=where) from None
        base = next((one for one in self._bases if one == asked.model.lower()), None)
        if base is None:
            tuned = self._book.models().get(asked.model)
            raise _Refused(
                400,
                f"The model `{asked.model[:100]}` "
                + ("was fine-tuned before and cannot be again" if tuned else "does not exist")
                + f"; choose from: {', '.join(self._bases)}",
                code="model_not_available",
                param="model",
            )
        for name in ("training_file", "validation_file"):
            file = getattr(asked, name)
            if file is not None and self._shelf.find(file) is None:
                raise _Refused(400, f"invalid {name}: {file[:100]}", param=name)
        if asked.method is not None and asked.method.type != "supervised":
            raise _Refused(
                400,
                f"method {asked.method.type[:100]!r} is not allowed; it must be 'supervised'",
                param="method",
            )
        if not self._shelf.room:
            raise NoRoom("there is no room for another model; delete files or models first")
        given = asked.hyperparameters or (
            asked.method and asked.method.supervised and asked.method.supervised.hyperparameters
        )
        numbers = _numbers(given or _Hyperparameters(), self._bases[base])
        job = self._book.create(
            {
                "model": base,
                "training_file": asked.training_file,
                "validation_file": asked.validation_file,
                "hyperparameters": numbers,
                "method": {"type": "supervised", "supervised": {"hyperparameters": numbers}},
                "user_provided_suffix": asked.suffix,
                "seed": 0 if asked.seed is None else asked.seed,
                "metadata": asked.metadata,
            }
        )
        self._worker.wake()
        return make_response(job.told)

    async def _jobs(self, request: Request) -> Response:
        return _page([job.told for job in self._book.all()], request)

    async def _job(self, request: Request) -> Response:
        return make_response(self._found(request).told)

    async def _cancel(self, request: Request) -> Response:
        job = self._found(request)
        if job.ended:
            raise _Refused(400, f"job {job.id} has ended already: {job.status}")
        await asyncio.to_thread(self._worker.cancel, job)
        return make_response(job.told)

    async def _events(self, request: Request) -> Response:
        return _page(await asyncio.to_thread(self._found(request).events), request)

    async def _checkpoints(self, request: Request) -> Response:
        return _page(await asyncio.to_thread(self._found(request).checkpoints), request)

    def _found(self, request: Request) -> Job:
        name = request.path_params["id"]
        found = self._book.find(name)
        if found is None:
            raise _Refused(404, f"Could not find fine tune: {name[:100]}", code="not_found")
        return found

    # Models.

    async def _delete_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        job = self._book.models().get(name)
        if job is None:
            message = f"The model '{name[:100]}' does not exist or cannot be deleted"
            raise _Refused(404, message, code="model_not_found", param="model")
        await asyncio.to_thread(self._book.remove_model, job)
        return make_response({"id": name, "object": "model", "deleted": True})


def _route(
    answer: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except _Refused as error:
            return error.answer()
        except NoRoom as error:
            return _Refused(413, str(error), code="quota_exceeded").answer()
        except RequestTooLarge as error:
            return _Refused(413, str(error), code="too_large").answer()
        except BodyAbandoned as error:
            refusal = error.refusal
            return _Refused(refusal.status, str(error), code=refusal.body["code"]).answer()

    return answered


async def _bounded(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """Yield the request body; raise BodyAbandoned if it is too large or stops arriving."""
    size = 0
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(_IDLE_S):
                part = await anext(stream)
        except StopAsyncIteration:
            return
        except (TimeoutError, ClientDisconnect):
            raise BodyAbandoned(408, "timeout", "the file did not arrive in time") from None
        size += len(part)
        if size > most:
            raise BodyAbandoned(413, "quota_exceeded", "there is no room for this file")
        yield part


def _numbers(given: _Hyperparameters, usual_rate: float) -> dict[str, float | int]:
    epochs = _whole("n_epochs", given.n_epochs, 3, 1000)
    batch = _whole("batch_size", given.batch_size, 4, 4096)
    rate = given.learning_rate
    multiplier = given.learning_rate_multiplier
    if rate in (None, "auto"):
        factor = 1.0 if multiplier in (None, "auto") else multiplier
        rate = factor * usual_rate if isinstance(factor, float | int) else factor
    if isinstance(rate, str) or rate is None or not (math.isfinite(rate) and 0 < rate <= 1):
        raise _Refused(
            400,
            f"learning_rate {rate!r} is not allowed; give a number above 0, up to 1",
            param="hyperparameters.learning_rate",
        )
    return {"n_epochs": epochs, "batch_size": batch, "learning_rate": rate}


def _whole(name: str, value: int | str, usual: int, most: int) -> int:
    if value == "auto":
        return usual
    if isinstance(value, str) or not 1 <= value <= most:
        raise _Refused(
            400,
            f"{name} {value!r} is not allowed; give 'auto' or a number from 1 to {most}",
            param=f"hyperparameters.{name}",
        )
    return value


def _files_of(job: Job) -> tuple[str | None, str | None]:
    return job.told["training_file"], job.told["validation_file"]


def _page(rows: list[dict[str, Any]], request: Request) -> Response:
    """Return a page of a list: `limit` rows after the row with the id `after`."""
    query = request.query_params
    limit = 20
    with suppress(ValueError):
        limit = min(_MOST_LISTED, max(1, int(query.get("limit", "20")[:6])))
    if after := query.get("after"):
        ids = [row["id"] for row in rows]
        rows = rows[ids.index(after) + 1 :] if after in ids else []
    shown = rows[:limit]
    return make_response(
        {
            "object": "list",
            "data": shown,
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
            "has_more": len(rows) > limit,
        }
    )
