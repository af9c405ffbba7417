"""What the commands about fine-tuning share: where services are, what is in order, jobs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.errors import ModelRejected, UsageError

if TYPE_CHECKING:
    from assay._util.secret import Secret
    from assay.datasets.validation import ValidationReport
    from assay.experiments.finetune_jobs import FinetuneEvent, FinetuneJob
    from assay.finetune import (
        Backend,
        FinetuneClient,
        JobEvent,
        RemoteJob,
        TunableModel,
    )
    from assay.traces.store import Store

__all__ = [
    "SOON",
    "Progress",
    "ServicePlace",
    "Told",
    "backend_of",
    "checked_data",
    "client_of",
    "created_at",
    "event_of",
    "key_of",
    "length_warnings",
    "model_of_backend",
    "model_warnings",
    "open_warning",
    "place_of",
    "stored_events",
    "stored_job",
    "updated_job",
]

_FORMS = ("openai", "messages")
SOON = 2.0
"""Seconds of patience with a service that is only asked whether it is there."""
Progress = Callable[[int, int], None]
"""Told how much is done, and of how much."""
Told = Callable[[str], None]
"""Told of something that is tried again, in words."""


class ServicePlace(NamedTuple):
    """Where a backend is, as far as it is known."""

    address: str | None
    key: "Secret | None"
    missing: tuple[str, ...]


def backend_of(name: str | None, model: str | None) -> "Backend":
    from assay.finetune import backend_of_model, find_backend

    if name is not None:
        return find_backend(name)
    return backend_of_model(model or "")


def model_of_backend(backend: "Backend", name: str, *, anywhere: bool) -> "TunableModel":
    """The model of a name; at an address of the user's own any name may be one."""
    from assay.finetune import TunableModel

    found = backend.find_model(name)
    if found is None and not anywhere:
        raise backend.unknown_model(name)
    return found or TunableModel(name=name, price=0.0 if backend.loopback else None)


def place_of(backend: "Backend", base_url: str | None) -> ServicePlace:
    """The address and the key of a backend, and what is missing of them."""
    from urllib.parse import urlsplit

    from assay._http.guard import is_loopback
    from assay.models import find_base_url, find_key, is_address, load_registry

    provider = load_registry().providers[backend.name]
    missing = []
    address: str | None = None
    key = None
    if base_url is not None:
        if not is_address(base_url):
            raise UsageError(
                "--base-url is no URL such as http://127.0.0.1:8904/v1, without a name,"
                " a password or a query in it"
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
            f"backend {backend.name!r} is on this machine, and {host!r} is not; give an address"
            " such as http://127.0.0.1:8904/v1, or another --backend"
        )
    try:
        key = find_key(provider)
    except ModelRejected as error:
        missing.append(str(error))
    return ServicePlace(address, key, tuple(missing))


def open_warning(address: str | None) -> list[str]:
    """What to say of an address to which anybody on the way can listen."""
    from urllib.parse import urlsplit

    from assay._http.guard import is_loopback

    parts = urlsplit(address or "")
    if parts.scheme != "http" or is_loopback(parts.hostname or ""):
        return []
    return [f"{address} is not encrypted: whoever is on the way can read the data and the key"]


def client_of(
    address: str, key: "Secret | None", on_trouble: Told, retries: Any = None
) -> "FinetuneClient":
    from assay.finetune import FinetuneClient
    from assay.models.local_service import ensure_local

    ensure_local(address, on_trouble)
    return FinetuneClient(
        address,
        key=key,
        retries=retries,
        on_fault=lambda reason, wait: on_trouble(f"{reason}; again in {wait:.1f} s"),
    )


def stored_job(
    store: "Store", name: str, backend: str | None, base_url: str | None
) -> "FinetuneJob":
    """A job of the store, or one of a service, which is then stored."""
    from assay.experiments.finetune_jobs import FinetuneJob, add_job, find_job

    if backend is None or store.path.exists():
        try:
            with store.reading() as connection:
                return find_job(connection, name)
        except UsageError:
            if backend is None:
                raise
    chosen = backend_of(backend, None)
    place = place_of(chosen, base_url)
    if place.address is None or place.missing:
        raise ModelRejected("; ".join(place.missing))
    with client_of(place.address, place.key, lambda words: None) as client:
        remote = client.job(name)
    row = FinetuneJob(
        id=remote.id,
        address=place.address,
        backend=chosen.name,
        model=remote.model or "unknown",
        suffix=remote.suffix,
        status=remote.status,
        created_at=created_at(remote),
        hyperparameters=remote.hyperparameters,
    )
    with store.writing() as connection:
        return add_job(connection, updated_job(row, remote))


