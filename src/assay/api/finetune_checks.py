"""Questions about fine-tuning that train nothing: does it answer, does it fit, is it well."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay._util.loops import run_apart
from assay.api._finetune_parts import (
    SOON,
    Progress,
    ServicePlace,
    backend_of,
    checked_data,
    client_of,
    length_warnings,
    model_of_backend,
    model_warnings,
    place_of,
    stored_job,
)
from assay.errors import AssayError, ModelRejected, UsageError
from assay.models.local_service import check_local
from assay.traces.opening import Where, store_at

if TYPE_CHECKING:
    from assay.types import ChatModel, ChatReply

__all__ = [
    "ModelCheck",
    "SmokeTest",
    "finetune_check_model",
    "finetune_health",
    "finetune_test",
]

_REPLY_TOKENS = 256


class SmokeTest(NamedTuple):
    """One question to a fine-tuned model, and its answer."""

    model: str
    address: str | None
    reply: "ChatReply"
    from_data: bool
    """Whether the question is the first row of the data it was trained on."""
    tools_offered: bool
    problem: str | None
    """What is wrong with its tool calls; None if nothing is, or none were asked for."""


class ModelCheck(NamedTuple):
    """Whether a model can be trained further, and on a data file."""

    model: str
    backend: str
    address: str | None
    price: float | None
    context: int | None
    on_service: bool | None
    """Whether its service lists it; None if it was not asked or lists nothing."""
    problems: tuple[str, ...]
    """Why it cannot be trained, on this data; empty if it can."""
    warnings: tuple[str, ...]
    rows: int | None
    tokens: int | None
    """Of the data, estimated."""


def finetune_test(
    name: str = "latest",
    *,
    data: Path | str | None = None,
    database: Where = None,
    notice: Callable[[str], None] = lambda _: None,
) -> SmokeTest:
    """Ask a fine-tuned model one question: the first row of its data, if that is there.

    Args:
        name: A job, or the model it has made.
        data: A data file to take the question from.
        database: The store.
        notice: Told of a service that was started for it.

    Raises:
        UsageError: The job has made no model.
    """
    from assay.agents.chat_models import chat_model

    job = stored_job(store_at(database), name, None, None)
    if job.result_model is None:
        raise UsageError(
            f"job {job.id} has made no model: it is {job.status};"
            f" 'assay finetune wait {job.id}' waits for it"
        )
    path = Path(data) if data is not None else None if job.data is None else Path(job.data)
    messages, tools, offered = _question(path)
    model = chat_model(job.result_model, database=database, notice=notice)
    reply = run_apart(lambda: _ask(model, messages, offered))
    return SmokeTest(
        model=job.result_model,
        address=job.address,
        reply=reply,
        from_data=messages is not None,
        tools_offered=bool(offered),
        problem=_call_problem(reply, tools) if offered else None,
    )


def finetune_health(backend: str, *, base_url: str | None = None) -> dict[str, Any]:
    """Whether a service answers, and what it says of itself.

    Raises:
        ServiceError: It does not answer.
        ModelRejected: Its key or address is missing, or it refuses the key.
    """
    from assay.models import CallRetries

    chosen = backend_of(backend, None)
    place = place_of(chosen, base_url)
    if place.address is None or place.missing:
        raise ModelRejected("; ".join(place.missing))
    retries = CallRetries(patience=SOON)
    with client_of(place.address, place.key, lambda words: None, retries) as client:
        if chosen.loopback:
            check_local(place.address)
        return {"backend": chosen.name, "address": place.address, **client.health()}


def finetune_check_model(
    name: str,
    *,
    backend: str | None = None,
    base_url: str | None = None,
    data: Path | str | None = None,
    database: Where = None,
    progress: Progress = lambda done, total: None,
) -> ModelCheck:
    """Whether a model can be trained further, what that costs, and whether data fits it.

    Its service is asked for its models where a key and an address are there.
    """
    chosen = backend_of(backend, name)
    place = place_of(chosen, base_url)
    model = model_of_backend(chosen, name, anywhere=base_url is not None)
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
    """Whether a service lists a model; why it cannot be asked is added to the warnings."""
    from assay.models import CallRetries

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
    """What the first row of a data file asks: messages, schemas of tools, and the tools."""
    from assay.datasets.data_file import read_values
    from assay.datasets.formats import read_row
    from assay.datasets.schemas import tool_schemas

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
    from assay.agents.chat_models import ask_once
    from assay.types import ChatRequest, Encoded, Message

    if messages is None:
        return await ask_once(model)
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
    """What is wrong with the tool calls of an answer."""
    from assay.datasets.message_checks import calls_problem

    calls = reply.message.value.get("tool_calls")
    if not calls:
        return "it calls no tool"
    found, _ = calls_problem(calls, schemas)
    return None if found is None else f"{found[0]}: {found[1]}"
