"""Planning and starting fine-tuning jobs, and helpers shared by the fine-tuning commands.

Planning calls no service and uploads nothing. A started job is stored as soon as its service
has assigned it an id.
"""

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.core.options import takes_options
from assay.errors import ModelRejected, StoreError, UsageError
from assay.finetune.options import JobServiceOptions, PaidServiceOptions, TuningOptions
from assay.models.local_service import check_local
from assay.store.opening import Where, store_at

if TYPE_CHECKING:
    from assay.core.secrets import Secret
    from assay.finetune.backends import Backend, TunableModel
    from assay.finetune.client import FinetuneClient, JobEvent, RemoteJob
    from assay.finetune.datasets.validate import ValidationReport
    from assay.finetune.plan import PlannedJob
    from assay.store.finetune_jobs import FinetuneEvent, FinetuneJob
    from assay.store.store import Store

_ALLOWED_FORMATS = ("openai", "messages")
PROBE_PATIENCE_S = 2.0
"""Retry time in seconds for a service that is only probed."""
Progress = Callable[[int, int], None]
"""Called with the amount done and the total."""
MessageCallback = Callable[[str], None]
"""Called with a message about a retry."""


class ServiceAccess(NamedTuple):
    """Address and key of a backend, and messages about those that are missing."""

    address: str | None
    key: "Secret | None"
    missing: tuple[str, ...]


def choose_backend(name: str | None, model: str | None) -> "Backend":
    """Return the backend with this name, or the one that trains the model if `name` is None."""
    from assay.finetune.backends import find_backend, find_backend_for_model

    if name is not None:
        return find_backend(name)
    return find_backend_for_model(model or "")


def find_model(backend: "Backend", name: str, *, allow_unlisted: bool) -> "TunableModel":
    """Return a model by name; `allow_unlisted` accepts names that the backend does not list."""
    from assay.finetune.backends import TunableModel

    model = backend.find_model(name)
    if model is None and not allow_unlisted:
        raise backend.make_unknown_model_error(name)
    return model or TunableModel(name=name, price=0.0 if backend.loopback else None)


def locate_service(backend: "Backend", base_url: str | None) -> ServiceAccess:
    """Find the address and the key of a backend."""
    from urllib.parse import urlsplit

    from assay.core.http import is_loopback
    from assay.models.registry import find_base_url, find_key, is_address
    from assay.models.registry_file import load_registry

    provider = load_registry().providers[backend.name]
    missing = []
    address: str | None = None
    key = None
    if base_url is not None:
        if not is_address(base_url):
            raise UsageError(
                "--base-url must be a URL such as http://127.0.0.1:8904/v1, without a user "
                "name, a password or a query"
            )
        address = base_url.rstrip("/")
        if provider.path and not address.endswith(provider.path):
            address += provider.path
    else:
        try:
            address = find_base_url(provider)
        except ModelRejected as error:
            missing.append(str(error))
    host = urlsplit(address or "").hostname or ""
    if backend.loopback and address is not None and not is_loopback(host):
        raise UsageError(
            f"backend {backend.name!r} runs on this machine, but {host!r} is another one; give "
            "an address such as http://127.0.0.1:8904/v1, or another --backend"
        )
    try:
        key = find_key(provider)
    except ModelRejected as error:
        missing.append(str(error))
    return ServiceAccess(address, key, tuple(missing))


def list_encryption_warnings(address: str | None) -> list[str]:
    """Return a warning if the connection to an address is not encrypted."""
    from urllib.parse import urlsplit

    from assay.core.http import is_loopback

    parts = urlsplit(address or "")
    if parts.scheme != "http" or is_loopback(parts.hostname or ""):
        return []
    return [f"{address} is not encrypted: others on the network can read the data and the key"]


def make_client(
    address: str, key: "Secret | None", on_trouble: MessageCallback, retries: Any = None
) -> "FinetuneClient":
    """Create a client for the service at an address; start the local service if necessary."""
    from assay.finetune.client import FinetuneClient
    from assay.models.local_service import ensure_local

    ensure_local(address, on_trouble)
    return FinetuneClient(
        address,
        key=key,
        retries=retries,
        on_fault=lambda reason, wait: on_trouble(f"{reason}; retrying in {wait:.1f} s"),
    )


