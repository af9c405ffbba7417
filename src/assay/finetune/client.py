"""Client of a fine-tuning service, on top of OpenAI's: files, jobs, events, models.

Temporary faults are retried; permanent ones become an error that suggests a remedy. If a
request for a job may have been received, the jobs of the service are searched before it is sent
again, because a duplicate job would cost as much as the first. The key is sent only to the
service.

Responses are not trusted: a field with the wrong type is dropped, and a response without an id
is an error.
"""

import hashlib
import io
import math
import random
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import urlsplit

from assay.core.http import is_loopback
from assay.core.secrets import Secret, mask, redact
from assay.core.text import cut, printable
from assay.errors import AssayError, ServiceError, UsageError
from assay.models.connections import certificates
from assay.models.faults import (
    CallRetries,
    Fault,
    FaultKind,
    classify_exception,
    classify_status,
)

if TYPE_CHECKING:
    from openai import OpenAI

SUCCEEDED: Final = "succeeded"
ENDED: Final = frozenset({SUCCEEDED, "failed", "cancelled"})
"""Final states of a job."""
METRICS: Final = (
    *("train_loss", "train_mean_token_accuracy", "valid_loss", "valid_mean_token_accuracy"),
    *("full_valid_loss", "full_valid_mean_token_accuracy", "learning_rate"),
)
"""Metrics of a training step, or of the end of training, as named in events."""
_MAX_TEXT: Final = 2000


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file stored by the service."""

    id: str
    bytes: int | None

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> "RemoteFile":
        """Parse a response of the service."""
        return cls(_require_id(value, "file"), _parse_count(value.get("bytes")))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteJob:
    """A job, as reported by its service."""

    id: str
    status: str
    """validating_files, queued, running, succeeded, failed, cancelled, or an unknown one."""
    model: str | None = None
    training_file: str | None = None
    suffix: str | None = None
    fine_tuned_model: str | None = None
    """Name of the new model; None until the job has succeeded."""
    error: str | None = None
    trained_tokens: int | None = None
    created_at: int | None = None
    """Seconds since 1970, by the service's clock."""
    finished_at: int | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.status in ENDED

    @property
    def succeeded(self) -> bool:
        """Whether the job has produced a model."""
        return self.status == SUCCEEDED

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> "RemoteJob":
        """Parse a response of the service."""
        method = value.get("method")
        inner = method.get("supervised") if isinstance(method, Mapping) else None
        hyperparameters = value.get("hyperparameters")
        if not hyperparameters and isinstance(inner, Mapping):
            hyperparameters = inner.get("hyperparameters")
        return cls(
            id=_require_id(value, "job"),
            status=_clean_text(value.get("status"), 40) or "unknown",
            model=_clean_text(value.get("model")),
            training_file=_clean_text(value.get("training_file")),
            suffix=_clean_text(value.get("user_provided_suffix") or value.get("suffix")),
            fine_tuned_model=_clean_text(value.get("fine_tuned_model")),
            error=_parse_error(value.get("error")),
            trained_tokens=_parse_count(value.get("trained_tokens")),
            created_at=_parse_count(value.get("created_at")),
            finished_at=_parse_count(value.get("finished_at")),
            hyperparameters=dict(hyperparameters)
            if isinstance(hyperparameters, Mapping)
            else {},
            metadata=_as_mapping(value.get("metadata")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """An event of a job."""

    id: str
    at: int | None
    """Seconds since 1970, by the service's clock."""
    level: str
    message: str
    step: int | None = None
    total_steps: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Finite metrics of the step, by the names in `METRICS`."""

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> "JobEvent":
        """Parse a response of the service."""
        data = _as_mapping(value.get("data"))
        numbers = {name: _parse_number(data.get(name)) for name in METRICS}
        return cls(
            id=_require_id(value, "event"),
            at=_parse_count(value.get("created_at")),
            level=_clean_text(value.get("level"), 20) or "info",
            message=_clean_text(value.get("message")) or "",
            step=_parse_count(data.get("step")),
            total_steps=_parse_count(data.get("total_steps")),
            metrics={name: number for name, number in numbers.items() if number is not None},
        )


def _require_id(value: Mapping[str, Any], kind: str) -> str:
    text = _clean_text(value.get("id"), 200)
    if text is None:
        raise ServiceError(f"the service returned a {kind} without an id")
    return text


def _clean_text(value: Any, longest: int = _MAX_TEXT) -> str | None:
    """Return text from a service as one printable line, with secrets masked."""
    return cut(printable(mask(value)), longest) if isinstance(value, str) and value else None


def _parse_error(value: Any) -> str | None:
    if isinstance(value, Mapping):
        parts = [_clean_text(value.get(name)) for name in ("message", "code")]
        return next((part for part in parts if part), None)
    return _clean_text(value)


def _as_mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _parse_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _parse_count(value: Any) -> int | None:
    number = _parse_number(value)
    return None if number is None or not 0 <= number < 2**53 else int(number)


_T = TypeVar("_T")
_OPENAI_HOST: Final = "api.openai.com"
_MAX_JOBS: Final = 1000
_MAX_EVENTS: Final = 20_000
_NOT_FOUND_STATUSES: Final = (404, 405, 501)
_NONCE_KEY: Final = "assay_request"
_UPLOAD_TIMEOUT: Final = 600.0
_HINTS: Final = {
    401: "check the key; 'assay doctor' shows which variable contains it",
    402: "the account has no credit left",
    403: "the key is not permitted to do this; check what its account and project allow",
    404: "check the id, the model and the address; 'assay finetune list' shows your jobs",
    413: "the file is too large for the service; use a part of it with --subset",
    429: "the account has no credit left; see the service's billing page",
    **dict.fromkeys(
        (301, 302, 303, 307, 308),
        "it redirects to another address; correct the address",
    ),
}


class FinetuneClient:
    """Client of one fine-tuning service.

    Args:
        address: URL of the service, ending with `/v1`.
        key: API key; None if the service needs none.
        timeout: Seconds for one attempt.
        retries: Retry policy of a request.
        on_fault: Called before a retry with the reason and the wait in seconds.
    """

    def __init__(
        self,
        address: str,
        *,
        key: Secret | None,
        timeout: float = 60.0,
        retries: CallRetries | None = None,
        on_fault: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self.address = address.rstrip("/")
        self._key = key
        self._timeout = timeout
        self._retries = retries or CallRetries()
        self._on_fault = on_fault
        self._jitter = random.Random()
        self._openai: OpenAI | None = None
        self._has_events = True

    def __repr__(self) -> str:
        return f"FinetuneClient({self.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._openai is not None:
            self._openai.close()
            self._openai = None

    def upload(
        self,
        path: Path,
        name: str,
        sha256: str,
        *,
        purpose_in_query: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> RemoteFile:
        """Upload a training file.

        Args:
            path: The file.
            name: Name of the file at the service.
            sha256: Expected hash of the bytes sent.
            purpose_in_query: Whether to send the purpose in the query string, too.
            progress: Called with the number of bytes sent and the total.

        Raises:
            UsageError: The hash differs: the file was changed during the upload.
            ServiceError: The service reports another size, or cannot be reached.
            ModelRejected: The service rejects the file.
        """
        total = path.stat().st_size
        query = {"purpose": "fine-tune"} if purpose_in_query else None

        def send(api: "OpenAI") -> RemoteFile:
            with _UploadStream(path, total, progress) as stream:
                response = api.files.create(
                    file=(name, stream, "application/jsonl"),
                    purpose="fine-tune",
                    extra_query=query,
                    timeout=max(self._timeout, _UPLOAD_TIMEOUT),
                )
                sent = stream.sha256
            if sent != sha256:
                raise UsageError(
                    f"{str(path)!r} changed during the upload and is not used for training;"
                    " repeat the command when the file is no longer written to"
                )
            return RemoteFile.parse(response.to_dict())

        file = self._call(f"the upload of {name}", send)
        if file.bytes is not None and file.bytes != total:
            raise ServiceError(
                f"{self.address} reports {file.bytes:,} bytes for {name}, but {total:,} were "
                f"sent; repeat the command to send it again"
            )
        return file

    def has_file(self, file_id: str) -> bool:
        """Return whether the service still has a file."""
        file = self._call_optional(f"file {file_id}", lambda api: api.files.retrieve(file_id))
        return file is not None

    def create_job(
        self, request: Mapping[str, Any], *, existing: Collection[str] = ()
    ) -> RemoteJob:
        """Create a job; `existing` are ids of earlier jobs that are not this one.

        Raises:
            ServiceError: The service cannot be reached.
            ModelRejected: The service rejects the job, for example for an unknown model.
        """
        nonce = secrets.token_hex(8)
        body = {**request, "metadata": {**request.get("metadata", {}), _NONCE_KEY: nonce}}

        def post(api: "OpenAI") -> RemoteJob:
            created = api.fine_tuning.jobs.create(
                model=body["model"],
                training_file=body["training_file"],
                extra_body={
                    key: value for key, value in body.items() if key not in _CREATE_ARGUMENTS
                },
            )
            return RemoteJob.parse(created.to_dict())

        def find_created() -> RemoteJob | None:
            jobs = [
                job
                for job in self.list_jobs()
                if job.id not in existing and _is_requested_job(job, body)
            ]
            if len(jobs) > 1:
                raise ServiceError(
                    f"{self.address} has several jobs that may be the requested one:"
                    f" {', '.join(job.id for job in jobs)}; follow one with 'assay finetune "
                    "wait JOB', and cancel others with 'assay finetune cancel JOB'"
                )
            return jobs[0] if jobs else None

        return self._call("the request for a job", post, find_created=find_created)

    def get_job(self, job_id: str) -> RemoteJob:
        """Return the current state of a job."""
        what = f"job {job_id}"
        return self._call(
            what, lambda api: RemoteJob.parse(api.fine_tuning.jobs.retrieve(job_id).to_dict())
        )

    def cancel_job(self, job_id: str) -> RemoteJob:
        """Cancel a job."""
        what = f"the end of job {job_id}"
        return self._call(
            what, lambda api: RemoteJob.parse(api.fine_tuning.jobs.cancel(job_id).to_dict())
        )

    def list_jobs(self) -> list[RemoteJob]:
        """Return the jobs of the account, the newest first."""
        return self._call(
            "the list of jobs",
            lambda api: [
                RemoteJob.parse(job.to_dict())
                for job in islice(api.fine_tuning.jobs.list(limit=100), _MAX_JOBS)
            ],
        )

    def list_events(self, job_id: str, seen: Collection[str] = ()) -> list[JobEvent]:
        """Return the events of a job that are not in `seen`, the oldest first.

        The list is empty if the service has no events endpoint.
        """
        if not self._has_events:
            return []
        new_events = self._call_optional(
            f"events of {job_id}", lambda api: [*_iterate_new_events(api, job_id, seen)]
        )
        if new_events is None:
            self._has_events = False
        return new_events[::-1] if new_events else []

    def list_models(self) -> list[str] | None:
        """Return the names of the service's models; None if it does not list them."""
        listed = self._call_optional("the list of models", lambda api: [*api.models.list()])
        return None if listed is None else [model.id for model in listed if model.id]

    def check_health(self) -> dict[str, Any]:
        """Return the response of `/health`, or the number of models that the service lists.

        Raises:
            ServiceError: The service cannot be reached.
            ModelRejected: The service rejects the key.
        """
        root = self.address.removesuffix("/v1")
        if urlsplit(self.address).hostname != _OPENAI_HOST:
            response = self._call_optional(
                "its health", lambda api: api.get(f"{root}/health", cast_to=object)
            )
            if isinstance(response, Mapping):
                return {str(key): value for key, value in response.items()}
        names = self.list_models()
        if names is None:
            raise ServiceError(
                f"{self.address} responds but has neither /health nor /models, so it is not a"
                " fine-tuning service"
            )
        return {"models": len(names)}

    def _call_optional(self, what: str, request: "Callable[[OpenAI], _T]") -> _T | None:
        """Call the service; return None if it does not have the resource or the endpoint."""
        from openai import APIStatusError

        def request_if_found(api: "OpenAI") -> _T | None:
            try:
                return request(api)
            except APIStatusError as error:
                if error.status_code in _NOT_FOUND_STATUSES:
                    return None
                raise

        return self._call(what, request_if_found)

    def _call(
        self,
        what: str,
        request: "Callable[[OpenAI], _T]",
        *,
        find_created: Callable[[], _T | None] | None = None,
    ) -> _T:
        from openai import OpenAIError

        attempt, waited = 0, 0.0
        while True:
            try:
                return request(self._get_openai())
            except OpenAIError as error:
                fault = self._classify_error(what, error)
            except (OSError, ValueError) as error:
                if isinstance(error, AssayError):
                    raise
                fault = classify_exception(error, f"{self.address} ({what})", self._timeout)
            wait = self._retries.wait(attempt, self._jitter)
            attempt, waited = attempt + 1, waited + wait
            if fault.kind is FaultKind.TIMEOUT:
                waited += self._timeout
            if waited > self._retries.patience:
                raise ServiceError(
                    f"{what} failed {attempt} times; the last error was: {fault.message};"
                    " check the service with 'assay finetune health'"
                )
            wait = max(wait, fault.retry_after or 0.0)
            self._on_fault(fault.message, wait)
            time.sleep(wait)
            if (
                fault.billed
                and find_created is not None
                and (created := find_created()) is not None
            ):
                return created

    def _classify_error(self, what: str, error: Exception) -> Fault:
        """Return a fault that can be retried; raise the error if retrying is useless."""
        from openai import APIResponseValidationError, APIStatusError

        source = f"{self.address} ({what})"
        if isinstance(error, APIResponseValidationError):
            return Fault(
                FaultKind.MALFORMED, f"{source} sent a response that is not valid JSON", True
            )
        if not isinstance(error, APIStatusError):
            return classify_exception(error, source, self._timeout)
        outcome = classify_status(
            error.status_code,
            error.response.headers,
            error.response.content,
            who=source,
            clean=self._redact,
            hints=_HINTS,
        )
        if isinstance(outcome, Fault):
            return outcome
        raise outcome from None

    def _redact(self, text: str) -> str:
        return mask(redact(text, (None if self._key is None else self._key.reveal(),)))

    def _get_openai(self) -> "OpenAI":
        if self._openai is None:
            from openai import DefaultHttpxClient, Omit, OpenAI

            host = urlsplit(self.address).hostname or ""
            headers: dict[str, Any] = {}
            if host != _OPENAI_HOST:
                # OpenAI's client reads these from the environment. They are for OpenAI only.
                headers = {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
            self._openai = OpenAI(
                # Always set, because the default is OpenAI's key from the environment.
                api_key=self._key.reveal() if self._key is not None else "none",
                admin_api_key="none",
                base_url=self.address,
                max_retries=0,
                timeout=self._timeout,
                default_headers=headers,
                # A redirect would send the data to another host. Loopback needs no proxy.
                http_client=DefaultHttpxClient(
                    follow_redirects=False,
                    trust_env=not is_loopback(host),
                    verify=certificates(),
                    event_hooks={"request": [] if self._key is not None else [_remove_key]},
                ),
            )
        return self._openai


_CREATE_ARGUMENTS: Final = ("model", "training_file")


def _remove_key(request: Any) -> None:
    request.headers.pop("authorization", None)


def _is_requested_job(job: RemoteJob, body: Mapping[str, Any]) -> bool:
    """Return whether this is the requested job, by its nonce or, without one, by its fields."""
    if _NONCE_KEY in job.metadata:
        return bool(job.metadata[_NONCE_KEY] == body["metadata"][_NONCE_KEY])
    return (
        job.training_file == body["training_file"]
        and job.suffix in (None, body.get("suffix"))
        and job.model is not None
        and job.model.casefold().startswith(str(body["model"]).casefold())
    )


def _iterate_new_events(
    api: "OpenAI", job_id: str, seen: Collection[str]
) -> Iterator[JobEvent]:
    """Yield events that are not in `seen`, the newest first, as the service lists them."""
    pages = api.fine_tuning.jobs.list_events(job_id, limit=100)
    for event in islice(pages, _MAX_EVENTS):
        new_event = JobEvent.parse(event.to_dict())
        if new_event.id in seen:
            return
        yield new_event


class _UploadStream(io.BufferedReader):
    """A file during its upload: reports progress and hashes the bytes that were read."""

    def __init__(self, path: Path, total: int, progress: Callable[[int, int], None]) -> None:
        super().__init__(io.FileIO(path))
        self._total, self._progress = total, progress
        self._done = 0
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def read(self, size: int | None = -1, /) -> bytes:
        part = super().read(size)
        self._hash.update(part)
        self._done += len(part)
        self._progress(self._done, self._total)
        return part

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if (offset, whence) == (0, 0):
            # An upload starts again from the beginning.
            self._done, self._hash = 0, hashlib.sha256()
        return super().seek(offset, whence)