def key_of(job: "FinetuneJob") -> "Secret | None":
    return _key(place_of(backend_of(job.backend, None), job.address))


def _key(place: ServicePlace) -> "Secret | None":
    if place.missing:
        raise ModelRejected("; ".join(place.missing))
    return place.key


def stored_events(store: "Store", job: "FinetuneJob") -> "list[FinetuneEvent]":
    from assay.experiments.finetune_jobs import job_events

    with store.reading() as connection:
        return job_events(connection, job)


def event_of(event: "JobEvent") -> "FinetuneEvent":
    from assay.experiments.finetune_jobs import FinetuneEvent

    return FinetuneEvent(
        id=event.id,
        created_at=_time(event.at),
        level=event.level,
        message=event.message,
        step=event.step,
        total_steps=event.total_steps,
        metrics=event.metrics,
    )


def updated_job(job: "FinetuneJob", remote: "RemoteJob") -> "FinetuneJob":
    return replace(
        job,
        status=remote.status,
        result_model=remote.fine_tuned_model or job.result_model,
        error=remote.error,
        trained_tokens=remote.trained_tokens or job.trained_tokens,
        finished_at=_time(remote.finished_at) or job.finished_at,
    )


def created_at(remote: "RemoteJob") -> datetime:
    """When a service was asked for a job, by its clock, or by ours if it does not say."""
    return _time(remote.created_at) or datetime.now(UTC).replace(tzinfo=None)


def _time(seconds: int | None) -> datetime | None:
    if not seconds or seconds > 253_402_300_799:
        return None
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def checked_data(path: Path, backend: "Backend", progress: Progress) -> "ValidationReport":
    """A data file that a service can train on.

    Raises:
        UsageError: It has errors, or another format.
    """
    from assay.datasets.validation import validate_file

    report = validate_file(path, progress=progress)
    other = [form for form in report.forms if form not in _FORMS]
    if path.suffix == ".parquet" or other:
        form = "Parquet" if path.suffix == ".parquet" else other[0]
        raise UsageError(
            f"{str(path)!r} is of the format {form!r}, which services do not read;"
            " 'assay sft filter --format openai' writes one that they do"
        )
    if not report.ok:
        finding = next(each for each in report.findings if each.is_error)
        line, words = finding.first[0] if finding.first else (0, "")
        where = f"line {line}: " if line else ""
        raise UsageError(
            f"{str(path)!r} should not be trained on as it is: {finding.kind} ({where}{words});"
            f" 'assay sft validate {path}' lists all that is wrong"
        )
    if (size := path.stat().st_size) > backend.most_bytes:
        raise UsageError(
            f"{str(path)!r} has {size:,} bytes, and backend {backend.name!r} takes"
            f" {backend.most_bytes:,}; --subset takes a part of it"
        )
    return report


def model_warnings(models: "Sequence[TunableModel]") -> list[str]:
    """What the registry says of base models that will be gone.

    Raises:
        ModelRejected: One is gone.
    """
    from assay.models import load_registry

    entries = load_registry().entries
    found = []
    for model in models:
        entry = entries.get(model.name)
        if entry is not None:
            entry.check_callable()
        if entry is not None and entry.retired is not None:
            found.append(
                f"{model.name} retires on {entry.retired}, and models made from it with it"
            )
    return found


def length_warnings(report: "ValidationReport", models: "Sequence[TunableModel]") -> list[str]:
    if report.lengths is None:
        return []
    return [
        f"the longest row has about {report.lengths.longest:,} tokens, and {model.name} reads"
        f" {model.context:,} of a row: the service may cut it off or refuse it"
        for model in models
        if model.context is not None and report.lengths.longest > model.context
    ]
