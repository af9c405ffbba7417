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
    SOON,
    Progress,
    ServicePlace,
    Told,
    backend_of,
    checked_data,
    client_of,
    event_of,
    key_of,
    length_warnings,
    model_of_backend,
    model_warnings,
    place_of,
    stored_events,
    stored_job,
    updated_job,
)
from assay.models.local_service import check_local
from assay.store.opening import Where, store_at

if TYPE_CHECKING:
    from assay.store.finetune_jobs import FinetuneEvent, FinetuneJob
    from assay.types import ChatModel, ChatReply

_LONGEST_WAIT: Final = 300.0
_PATIENCE: Final = 3600.0


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
    patience: float = _PATIENCE,
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
    troubled = 0
    while open_ones := [job for job in jobs if not job.ended]:
        updates = []
        for watched in open_ones:
            update = _asked(
                watched, backoff_seconds(troubled, max(interval, 1.0), _LONGEST_WAIT)
            )
            updates.append(update)
            yield update
        failed = [update for update in updates if update.job is None]
        troubled = troubled + 1 if failed else 0
        for update in failed:
            update.watched.waited += update.wait
            if update.watched.waited > patience:
                raise ServiceError(
                    f"job {update.watched.id} could not be asked about for"
                    f" {update.watched.waited / 60:.0f} minutes: {update.trouble}; it may"
                    f" continue without us: 'assay finetune wait {update.watched.id}' follows"
                    " it again"
                )
        if any(not job.ended for job in jobs):
            sleep(max((update.wait for update in failed), default=interval))


def _asked(watched: WatchedJob, wait: float) -> JobUpdate:
    try:
        job = watched.client.job(watched.id)
        # Requested after the state, so that the last events are included.
        events = watched.client.events(watched.id, watched.seen)
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
    on_trouble: Told = lambda words: None,
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
    now = {(job.address, job.id): job for job in jobs}
    with ExitStack() as stack:
        clients: dict[str, FinetuneClient] = {}
        watched = []
        for job in now.values():
            if job.address not in clients:
                key = key_of(job)
                clients[job.address] = stack.enter_context(
                    client_of(job.address, key, on_trouble)
                )
            with store.writing() as connection:
                seen = {event.id for event in job_events(connection, job)}
            watched.append(WatchedJob(clients[job.address], job.id, seen))
        for update in watch(watched, interval=poll_interval, patience=patience):
            place = (update.watched.client.address, update.watched.id)
            if update.job is None:
                yield JobProgress(now[place], trouble=update.trouble, wait=update.wait)
                continue
            before = now[place]
            events = tuple(map(event_of, update.events))
            after = updated_job(before, update.job)
            if after != before or events:
                with store.writing() as connection:
                    after = update_job(connection, after, events)
            now[place] = after
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
    """How a job stands, by its service; the store is brought up to date.

    Args:
        name: Its id, the start of one, the model it has made, or latest.
        database: The store.
        service: Where to look for a job that the store does not know; it is then stored.
        ask: Whether its service is asked; otherwise what the store knows.
    """
    from assay.store.finetune_jobs import update_job

    store = store_at(database)
    job = stored_job(store, name, service)
    if not ask or job.ended:
        return job
    with client_of(job.address, key_of(job), lambda words: None) as client:
        remote = client.job(job.id)
        known = [event.id for event in stored_events(store, job)]
        events = [event_of(event) for event in client.events(job.id, known)]
    with store.writing() as connection:
        return update_job(connection, updated_job(job, remote), events)


@takes_options
def finetune_events(
    name: str = "latest",
    *,
    database: Where = None,
    service: JobServiceOptions,
) -> "list[FinetuneEvent]":
    """What happened to a job, the oldest first; its service is asked while it runs."""
    job = finetune_status(name, database=database, service=service)
    return stored_events(store_at(database), job)


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
    """End a job before its time."""
    from assay.store.finetune_jobs import update_job

    store = store_at(database)
    job = stored_job(store, name, service)
    if job.ended:
        raise UsageError(f"job {job.id} has ended already: {job.status}")
    with client_of(job.address, key_of(job), lambda words: None) as client:
        remote = client.cancel(job.id)
        known = [event.id for event in stored_events(store, job)]
        events = [event_of(event) for event in client.events(job.id, known)]
    with store.writing() as connection:
        return update_job(connection, updated_job(job, remote), events)


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

    job = stored_job(store_at(database), name, JobServiceOptions())
    if job.result_model is None:
        raise UsageError(
            f"job {job.id} has made no model: it is {job.status};"
            f" 'assay finetune wait {job.id}' waits for it"
        )
    path = Path(data) if data is not None else None if job.data is None else Path(job.data)
    messages, tools, offered = _question(path)
    model = chat_model(job.result_model, database=database, notice=notice)
    reply = run_in_own_loop(lambda: _ask(model, messages, offered))
    return SmokeTest(
        model=job.result_model,
        address=job.address,
        reply=reply,
        from_data=messages is not None,
        tools_offered=bool(offered),
        problem=_call_problem(reply, tools) if offered else None,
    )


