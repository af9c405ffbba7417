"""A scripted fine-tuning service on loopback, over real HTTP.

Each request for a job advances its script by one step: no test waits for a clock.
Everything but its address is in `Service`, so that tests that need only the address can run
against any other service.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from hashlib import sha256
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.core.hosting import make_server, open_listener, serve_in_thread

MODELS = (
    *("gpt-4o-mini", "gpt-4.1-mini", "local/tiny", "local/smollm2-135m"),
    *(f"Qwen/Qwen2.5-{size}-Instruct" for size in ("0.5B", "7B", "14B", "32B")),
)
QUICK = ("running", "succeeded")
CREATED = 1_760_000_000


@dataclass
class Fault:
    """A fault that replaces the response to a request."""

    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "not now"
    code: str | None = None
    cut: bool = False
    """The connection is lost before the request takes effect."""
    after: bool = False
    """The connection is lost, after all was done."""
    late: float = 0.0


@dataclass
class Job:
    about: dict[str, Any]
    script: deque[str]
    events: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0


@dataclass
class Service:
    """The requests a service received, and its script."""

    key: str | None = None
    """The required key; None accepts any key or none."""
    script: Sequence[str] = QUICK
    """The states of a job, one per status request."""
    error: str = "the training data has too few examples"
    steps_per_poll: int = 20
    total_steps: int = 20
    with_validation: bool = True
    has_events: bool = True
    keeps_metadata: bool = True
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    """By method and the end of the path, such as 'POST files'."""
    files: dict[str, bytes] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    root: str = ""
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def count(self, method: str, path: str) -> int:
        return sum(request == (method, path) for request in self.requests)

    @property
    def app(self) -> Starlette:
        v1 = "/v1"
        routes = [
            Route("/health", self._route(self.health)),
            Route(f"{v1}/models", self._route(self.models)),
            Route(f"{v1}/files", self._route(self.upload), methods=["POST"]),
            Route(f"{v1}/files/{{id}}", self._route(self.file)),
            Route(f"{v1}/fine_tuning/jobs", self._route(self.create), methods=["POST"]),
            Route(f"{v1}/fine_tuning/jobs", self._route(self.list)),
            Route(f"{v1}/fine_tuning/jobs/{{id}}", self._route(self.job)),
            Route(
                f"{v1}/fine_tuning/jobs/{{id}}/cancel",
                self._route(self.cancel),
                methods=["POST"],
            ),
            Route(f"{v1}/fine_tuning/jobs/{{id}}/events", self._route(self.events)),
            Route(f"{v1}/chat/completions", self._route(self.chat), methods=["POST"]),
        ]
        return Starlette(routes=routes)

    def _route(self, answer: Any) -> Any:
        async def routed(call: Request) -> Response:
            path = call.url.path.removeprefix("/v1/").removeprefix("/")
            self.requests.append((call.method, path))
            self.headers.append(call.headers)
            self.queries.append(dict(call.query_params))
            end = "jobs" if path.endswith("jobs") else path
            waiting = self.faults.get(f"{call.method} {end}") or self.faults.get("*")
            fault = waiting.popleft() if waiting else None
            if fault is not None and not fault.after:
                await asyncio.sleep(fault.late)
                return lost(call) if fault.cut else problem(fault)
            if self.key is not None and call.headers.get("authorization") != (
                f"Bearer {self.key}"
            ):
                given = call.headers.get("authorization", "none")
                return problem(Fault(401, message=f"Incorrect API key provided: {given}"))
            done: Response = await answer(call)
            return lost(call) if fault is not None else done

        return routed

    async def health(self, call: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(self, call: Request) -> Response:
        tuned = [job.about["fine_tuned_model"] for job in self.jobs.values()]
        names = [*MODELS, *(name for name in tuned if name)]
        return JSONResponse(
            {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}
        )

    async def upload(self, call: Request) -> Response:
        head = f"Content-Type: {call.headers['content-type']}\r\n\r\n".encode()
        message = BytesParser().parsebytes(head + await call.body())
        parts = {
            str(part.get_param("name", header="content-disposition")): part
            for part in message.walk()
            if not part.is_multipart()
        }
        purpose = parts["purpose"].get_payload() if "purpose" in parts else None
        if "fine-tune" not in (purpose, call.query_params.get("purpose")):
            return problem(Fault(400, message="purpose must be fine-tune"))
        content = parts["file"].get_payload(decode=True)
        assert isinstance(content, bytes)
        name = f"file-{next(self._ids)}"
        self.files[name] = content
        self.names[name] = parts["file"].get_filename() or ""
        return JSONResponse(self._file(name))

    async def file(self, call: Request) -> Response:
        name = call.path_params["id"]
        if name not in self.files:
            return problem(Fault(404, message=f"No such File object: {name}"))
        return JSONResponse(self._file(name))

    def _file(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "file",
            "bytes": len(self.files[name]),
            "filename": self.names[name],
            "purpose": "fine-tune",
            "status": "processed",
            "created_at": CREATED,
        }

    async def create(self, call: Request) -> Response:
        body = await call.json()
        self.bodies.append(body)
        if body["model"] not in MODELS:
            message = f"The model `{body['model']}` does not exist or cannot be fine-tuned."
            return problem(Fault(400, message=message, code="model_not_available"))
        for name in ("training_file", "validation_file"):
            if body.get(name) is not None and body[name] not in self.files:
                return problem(Fault(400, message=f"invalid {name}: {body[name]}"))
        number = next(self._ids)
        job = Job(
            {
                "id": f"ftjob-{number}{sha256(str(body).encode()).hexdigest()[:6]}",
                "object": "fine_tuning.job",
                "created_at": CREATED + number,
                "finished_at": None,
                "model": body["model"],
                "fine_tuned_model": None,
                "organization_id": "org-test123",
                "status": "validating_files",
                "training_file": body["training_file"],
                "validation_file": body.get("validation_file"),
                "user_provided_suffix": body.get("suffix"),
                "hyperparameters": body.get("hyperparameters")
                or body.get("method", {}).get("supervised", {}).get("hyperparameters", {}),
                "seed": body.get("seed", 0),
                "trained_tokens": None,
                "result_files": [],
                "error": None,
                "metadata": body.get("metadata") if self.keeps_metadata else None,
            },
            deque(self.script),
        )
        self.jobs[job.about["id"]] = job
        self._say(job, "Created fine-tuning job")
        return JSONResponse(job.about)

    async def list(self, call: Request) -> Response:
        newest = [job.about for job in self.jobs.values()][::-1]
        return page(newest, call)

    async def job(self, call: Request) -> Response:
        job = self.jobs.get(call.path_params["id"])
        if job is None:
            return self._no_job(call)
        if job.script:
            self._move(job, job.script.popleft())
        return JSONResponse(job.about)

    def _no_job(self, call: Request) -> Response:
        return problem(
            Fault(404, message=f"Could not find fine tune: {call.path_params['id']}")
        )

    def _move(self, job: Job, status: str) -> None:
        about = job.about
        if status != about["status"]:
            self._say(job, f"The job is {status}")
        about["status"] = status
        if status == "running":
            for _ in range(min(self.steps_per_poll, self.total_steps - job.steps)):
                self._step(job)
        if status == "succeeded":
            base = about["model"].rpartition("/")[2].lower().replace(".", "-")
            suffix = about["user_provided_suffix"] or ""
            about["fine_tuned_model"] = f"ft:{base}:org-test123:{suffix}:{about['id'][6:]}"
            about["trained_tokens"] = 1234 * about["hyperparameters"].get("n_epochs", 1)
            about["finished_at"] = about["created_at"] + 600
        if status == "failed":
            about["error"] = {"code": "invalid", "message": self.error, "param": None}
            about["finished_at"] = about["created_at"] + 60

    def _step(self, job: Job) -> None:
        job.steps += 1
        data: dict[str, Any] = {
            "step": job.steps,
            "total_steps": self.total_steps,
            "train_loss": 2.0 / job.steps,
            "train_mean_token_accuracy": 1 - 0.5 / job.steps,
        }
        if self.with_validation and job.about["validation_file"]:
            data["valid_loss"] = 2.2 / job.steps
        self._say(job, f"Step {job.steps}: training loss={data['train_loss']:.2f}", data)

    def _say(self, job: Job, message: str, data: dict[str, Any] | None = None) -> None:
        number = len(job.events)
        job.events.append(
            {
                "id": f"ftevent-{job.about['id'][6:]}-{number}",
                "object": "fine_tuning.job.event",
                "created_at": job.about["created_at"] + number,
                "level": "info",
                "type": "message" if data is None else "metrics",
                "message": message,
                "data": data,
            }
        )

    async def cancel(self, call: Request) -> Response:
        job = self.jobs.get(call.path_params["id"])
        if job is None:
            return self._no_job(call)
        if job.about["status"] in ("succeeded", "failed", "cancelled"):
            message = f"Job is in state {job.about['status']} and cannot be cancelled"
            return problem(Fault(400, message=message))
        job.script.clear()
        self._move(job, "cancelled")
        return JSONResponse(job.about)

    async def events(self, call: Request) -> Response:
        job = self.jobs.get(call.path_params["id"])
        if job is None or not self.has_events:
            return self._no_job(call)
        return page(job.events[::-1], call)

    async def chat(self, call: Request) -> Response:
        body = await call.json()
        self.bodies.append(body)
        tuned = {job.about["fine_tuned_model"] for job in self.jobs.values()}
        if body["model"] not in {*MODELS, *tuned}:
            return problem(Fault(404, message=f"The model `{body['model']}` does not exist"))
        message: dict[str, Any] = {"role": "assistant", "content": "ok"}
        if body.get("tools"):
            name = body["tools"][0]["function"]["name"]
            call_ = {"name": name, "arguments": '{"actions": ["noop"]}'}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": call_}]
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
        return JSONResponse({"id": "c", "choices": [choice], "usage": usage})


def page(items: Sequence[dict[str, Any]], call: Request) -> Response:
    limit, after = int(call.query_params.get("limit", 20)), call.query_params.get("after")
    start = next((at + 1 for at, item in enumerate(items) if item["id"] == after), 0)
    some = items[start : start + limit]
    more = start + limit < len(items)
    return JSONResponse({"object": "list", "data": some, "has_more": more})


def problem(fault: Fault) -> Response:
    error = {"message": fault.message, "type": "invalid_request_error", "code": fault.code}
    return JSONResponse({"error": error}, fault.status, dict(fault.headers))


def lost(call: Request) -> Response:
    """A response that never arrives, on a closed connection."""
    call.receive.__self__.transport.abort()  # type: ignore[attr-defined]
    return StreamingResponse(_nothing(), 200)


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


class Stage:
    """A server for many tests; each test installs its own service."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.play(Service())

    def play(self, service: Service) -> Service:
        service.root = self.root
        self._app = service.app
        return service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


@contextmanager
def stage() -> Iterator[Stage]:
    """Run a server in a thread."""
    with open_listener("127.0.0.1", 0) as socket:
        made = Stage(f"http://127.0.0.1:{socket.getsockname()[1]}")
        with serve_in_thread(make_server(made), socket):
            yield made