def find_stored_job(store: "Store", name: str, service: JobServiceOptions) -> "FinetuneJob":
    """Find a job in the database. If it is not there, load it from its service and store it."""
    from assay.store.finetune_jobs import FinetuneJob, add_job, find_job

    if service.backend is None or store.path.exists():
        try:
            with store.reading() as connection:
                return find_job(connection, name)
        except UsageError:
            if service.backend is None:
                raise
    backend = choose_backend(service.backend, None)
    access = locate_service(backend, service.base_url)
    if access.address is None or access.missing:
        raise ModelRejected("; ".join(access.missing))
    with make_client(access.address, access.key, lambda message: None) as client:
        remote = client.get_job(name)
    row = FinetuneJob(
        id=remote.id,
        address=access.address,
        backend=backend.name,
        model=remote.model or "unknown",
        suffix=remote.suffix,
        status=remote.status,
        created_at=get_created_at(remote),
        hyperparameters=remote.hyperparameters,
    )
    with store.writing() as connection:
        return add_job(connection, update_from_remote(row, remote))


def find_job_key(job: "FinetuneJob") -> "Secret | None":
    """Return the key for the service that runs a job."""
    return _require_key(locate_service(choose_backend(job.backend, None), job.address))


def _require_key(access: ServiceAccess) -> "Secret | None":
    if access.missing:
        raise ModelRejected("; ".join(access.missing))
    return access.key


def load_events(store: "Store", job: "FinetuneJob") -> "list[FinetuneEvent]":
    """Return the stored events of a job."""
    from assay.store.finetune_jobs import job_events

    with store.reading() as connection:
        return job_events(connection, job)


def convert_event(event: "JobEvent") -> "FinetuneEvent":
    """Convert an event from a service to the stored form."""
    from assay.store.finetune_jobs import FinetuneEvent

    return FinetuneEvent(
        id=event.id,
        created_at=_convert_time(event.at),
        level=event.level,
        message=event.message,
        step=event.step,
        total_steps=event.total_steps,
        metrics=event.metrics,
    )


def update_from_remote(job: "FinetuneJob", remote: "RemoteJob") -> "FinetuneJob":
    """Update a stored job with the state that its service reports."""
    return replace(
        job,
        status=remote.status,
        result_model=remote.fine_tuned_model or job.result_model,
        error=remote.error,
        trained_tokens=remote.trained_tokens or job.trained_tokens,
        finished_at=_convert_time(remote.finished_at) or job.finished_at,
    )


def get_created_at(remote: "RemoteJob") -> datetime:
    """Return the creation time of a job by the service's clock, or by ours if unknown."""
    return _convert_time(remote.created_at) or datetime.now(UTC).replace(tzinfo=None)


def _convert_time(seconds: int | None) -> datetime | None:
    if not seconds or seconds > 253_402_300_799:
        return None
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def validate_data(path: Path, backend: "Backend", progress: Progress) -> "ValidationReport":
    """Validate a data file for a service and return the report.

    Raises:
        UsageError: The file has errors, a format that services do not read, or is too large.
    """
    from assay.finetune.datasets.validate import validate_file

    report = validate_file(path, progress=progress)
    unsupported = [form for form in report.forms if form not in _ALLOWED_FORMATS]
    if path.suffix == ".parquet" or unsupported:
        form = "Parquet" if path.suffix == ".parquet" else unsupported[0]
        raise UsageError(
            f"{str(path)!r} has the format {form!r}, which services do not read; write another "
            "one with 'assay sft filter --format openai'"
        )
    if not report.ok:
        finding = next(finding for finding in report.findings if finding.is_error)
        line, description = finding.first[0] if finding.first else (0, "")
        where = f"line {line}: " if line else ""
        raise UsageError(
            f"{str(path)!r} cannot be used for training: {finding.kind} ({where}{description});"
            f" 'assay sft validate {path}' lists all problems"
        )
    if (size := path.stat().st_size) > backend.max_bytes:
        raise UsageError(
            f"{str(path)!r} has {size:,} bytes; the limit of backend {backend.name!r} is"
            f" {backend.max_bytes:,}; use a part of it with --subset"
        )
    return report


def list_model_warnings(models: "Sequence[TunableModel]") -> list[str]:
    """Return warnings about base models that will be retired.

    Raises:
        ModelRejected: A model has been retired.
    """
    from assay.models.registry_file import load_registry

    entries = load_registry().entries
    warnings = []
    for model in models:
        entry = entries.get(model.name)
        if entry is not None:
            entry.check_callable()
        if entry is not None and entry.retired is not None:
            warnings.append(
                f"{model.name} retires on {entry.retired}, and so do models fine-tuned from it"
            )
    return warnings


