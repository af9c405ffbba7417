"""`assay finetune test`, `check-model` and `health`: questions that train nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from assay._util.text import cut
from assay.cli.database import Database, open_store
from assay.cli.finetune.words import Address
from assay.cli.output import Show, note, say, say_json, warn
from assay.cli.traces.counting import counting
from assay.traces.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.api import SmokeTest

__all__ = ["check_model", "health", "say_test", "test"]

_LONGEST = 300


def test(
    job: str = "latest",
    /,
    *,
    data: Annotated[Path | None, Parameter(show_default=False)] = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Ask a fine-tuned model one question: the first row of its data.

    The exit code is 1 if tools were offered and it calls none, or calls one wrongly.

    For example:

        assay finetune test ftjob-abc123

    Args:
        job: Its id, the start of one, the model it has made, or latest.
        data: A data file to take the question from, if not the one it was trained on.
        database: The store that keeps the jobs.
        show: What to print.
    """
    from assay import api

    found = api.finetune_test(job, data=data, database=open_store(database, show), notice=note)
    if show.json:
        say_json(
            {
                "model": found.model,
                "address": found.address,
                "from_data": found.from_data,
                "reply": dict(found.reply.message.value),
                "finish_reason": found.reply.finish_reason,
                "problem": found.problem,
            }
        )
    elif show.quiet:
        say(found.problem or "ok")
    else:
        say_test(found)
    return 1 if found.problem else 0


def say_test(found: "SmokeTest") -> None:
    """Say what a new model answered."""
    what = "the first row of its data" if found.from_data else "a short question"
    say(f"{found.model} answers {what} ({found.reply.latency_s:.1f} s):")
    if found.reply.message.text:
        say(f"  {cut(found.reply.message.text, _LONGEST)}")
    for call in found.reply.message.value.get("tool_calls") or ():
        function = call.get("function", {})
        words = f"{function.get('name')}({function.get('arguments')})"
        say(f"  calls {cut(words, _LONGEST)}")
    if found.problem is not None:
        warn(f"its answer cannot be played: {found.problem}")


def check_model(
    model: str,
    /,
    *,
    backend: Annotated[str | None, Parameter(show_default="whoever has the model")] = None,
    base_url: Address = None,
    data: Annotated[Path | None, Parameter(show_default=False)] = None,
    show: Show = Show(),
) -> int:
    """Say whether a model can be fine-tuned, what it costs, and whether data fits it.

    Its service is asked where a key and an address are there. The exit code is 1 if the
    model cannot be trained.

    For example:

        assay finetune check-model Qwen/Qwen2.5-7B-Instruct

    Args:
        model: The model to train further.
        backend: Who trains it. [choices: openai, synth, local]
        base_url: Where that service is, if not where its variable says.
        data: A data file that must fit it.
        show: What to print.
    """
    from assay import api

    with counting(show, "checking rows") as progress:
        found = api.finetune_check_model(
            model, backend=backend, base_url=base_url, data=data, progress=progress
        )
    if show.json:
        say_json({**found._asdict(), "ok": not found.problems})
    elif show.quiet:
        say("no" if found.problems else "yes")
    else:
        word = "cannot be" if found.problems else "can be"
        say(f"{found.model} {word} fine-tuned by {found.backend}")
        for problem in found.problems:
            say(f"  {problem}")
        price = "not known" if found.price is None else f"${found.price:g}"
        say(f"price     {price} for a million trained tokens")
        context = "not known" if found.context is None else f"{found.context:,} tokens"
        say(f"context   {context} of a row; tool calls are trained too")
        asked = {
            True: "lists it",
            False: "does not list it",
            None: "not asked, or lists none",
        }
        say(f"service   {found.address or 'no address'}: {asked[found.on_service]}")
        if found.rows is not None:
            say(f"data      {found.rows:,} rows, ~{found.tokens or 0:,} tokens")
        for warning in found.warnings:
            warn(warning)
    return 1 if found.problems else 0


def health(*, backend: str = "synth", base_url: Address = None, show: Show = Show()) -> int:
    """Ask whether a fine-tuning service answers, and takes the key.

    For example:

        assay finetune health --backend openai

    Args:
        backend: Which one. [choices: openai, synth, local]
        base_url: Where that service is, if not where its variable says.
        show: What to print.
    """
    from assay import api

    found = api.finetune_health(backend, base_url=base_url)
    if show.json:
        say_json(found)
    else:
        more = ", ".join(f"{key} {value}" for key, value in found.items() if key not in _OWN)
        say(f"{found['backend']} answers on {found['address']}{f': {more}' if more else ''}")
    return 0


_OWN = ("backend", "address")
