"""Following, querying, listing and cancelling fine-tuning jobs, and checks without training.

Running jobs are polled in turn until they end, with a longer wait after an error. Reported
states and events are stored as they arrive. The checks test whether a service responds, a model
can be trained on a data file, and a fine-tuned model replies.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from assay.core.aio import backoff_seconds, run_in_own_loop
from assay.core.options import takes_options
from assay.errors import AssayError, ModelRejected, ServiceError, UsageError
from assay.finetune.client import FinetuneClient, JobEvent, RemoteJob
from assay.finetune.options import JobServiceOptions, ServiceOptions
from assay.finetune.start import (
    PROBE_PATIENCE_S,
    MessageCallback,
    Progress,
    ServiceAccess,
    choose_backend,
    convert_event,
    find_job_key,
    find_model,
    find_stored_job,
    list_length_warnings,
    list_model_warnings,
    load_events,
    locate_service,
    make_client,
    update_from_remote,
    validate_data,
)
from assay.models.local_service import check_local
from assay.store.opening import Where, store_at

if TYPE_CHECKING:
    from assay.store.finetune_jobs import FinetuneEvent, FinetuneJob
    from assay.types import ChatModel, ChatReply

_MAX_WAIT_S: Final = 300.0
_PATIENCE_S: Final = 3600.0


@dataclass(slots=True)
class WatchedJob:
    """A job to follow, and its state so far."""

    client: FinetuneClient
    id: str
    seen: set[str] = field(default_factory=set)
    """Ids of the events received so far."""
    ended: bool = False
    waited: float = 0.0
    """Seconds since the service last responded about the job."""


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """Response about a job: its state and new events, or an error."""

    watched: WatchedJob
    job: RemoteJob | None
    events: tuple[JobEvent, ...] = ()
    trouble: str | None = None
    wait: float = 0.0
    """Seconds until the next attempt after an error."""


def watch(
    jobs: Sequence[WatchedJob],
    *,
    interval: float = 30.0,
    patience: float = _PATIENCE_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[JobUpdate]:
    """Poll all jobs in turn until all have ended, and yield each response.

    Args:
        jobs: The jobs to follow.
        interval: Seconds between two rounds; doubled after each error, up to five minutes.
        patience: Seconds without a response after which ServiceError is raised.
        sleep: Function that waits.

    Raises:
        ServiceError: A job got no response for too long; it may still be running.
        ModelRejected: The service does not have the job, or rejects the key.
    """
    failed_rounds = 0
    while running := [job for job in jobs if not job.ended]:
        updates = []
        for watched in running:
            update = _poll_job(
                watched, backoff_seconds(failed_rounds, max(interval, 1.0), _MAX_WAIT_S)
            )
            updates.append(update)
            yield update
        failed = [update for update in updates if update.job is None]
        failed_rounds = failed_rounds + 1 if failed else 0
        for update in failed:
            update.watched.waited += update.wait
            if update.watched.waited > patience:
                raise ServiceError(
                    f"job {update.watched.id} could not be queried for"
                    f" {update.watched.waited / 60:.0f} minutes: {update.trouble}; it may "
                    "still be"
                    f" running: follow it with 'assay finetune wait {update.watched.id}'"
                )
        if any(not job.ended for job in jobs):
            sleep(max((update.wait for update in failed), default=interval))


def _poll_job(watched: WatchedJob, wait: float) -> JobUpdate:
    try:
        job = watched.client.get_job(watched.id)
        # Requested after the state, so that the last events are included.
        events = watched.client.list_events(watched.id, watched.seen)
    except ServiceError as error:
        return JobUpdate(watched, None, trouble=str(error), wait=wait)
    watched.seen.update(event.id for event in events)
    watched.ended, watched.waited = job.ended, 0.0
    return JobUpdate(watched, job, tuple(events))


class JobProgress(NamedTuple):
    """New state of a job, or an error."""

    job: "FinetuneJob"
    events: "tuple[FinetuneEvent, ...]" = ()
    trouble: str | None = None
    """Reason why the request failed this time."""
    wait: float = 0.0
    """Seconds until the next attempt after an error."""


def finetune_follow(
    jobs: "Sequence[FinetuneJob]",
    *,
    database: Where = None,
    poll_interval: float = 30.0,
    patience: float = 3600.0,
    on_trouble: MessageCallback = lambda message: None,
) -> Iterator[JobProgress]:
    """Follow jobs until all have ended; updates are stored before they are yielded.

    Args:
        jobs: Stored jobs.
        database: The database.
        poll_interval: Seconds between two requests.
        patience: Seconds without a response after which ServiceError is raised.
        on_trouble: Called with a message before a retry.

    Raises:
        ServiceError: A job got no response for too long; it may still be running.
    """
    from assay.store.finetune_jobs import job_events, update_job

    store = store_at(database)
    jobs_by_key = {(job.address, job.id): job for job in jobs}
    with ExitStack() as stack:
        clients: dict[str, FinetuneClient] = {}
        watched = []
        for job in jobs_by_key.values():
            if job.address not in clients:
                key = find_job_key(job)
                clients[job.address] = stack.enter_context(
                    make_client(job.address, key, on_trouble)
                )
            with store.writing() as connection:
                seen = {event.id for event in job_events(connection, job)}
            watched.append(WatchedJob(clients[job.address], job.id, seen))
        for update in watch(watched, interval=poll_interval, patience=patience):
            job_key = (update.watched.client.address, update.watched.id)
            if update.job is None:
                yield JobProgress(
                    jobs_by_key[job_key], trouble=update.trouble, wait=update.wait
                )
                continue
            before = jobs_by_key[job_key]
            events = tuple(map(convert_event, update.events))
            after = update_from_remote(before, update.job)
            if after != before or events:
                with store.writing() as connection:
                    after = update_job(connection, after, events)
            jobs_by_key[job_key] = after
            yield JobProgress(after, events)


@takes_options
def finetune_wait(
    *names: str,
    database: Where = None,
    service: JobServiceOptions,
    poll_interval: float = 30.0,
) -> "list[FinetuneJob]":
    """Wait until jobs have ended: ids, starts of ids, or `latest`."""
    jobs = [finetune_status(name, database=database, service=service) for name in names]
    last = {(job.address, job.id): job for job in jobs}
    for update in finetune_follow(jobs, database=database, poll_interval=poll_interval):
        last[update.job.address, update.job.id] = update.job
    return list(last.values())


@takes_options
def finetune_status(
    name: str = "latest",
    *,
    database: Where = None,
    service: JobServiceOptions,
    ask: bool = True,
) -> "FinetuneJob":
    """Return the state of a job as its service reports it, and update the database.

    Args:
        name: Id of the job, the start of one, the model it has produced, or latest.
        database: The database.
        service: Where to look for a job that is not in the database; it is then stored.
        ask: Whether to call the service; if False, the stored state is returned.
    """
    from assay.store.finetune_jobs import update_job

    store = store_at(database)
    job = find_stored_job(store, name, service)
    if not ask or job.ended:
        return job
    with make_client(job.address, find_job_key(job), lambda message: None) as client:
        remote = client.get_job(job.id)
        known = [event.id for event in load_events(store, job)]
        events = [convert_event(event) for event in client.list_events(job.id, known)]
    with store.writing() as connection:
        return update_job(connection, update_from_remote(job, remote), events)


@takes_options
def finetune_events(
    name: str = "latest",
    *,
    database: Where = None,
    service: JobServiceOptions,
) -> "list[FinetuneEvent]":
    """Return the events of a job, the oldest first; a running job is queried first."""
    job = finetune_status(name, database=database, service=service)
    return load_events(store_at(database), job)


def finetune_list(*, database: Where = None) -> "list[FinetuneJob]":
    """Return the stored jobs, the newest first, without calling a service."""
    from assay.store.finetune_jobs import list_jobs

    with store_at(database).reading() as connection:
        return list_jobs(connection)


@takes_options
def finetune_cancel(
    name: str,
    *,
    database: Where = None,
    service: JobServiceOptions,
) -> "FinetuneJob":
    """Cancel a job."""
    from assay.store.finetune_jobs import update_job

    store = store_at(database)
    job = find_stored_job(store, name, service)
    if job.ended:
        raise UsageError(f"job {job.id} has ended already: {job.status}")
    with make_client(job.address, find_job_key(job), lambda message: None) as client:
        remote = client.cancel_job(job.id)
        known = [event.id for event in load_events(store, job)]
        events = [convert_event(event) for event in client.list_events(job.id, known)]
    with store.writing() as connection:
        return update_job(connection, update_from_remote(job, remote), events)


_REPLY_TOKENS = 256


class SmokeTest(NamedTuple):
    """One request to a fine-tuned model, and its reply."""

    model: str
    address: str | None
    reply: "ChatReply"
    from_data: bool
    """Whether the request is the first row of the data it was trained on."""
    tools_offered: bool
    problem: str | None
    """Problem with the tool calls; None if there is none or no tools were offered."""


class ModelCheck(NamedTuple):
    """Result of checking whether a model can be fine-tuned, optionally on a data file."""

    model: str
    backend: str
    address: str | None
    price: float | None
    context: int | None
    on_service: bool | None
    """Whether the service lists the model; None if it was not called or lists nothing."""
    problems: tuple[str, ...]
    """Reasons why the model cannot be trained on this data; empty if it can."""
    warnings: tuple[str, ...]
    rows: int | None
    tokens: int | None
    """Estimated tokens of the data."""


def finetune_test(
    name: str = "latest",
    *,
    data: Path | str | None = None,
    database: Where = None,
    notice: Callable[[str], None] = lambda _: None,
) -> SmokeTest:
    """Send one request to a fine-tuned model: the first row of its data, if available.

    Args:
        name: A job, or the model it has produced.
        data: A data file to take the request from.
        database: The database.
        notice: Called with a message if a service is started.

    Raises:
        UsageError: The job has not produced a model.
    """
    from assay.agents.chat_models import chat_model

    job = find_stored_job(store_at(database), name, JobServiceOptions())
    if job.result_model is None:
        raise UsageError(
            f"job {job.id} has not produced a model (status: {job.status})"
            + ("" if job.ended else f"; wait for it with 'assay finetune wait {job.id}'")
        )
    path = Path(data) if data is not None else None if job.data is None else Path(job.data)
    messages, schemas, tools_offered = _read_first_request(path)
    model = chat_model(job.result_model, database=database, notice=notice)
    reply = run_in_own_loop(lambda: _request_reply(model, messages, tools_offered))
    return SmokeTest(
        model=job.result_model,
        address=job.address,
        reply=reply,
        from_data=messages is not None,
        tools_offered=bool(tools_offered),
        problem=_find_reply_problem(reply, schemas) if tools_offered else None,
    )


def finetune_health(backend: str, *, base_url: str | None = None) -> dict[str, Any]:
    """Call a service and return its health report.

    Raises:
        ServiceError: The service does not respond.
        ModelRejected: Its key or address is missing, or it rejects the key.
    """
    from assay.models.faults import CallRetries

    chosen = choose_backend(backend, None)
    access = locate_service(chosen, base_url)
    if access.address is None or access.missing:
        raise ModelRejected("; ".join(access.missing))
    retries = CallRetries(patience=PROBE_PATIENCE_S)
    with make_client(access.address, access.key, lambda message: None, retries) as client:
        if chosen.loopback:
            check_local(access.address)
        return {"backend": chosen.name, "address": access.address, **client.check_health()}


@takes_options
def finetune_check_model(
    name: str,
    *,
    service: ServiceOptions,
    data: Path | str | None = None,
    database: Where = None,
    progress: Progress = lambda done, total: None,
) -> ModelCheck:
    """Check whether a model can be fine-tuned, its price, and whether the data fits it.

    The service is called for its list of models if its key and address are configured.
    """
    chosen = choose_backend(service.backend, name)
    access = locate_service(chosen, service.base_url)
    model = find_model(chosen, name, allow_unlisted=service.base_url is not None)
    problems: list[str] = []
    warnings: list[str] = []
    try:
        warnings += list_model_warnings([model])
    except ModelRejected as error:
        problems.append(str(error))
    listed: bool | None = None
    if access.address is None or access.missing:
        warnings += [f"the service was not called: {reason}" for reason in access.missing]
    else:
        listed = _is_listed(access, model.name, warnings, problems)
    rows = tokens = None
    if data is not None:
        report = validate_data(Path(data), chosen, progress)
        rows, tokens = report.rows, report.lengths.total if report.lengths else None
        warnings += list_length_warnings(report, [model])
        if rows < chosen.min_rows:
            problems.append(f"{rows} rows are too few; the minimum is {chosen.min_rows}")
    return ModelCheck(
        model=model.name,
        backend=chosen.name,
        address=access.address,
        price=model.price,
        context=model.context,
        on_service=listed,
        problems=tuple(problems),
        warnings=tuple(warnings),
        rows=rows,
        tokens=tokens,
    )


def _is_listed(
    access: ServiceAccess, name: str, warnings: list[str], problems: list[str]
) -> bool | None:
    """Return whether a service lists a model; errors are added to `warnings`."""
    from assay.models.faults import CallRetries

    assert access.address is not None
    retries = CallRetries(patience=PROBE_PATIENCE_S)
    try:
        with make_client(access.address, access.key, lambda message: None, retries) as client:
            listed = client.list_models()
    except AssayError as error:
        warnings.append(f"the service could not be called: {error}")
        return None
    if listed is None:
        return None
    is_listed = name.casefold() in {model_name.casefold() for model_name in listed}
    if not is_listed:
        problems.append(f"{access.address} does not list the model")
    return is_listed


def _read_first_request(path: Path | None) -> tuple[list[Any] | None, Any, list[Any]]:
    """Return the messages, tool schemas and tools of the first row in a data file."""
    from assay.finetune.datasets.formats import read_row
    from assay.finetune.datasets.message_checks import get_tool_schemas
    from assay.finetune.datasets.validate import read_values

    if path is None or not path.is_file():
        return None, {}, []
    try:
        row = read_row(next(iter(read_values(path)))[1])
    except (UsageError, StopIteration):
        return None, {}, []
    request_messages = (
        row.messages[:-1] if row.messages[-1].get("role") == "assistant" else row.messages
    )
    unweighted = [
        {key: message[key] for key in message if key != "weight"}
        for message in request_messages
    ]
    return unweighted, get_tool_schemas(row.tools or ()), row.tools or []


async def _request_reply(
    model: "ChatModel", messages: list[Any] | None, tools: list[Any]
) -> "ChatReply":
    from assay.agents.chat_models import send_test_request
    from assay.types import ChatRequest, Encoded, Message

    if messages is None:
        return await send_test_request(model)
    request = ChatRequest(
        model=model.name,
        messages=[Message(message) for message in messages],
        tools=Encoded(tools),
        temperature=0.0,
        max_tokens=_REPLY_TOKENS,
    )
    try:
        return await model.reply(request)
    finally:
        await model.close()


def _find_reply_problem(reply: "ChatReply", schemas: Any) -> str | None:
    """Return the problem with the tool calls in a reply, if any."""
    from assay.finetune.datasets.message_checks import find_call_problem

    calls = reply.message.value.get("tool_calls")
    if not calls:
        return "it does not call a tool"
    problem, _ = find_call_problem(calls, schemas)
    return None if problem is None else f"{problem[0]}: {problem[1]}"