def list_length_warnings(
    report: "ValidationReport", models: "Sequence[TunableModel]"
) -> list[str]:
    """Return warnings about rows that are longer than a model's context."""
    if report.lengths is None:
        return []
    return [
        f"the longest row has about {report.lengths.longest:,} tokens; the limit of "
        f"{model.name} is {model.context:,}: the service may truncate or reject it"
        for model in models
        if model.context is not None and report.lengths.longest > model.context
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetunePlan:
    """The jobs of a command, validated; nothing is uploaded yet."""

    data: Path
    report: "ValidationReport"
    validation: Path | None
    backend: "Backend"
    address: str | None
    """Address for the upload; None if it is not configured yet."""
    jobs: "tuple[PlannedJob, ...]"
    price: float | None
    """Dollars per million trained tokens, as given by the user."""
    speeds: Mapping[str, float]
    """Seconds per trained token in earlier jobs, by model."""
    warnings: tuple[str, ...]
    missing: tuple[str, ...]
    """Messages about settings that are needed to start the jobs."""

    @property
    def cost(self) -> float | None:
        """Estimated cost of all jobs in dollars; None if a price is unknown."""
        costs = [job.estimate_cost(self.price) for job in self.jobs]
        return None if None in costs else sum(cost or 0.0 for cost in costs)

    def seconds(self, job: "PlannedJob") -> float | None:
        """Estimate the duration of a job; None if its speed is unknown."""
        return job.estimate_seconds(self.speeds.get(job.model.name))


@takes_options
def finetune_plan(
    data: Path | str,
    *,
    tuning: TuningOptions,
    service: PaidServiceOptions,
    database: Where = None,
    progress: Progress = lambda done, total: None,
) -> FinetunePlan:
    """Check the data and all values, and estimate tokens, cost and time; calls no service.

    Several values of `model`, `subset`, `epochs`, `batch_size` or `learning_rate` give one job
    each.

    Args:
        data: JSON Lines, as `sft_filter` writes them.
        tuning: Models and hyperparameters; `validation=False` means `no_validation=True`.
        service: Service that trains.
        database: Database whose earlier jobs are used to estimate the time.
        progress: Called with the number of rows checked.

    Raises:
        UsageError: The data cannot be trained on, or a value is not allowed.
    """
    from assay.finetune.plan import plan_jobs

    path = Path(data)
    if not tuning.models:
        raise UsageError("--model is missing; name the model to fine-tune")
    backend = choose_backend(service.backend, tuning.models[0])
    access = locate_service(backend, service.base_url)
    allow_unlisted = service.base_url is not None
    models = [
        find_model(backend, name, allow_unlisted=allow_unlisted) for name in tuning.models
    ]
    report = validate_data(path, backend, progress)
    validation = _find_validation_file(
        path, False if tuning.no_validation else tuning.validation
    )
    warnings = [
        *list_encryption_warnings(access.address),
        *list_model_warnings(models),
        *list_length_warnings(report, models),
    ]
    if validation is not None:
        validate_data(validation, backend, progress)
    if report.lengths is None:
        raise UsageError(f"{str(path)!r} has no rows; create some with 'assay sft filter'")
    tokens = report.lengths.total
    jobs = plan_jobs(backend, models, tuning, rows=report.rows, tokens=tokens)
    return FinetunePlan(
        data=path,
        report=report,
        validation=validation,
        backend=backend,
        address=access.address,
        jobs=jobs,
        price=service.price,
        speeds=load_speeds(database, access.address, models),
        warnings=tuple(warnings),
        missing=access.missing,
    )


def finetune_start(
    plan: FinetunePlan,
    *,
    database: Where = None,
    command: str = "",
    on_upload: Callable[[str], Progress] = lambda name: lambda done, total: None,
    on_trouble: MessageCallback = lambda message: None,
) -> "list[FinetuneJob]":
    """Upload the data and create the jobs of a plan; each job is stored once it is created.

    A file that was uploaded earlier, according to the database, is not sent again if the
    service still has it.

    Args:
        plan: A plan from `finetune_plan`.
        database: The database.
        command: The user's command, stored with the jobs.
        on_upload: Called with the name of a file; returns the callback for its progress.
        on_trouble: Called with a message before a retry.

    Raises:
        ModelRejected: A key or an address is missing, or the service rejects a request.
        ServiceError: The service cannot be reached.
    """
    from assay.core.provenance import collect_provenance
    from assay.finetune.datasets.manifest import read_lineage
    from assay.store.finetune_jobs import FinetuneJob, add_job, list_jobs

    if plan.address is None or plan.missing:
        raise ModelRejected("; ".join(plan.missing))
    store = store_at(database)
    lineage = read_lineage(plan.data) or {}
    stored_jobs: list[FinetuneJob] = []
    with ExitStack() as stack:
        key = locate_service(plan.backend, plan.address).key
        client = stack.enter_context(make_client(plan.address, key, on_trouble))
        if plan.backend.loopback:
            check_local(plan.address)
        _check_models(client, plan)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="assay-")))
        uploads = _Uploads(client, store, plan.backend, on_upload)
        validation = None if plan.validation is None else uploads.send(plan.validation)
        for job in plan.jobs:
            training = uploads.send(_write_subset_file(plan.data, job, folder))
            with store.writing() as connection:
                known = {job.id for job in list_jobs(connection)}
            request = job.request(training.id, None if validation is None else validation.id)
            remote = client.create_job(request, existing=known)
            row = FinetuneJob(
                id=remote.id,
                address=plan.address,
                backend=plan.backend.name,
                model=job.model.name,
                suffix=job.suffix,
                status=remote.status,
                created_at=get_created_at(remote),
                data=str(plan.data),
                data_sha256=training.sha256,
                rows=job.rows,
                subset_of=None if job.subset is None else plan.report.rows,
                tokens=job.tokens,
                validation=None if plan.validation is None else str(plan.validation),
                validation_sha256=None if validation is None else validation.sha256,
                hyperparameters=job.hyperparameters,
                seed=job.seed,
                lineage=lineage,
                provenance=collect_provenance().record(),
                command=command,
            )
            try:
                with store.writing() as connection:
                    stored_jobs.append(add_job(connection, row))
            except StoreError as error:
                raise StoreError(
                    f"job {remote.id} was started but could not be stored: {error}; follow and"
                    f" store it with 'assay finetune wait {remote.id} --backend"
                    f" {plan.backend.name}'"
                ) from error
    return stored_jobs