def finetune_health(backend: str, *, base_url: str | None = None) -> dict[str, Any]:
    """Call a service and return its health report.

    Raises:
        ServiceError: The service does not respond.
        ModelRejected: Its key or address is missing, or it rejects the key.
    """
    from assay.models.faults import CallRetries

    chosen = backend_of(backend, None)
    place = place_of(chosen, base_url)
    if place.address is None or place.missing:
        raise ModelRejected("; ".join(place.missing))
    retries = CallRetries(patience=SOON)
    with client_of(place.address, place.key, lambda words: None, retries) as client:
        if chosen.loopback:
            check_local(place.address)
        return {"backend": chosen.name, "address": place.address, **client.health()}


@takes_options
def finetune_check_model(
    name: str,
    *,
    service: ServiceOptions,
    data: Path | str | None = None,
    database: Where = None,
    progress: Progress = lambda done, total: None,
) -> ModelCheck:
    """Whether a model can be trained further, what that costs, and whether data fits it.

    Its service is asked for its models where a key and an address are there.
    """
    chosen = backend_of(service.backend, name)
    place = place_of(chosen, service.base_url)
    model = model_of_backend(chosen, name, anywhere=service.base_url is not None)
    problems: list[str] = []
    warnings: list[str] = []
    try:
        warnings += model_warnings([model])
    except ModelRejected as error:
        problems.append(str(error))
    listed: bool | None = None
    if place.address is None or place.missing:
        warnings += [f"the service was not asked: {reason}" for reason in place.missing]
    else:
        listed = _is_listed(place, model.name, warnings, problems)
    rows = tokens = None
    if data is not None:
        report = checked_data(Path(data), chosen, progress)
        rows, tokens = report.rows, report.lengths.total if report.lengths else None
        warnings += length_warnings(report, [model])
        if rows < chosen.least_rows:
            problems.append(f"{rows} rows are too few; it takes {chosen.least_rows} or more")
    return ModelCheck(
        model=model.name,
        backend=chosen.name,
        address=place.address,
        price=model.price,
        context=model.context,
        on_service=listed,
        problems=tuple(problems),
        warnings=tuple(warnings),
        rows=rows,
        tokens=tokens,
    )


def _is_listed(
    place: ServicePlace, name: str, warnings: list[str], problems: list[str]
) -> bool | None:
    """Return whether a service lists a model; errors are added to `warnings`."""
    from assay.models.faults import CallRetries

    assert place.address is not None
    retries = CallRetries(patience=SOON)
    try:
        with client_of(place.address, place.key, lambda words: None, retries) as client:
            listed = client.models()
    except AssayError as error:
        warnings.append(f"the service could not be asked: {error}")
        return None
    if listed is None:
        return None
    there = name.casefold() in {each.casefold() for each in listed}
    if not there:
        problems.append(f"{place.address} does not list it")
    return there


def _question(path: Path | None) -> tuple[list[Any] | None, Any, list[Any]]:
    """Return the messages, tool schemas and tools of the first row in a data file."""
    from assay.finetune.datasets.formats import read_row
    from assay.finetune.datasets.message_checks import tool_schemas
    from assay.finetune.datasets.validate import read_values

    if path is None or not path.is_file():
        return None, {}, []
    try:
        row = read_row(next(iter(read_values(path)))[1])
    except (UsageError, StopIteration):
        return None, {}, []
    asked = row.messages[:-1] if row.messages[-1].get("role") == "assistant" else row.messages
    plain = [{key: message[key] for key in message if key != "weight"} for message in asked]
    return plain, tool_schemas(row.tools or ()), row.tools or []


async def _ask(model: "ChatModel", messages: list[Any] | None, tools: list[Any]) -> "ChatReply":
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


def _call_problem(reply: "ChatReply", schemas: Any) -> str | None:
    """Return the problem with the tool calls in a reply, if any."""
    from assay.finetune.datasets.message_checks import calls_problem

    calls = reply.message.value.get("tool_calls")
    if not calls:
        return "it calls no tool"
    found, _ = calls_problem(calls, schemas)
    return None if found is None else f"{found[0]}: {found[1]}"
