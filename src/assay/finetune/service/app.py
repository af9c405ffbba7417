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
from assay.finetune.service.jobs import Job, JobStore, NoRoom, UploadedFile, UploadStore
from assay.finetune.service.worker import Worker

_FORM_OVERHEAD: Final = 64 << 10
_UPLOAD_PART: Final = 1 << 20
_MAX_LISTED: Final = 100
_MAX_UPLOADS: Final = 4
_IDLE_S: Final = 60.0


class _ErrorResponse(Exception):
    """An error response of the protocol."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param

    def make_response(self) -> Response:
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
        files: Uploaded files.
        jobs: Jobs.
        worker: Trains the jobs.
        bases: Default learning rate of each model that can be trained, by name.
        chat: Application for all other paths.
    """

    def __init__(
        self,
        files: UploadStore,
        jobs: JobStore,
        worker: Worker,
        bases: Mapping[str, float],
        chat: ASGIApp,
    ) -> None:
        self._files, self._jobs, self._worker, self._bases = files, jobs, worker, bases
        self._chat = chat
        self._uploads = asyncio.Semaphore(_MAX_UPLOADS)
        files_path, jobs_path = "/v1/files", "/v1/fine_tuning/jobs"
        routes = (
            ("POST", files_path, self._upload),
            ("GET", files_path, self._list_files),
            ("GET", f"{files_path}/{{id}}", self._get_file),
            ("DELETE", f"{files_path}/{{id}}", self._delete_file),
            ("GET", f"{files_path}/{{id}}/content", self._get_content),
            ("POST", jobs_path, self._create_job),
            ("GET", jobs_path, self._list_jobs),
            ("GET", f"{jobs_path}/{{id}}", self._get_job),
            ("POST", f"{jobs_path}/{{id}}/cancel", self._cancel_job),
            ("GET", f"{jobs_path}/{{id}}/events", self._list_events),
            ("GET", f"{jobs_path}/{{id}}/checkpoints", self._list_checkpoints),
            ("DELETE", "/v1/models/{name:path}", self._delete_model),
        )
        self._router = Router(
            [
                Route(path, _convert_errors(handler), methods=[verb])
                for verb, path, handler in routes
            ],
            default=self._respond_not_found,
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        path = scope.get("path", "")
        is_own_path = path.startswith(("/v1/files", "/v1/fine_tuning")) or (
            path.startswith("/v1/models/") and scope["method"] == "DELETE"
        )
        await (self._router if is_own_path else self._chat)(scope, receive, send)

    async def _respond_not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"Unknown request URL: {scope['method']} {scope['path']}"
        await _ErrorResponse(404, message, code="unknown_url").make_response()(
            scope, receive, send
        )

    # Files.

    async def _upload(self, request: Request) -> Response:
        async with self._uploads:
            return make_response((await self._store_upload(request)).as_response())

    async def _store_upload(self, request: Request) -> UploadedFile:
        limit = self._files.free_bytes + _FORM_OVERHEAD
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise NoRoom("not enough space for this file; delete files or models first")
        parser = MultiPartParser(
            request.headers, _read_bounded(request, limit), max_files=1, max_fields=8
        )
        if "multipart/form-data" not in request.headers.get("content-type", ""):
            raise _ErrorResponse(400, "send the file as multipart/form-data", param="file")
        try:
            form = await parser.parse()
        except (MultiPartException, KeyError, ValueError) as error:
            raise _ErrorResponse(400, f"the form is invalid: {error}") from None
        try:
            file = form.get("file")
            purpose = form.get("purpose") or request.query_params.get("purpose")
            if file is None or isinstance(file, str):
                raise _ErrorResponse(400, "'file' is a required property", param="file")
            if purpose != "fine-tune":
                raise _ErrorResponse(
                    400,
                    f"purpose {purpose!r} is not allowed; it must be 'fine-tune'",
                    param="purpose",
                )
            with self._files.add(file.filename or "file", purpose) as new_file:
                while part := await file.read(_UPLOAD_PART):
                    await asyncio.to_thread(new_file.write, part)
                if not new_file.size:
                    raise _ErrorResponse(400, "the file is empty", param="file")
            return new_file.file
        finally:
            await form.close()

    async def _list_files(self, request: Request) -> Response:
        return _make_page([file.as_response() for file in self._files.list_all()], request)

    async def _get_file(self, request: Request) -> Response:
        return make_response(self._find_file(request.path_params["id"]).as_response())

    async def _delete_file(self, request: Request) -> Response:
        file = self._find_file(request.path_params["id"])
        if any(
            file.id in _list_job_files(job) for job in self._jobs.list_all() if not job.ended
        ):
            raise _ErrorResponse(409, f"an unfinished job needs {file.id}")
        self._files.remove(file)
        return make_response({"id": file.id, "object": "file", "deleted": True})

    async def _get_content(self, request: Request) -> Response:
        file = self._find_file(request.path_params["id"])
        return FileResponse(self._files.get_path(file), media_type="application/octet-stream")

    def _find_file(self, name: str) -> UploadedFile:
        file = self._files.find(name)
        if file is None:
            raise _ErrorResponse(404, f"No such File object: {name[:100]}", param="id")
        return file

    # Jobs.

    async def _create_job(self, request: Request) -> Response:
        try:
            job_request = _JobRequest.model_validate_json(await read_body(request))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or None
            raise _ErrorResponse(
                400, f"{where or 'the body'}: {first['msg']}", param=where
            ) from None
        base = next((name for name in self._bases if name == job_request.model.lower()), None)
        if base is None:
            fine_tuned = self._jobs.find_models().get(job_request.model)
            raise _ErrorResponse(
                400,
                f"The model `{job_request.model[:100]}` "
                + (
                    "is fine-tuned already and cannot be fine-tuned again"
                    if fine_tuned
                    else "does not exist"
                )
                + f"; choose from: {', '.join(self._bases)}",
                code="model_not_available",
                param="model",
            )
        for name in ("training_file", "validation_file"):
            file = getattr(job_request, name)
            if file is not None and self._files.find(file) is None:
                raise _ErrorResponse(400, f"invalid {name}: {file[:100]}", param=name)
        if job_request.method is not None and job_request.method.type != "supervised":
            raise _ErrorResponse(
                400,
                f"method {job_request.method.type[:100]!r} is not allowed; it must be "
                "'supervised'",
                param="method",
            )
        if not self._files.free_bytes:
            raise NoRoom("no space left for another model; delete files or models first")
        hyperparameters = job_request.hyperparameters or (
            job_request.method
            and job_request.method.supervised
            and job_request.method.supervised.hyperparameters
        )
        numbers = _resolve_hyperparameters(
            hyperparameters or _Hyperparameters(), self._bases[base]
        )
        job = self._jobs.create(
            {
                "model": base,
                "training_file": job_request.training_file,
                "validation_file": job_request.validation_file,
                "hyperparameters": numbers,
                "method": {"type": "supervised", "supervised": {"hyperparameters": numbers}},
                "user_provided_suffix": job_request.suffix,
                "seed": 0 if job_request.seed is None else job_request.seed,
                "metadata": job_request.metadata,
            }
        )
        self._worker.wake()
        return make_response(job.fields)

    async def _list_jobs(self, request: Request) -> Response:
        return _make_page([job.fields for job in self._jobs.list_all()], request)

    async def _get_job(self, request: Request) -> Response:
        return make_response(self._find_job(request).fields)

    async def _cancel_job(self, request: Request) -> Response:
        job = self._find_job(request)
        if job.ended:
            raise _ErrorResponse(400, f"job {job.id} has ended already: {job.status}")
        await asyncio.to_thread(self._worker.cancel, job)
        return make_response(job.fields)

    async def _list_events(self, request: Request) -> Response:
        return _make_page(await asyncio.to_thread(self._find_job(request).list_events), request)

    async def _list_checkpoints(self, request: Request) -> Response:
        return _make_page(
            await asyncio.to_thread(self._find_job(request).list_checkpoints), request
        )

    def _find_job(self, request: Request) -> Job:
        name = request.path_params["id"]
        job = self._jobs.find(name)
        if job is None:
            raise _ErrorResponse(
                404, f"Could not find fine tune: {name[:100]}", code="not_found"
            )
        return job

    # Models.

    async def _delete_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        job = self._jobs.find_models().get(name)
        if job is None:
            message = f"The model '{name[:100]}' does not exist or cannot be deleted"
            raise _ErrorResponse(404, message, code="model_not_found", param="model")
        await asyncio.to_thread(self._jobs.remove_model, job)
        return make_response({"id": name, "object": "model", "deleted": True})


def _convert_errors(
    handler: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except _ErrorResponse as error:
            return error.make_response()
        except NoRoom as error:
            return _ErrorResponse(413, str(error), code="quota_exceeded").make_response()
        except RequestTooLarge as error:
            return _ErrorResponse(413, str(error), code="too_large").make_response()
        except BodyAbandoned as error:
            refusal = error.refusal
            return _ErrorResponse(
                refusal.status, str(error), code=refusal.body["code"]
            ).make_response()

    return handle


async def _read_bounded(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
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
        if size > limit:
            raise BodyAbandoned(413, "quota_exceeded", "not enough space for this file")
        yield part


def _resolve_hyperparameters(
    requested: _Hyperparameters, default_rate: float
) -> dict[str, float | int]:
    epochs = _resolve_integer("n_epochs", requested.n_epochs, 3, 1000)
    batch = _resolve_integer("batch_size", requested.batch_size, 4, 4096)
    rate = requested.learning_rate
    multiplier = requested.learning_rate_multiplier
    if rate in (None, "auto"):
        factor = 1.0 if multiplier in (None, "auto") else multiplier
        rate = factor * default_rate if isinstance(factor, float | int) else factor
    if isinstance(rate, str) or rate is None or not (math.isfinite(rate) and 0 < rate <= 1):
        raise _ErrorResponse(
            400,
            f"learning_rate {rate!r} is not allowed; give a number above 0, up to 1",
            param="hyperparameters.learning_rate",
        )
    return {"n_epochs": epochs, "batch_size": batch, "learning_rate": rate}


def _resolve_integer(name: str, value: int | str, default: int, limit: int) -> int:
    if value == "auto":
        return default
    if isinstance(value, str) or not 1 <= value <= limit:
        raise _ErrorResponse(
            400,
            f"{name} {value!r} is not allowed; give 'auto' or a number from 1 to {limit}",
            param=f"hyperparameters.{name}",
        )
    return value


def _list_job_files(job: Job) -> tuple[str | None, str | None]:
    return job.fields["training_file"], job.fields["validation_file"]


def _make_page(rows: list[dict[str, Any]], request: Request) -> Response:
    """Return a page of a list: `limit` rows after the row with the id `after`."""
    query = request.query_params
    limit = 20
    with suppress(ValueError):
        limit = min(_MAX_LISTED, max(1, int(query.get("limit", "20")[:6])))
    if after := query.get("after"):
        ids = [row["id"] for row in rows]
        rows = rows[ids.index(after) + 1 :] if after in ids else []
    page = rows[:limit]
    return make_response(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(rows) > limit,
        }
    )