def _find_validation_file(path: Path, option: Path | str | bool | None) -> Path | None:
    if option is False:
        return None
    if option is not None and option is not True:
        return Path(option)
    holdout = path.with_name(f"{path.stem}.holdout{path.suffix}")
    return holdout if holdout.is_file() else None


def load_speeds(
    database: Where, address: str | None, models: "Sequence[TunableModel]"
) -> dict[str, float]:
    """Return the seconds per trained token in earlier jobs, by model."""
    from assay.store.finetune_jobs import seconds_per_token

    store = store_at(database)
    if address is None or not store.path.exists():
        return {}
    with store.reading() as connection:
        speeds = {
            model.name: seconds_per_token(connection, address, model.name) for model in models
        }
    return {name: speed for name, speed in speeds.items() if speed is not None}


def _check_models(client: "FinetuneClient", plan: FinetunePlan) -> None:
    """Check model names that the backend does not list, before anything is uploaded.

    Raises:
        ModelRejected: The service lists its models, and this one is missing.
    """
    unlisted = [
        job.model.name for job in plan.jobs if plan.backend.find_model(job.model.name) is None
    ]
    listed = client.list_models() if unlisted else None
    for name in dict.fromkeys(unlisted):
        if listed is not None and name not in listed:
            raise ModelRejected(
                f"{client.address} does not list a model {name!r};"
                f" it lists {', '.join(listed[:12]) or 'none'}"
            )


class _SentFile(NamedTuple):
    id: str
    sha256: str


class _Uploads:
    """Uploads each file once, and not at all if the service still has it from before."""

    def __init__(
        self,
        client: "FinetuneClient",
        store: "Store",
        backend: "Backend",
        on_upload: Callable[[str], Progress],
    ) -> None:
        self._client, self._store = client, store
        self._backend, self._on_upload = backend, on_upload
        self._sent: dict[str, _SentFile] = {}

    def send(self, path: Path) -> _SentFile:
        from assay.store.finetune_jobs import add_upload, find_upload

        with path.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        if sha256 in self._sent:
            return self._sent[sha256]
        address = self._client.address
        with self._store.writing() as connection:
            known = find_upload(connection, address, sha256)
        if known is None or not self._client.has_file(known):
            file = self._client.upload(
                path,
                path.name,
                sha256,
                purpose_in_query=self._backend.purpose_in_query,
                progress=self._on_upload(path.name),
            )
            known = file.id
            with self._store.writing() as connection:
                add_upload(
                    connection,
                    address,
                    sha256,
                    file_id=known,
                    name=path.name,
                    size=path.stat().st_size,
                )
        self._sent[sha256] = _SentFile(known, sha256)
        return self._sent[sha256]


def _write_subset_file(data: Path, job: "PlannedJob", folder: Path) -> Path:
    from assay.finetune.plan import write_subset

    if job.subset is None:
        return data
    path = folder / f"{data.stem}.subset-{job.subset}{data.suffix}"
    if not path.exists():
        with path.open("wb") as out:
            write_subset(data, job.subset, job.seed, out)
    return path
