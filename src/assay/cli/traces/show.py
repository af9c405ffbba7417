"""`assay traces show`: one session, turn by turn."""

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from assay._util.text import printable
from assay.cli.database import Database, open_store
from assay.cli.output import Show, say, say_json
from assay.errors import UsageError
from assay.traces.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.exchange.formats import Trace
    from assay.traces.records import (
        CallRecord,
        MessageRecord,
        PlayedRecord,
        SessionRecord,
        StepRecord,
    )
    from assay.types import Message

__all__ = ["show_"]

_BRIEF = 240
_LABEL = 8
_WIDTH = 88


def show_(
    session: str | None = None,
    /,
    *,
    turns: str | None = None,
    full: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Show one session: for each turn what the model saw, asked for and got.

    best and worst are sessions of the latest run; latest is the one that ended last.

    For example:

        assay traces show best --turns 1-5

    Args:
        session: The id of a session or the start of one; or best, worst or latest.
        turns: Only these turns: one such as 7, or from one to another such as 3-9.
        full: Show what was seen and said in full.
        database: The store to read.
        show: What to print.
    """
    from assay import api

    if session is None:
        raise UsageError(
            "name a session: best, worst, latest, or an id; 'assay traces list' shows them"
        )
    first, last = _range(turns)
    trace = api.load_trace(session, database=open_store(database, show))
    if show.json:
        say_json(_as_json(trace, first, last))
        return 0
    if not show.quiet:
        _say_about(trace)
    _say_turns(trace.session, first, last, full=full)
    return 0


def _range(turns: str | None) -> tuple[int, int]:
    if turns is None:
        return 0, 2**31
    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", turns.strip())
    if found is None:
        raise UsageError(f"--turns {turns!r} is not allowed; give one such as 7, or 3-9")
    first, last = int(found[1]), int(found[2] or found[1])
    if first > last:
        raise UsageError(f"--turns {turns!r} is not allowed; the first turn comes first")
    return first, last


def _as_json(trace: "Trace", first: int, last: int) -> dict[str, Any]:
    from assay.exchange.formats import dump_line

    value: dict[str, Any] = json.loads(dump_line(trace))
    for name in ("calls", "played"):
        value[name] = [item for item in value[name] if first <= item["turn"] <= last]
    return value


def _say_about(trace: "Trace") -> None:
    session = trace.session
    header, end = session.header, session.end
    seed = "" if header.seed is None else f", seed {header.seed}"
    say(f"session {header.session_id}: {header.subject} on {header.task}{seed}")
    say(f"experiment {trace.experiment.name}, run {header.run_id}")
    if end is not None:
        steps = [step for played in session.played for step in played.steps]
        names = [name for step in steps for name in step.unlocked]
        reward = sum(step.reward for step in steps)
        turns = {call.turn for call in session.calls} | {each.turn for each in session.played}
        # Worlds other than Crafter have none.
        achieved = "" if "environment" in header.metadata else f"{len(names)} achievements, "
        say(
            f"{end.state}, ended by {end.stop_reason} after {len(turns)} turns and"
            f" {len(steps)} steps: {achieved}reward {reward:.1f}"
        )
        if names:
            say(f"achievements: {', '.join(names)}")
        if end.error is not None:
            say(f"error: {end.error.type}: {end.error.message}")
    say("")


def _say_turns(session: "SessionRecord", first: int, last: int, *, full: bool) -> None:
    calls: dict[int, list[CallRecord]] = {}
    for call in session.calls:
        calls.setdefault(call.turn, []).append(call)
    played = {record.turn: record for record in session.played}
    turns = [turn for turn in sorted({*calls, *played}) if first <= turn <= last]
    if not turns:
        say(f"no turns to show; there are {len({*calls, *played})}")
    for turn in turns:
        first_call, *more = calls.get(turn, [None])
        say(f"turn {turn}{_cost(first_call)}")
        for call in (first_call, *more):
            if call is not first_call:
                say(f"  asked again{_cost(call)}")
            for label, text in _told(session.messages, call, full=full):
                _say_part(label, text, full=full)
        if turn in played:
            for label, text in _happened(played[turn]):
                _say_part(label, text, full=True)
        say("")


def _cost(call: "CallRecord | None") -> str:
    if call is None:
        return ""
    dollars = "" if not call.cost_usd else f", ${call.cost_usd:.4f}"
    retries = "" if not call.retries else f", retried {call.retries}x"
    return (
        f"  ({call.usage.prompt} + {call.usage.completion} tokens, "
        f"{call.latency_s:.2f} s{dollars}{retries})"
    )


def _told(
    messages: "Sequence[MessageRecord]", call: "CallRecord | None", *, full: bool
) -> Iterator[tuple[str, str]]:
    """What the model was told last, and what it answered."""
    if call is None:
        return
    if call.request:
        yield "saw", messages[call.request[-1]].message.text
    reply = messages[call.reply].message
    if reply.text.strip():
        yield "said", reply.text
    yield from (("thought", text) for text in _reasons(reply))
    if full:
        for tool in reply.value.get("tool_calls") or ():
            yield "called", json.dumps(tool)


def _reasons(reply: "Message") -> Iterator[str]:
    for tool in reply.value.get("tool_calls") or ():
        try:
            reasoning = json.loads(tool["function"]["arguments"])["reasoning"]
        except (KeyError, TypeError, ValueError, RecursionError):
            continue  # a model may have written anything there
        if isinstance(reasoning, str) and reasoning.strip():
            yield reasoning


def _happened(played: "PlayedRecord") -> Iterator[tuple[str, str]]:
    if played.asked:
        yield "asked", ", ".join(played.asked)
    if played.malformed is not None:
        yield "wrong", played.malformed
    if played.unknown:
        yield "unknown", ", ".join(played.unknown)
    for step in played.steps:
        yield "played", _step(step)
    if played.skipped:
        yield "skipped", f"{played.skipped} actions, because the episode had ended"
    for hook in played.hooks:
        where = "" if hook.step is None else f"step {hook.step}: "
        yield "hook", f"{hook.code} {hook.name}: {where}{hook.description}".rstrip(": ")


def _step(step: "StepRecord") -> str:
    parts = [f"{step.index:>4} {step.action}"]
    if step.no_effect is not None:
        parts.append(f"without effect: {step.no_effect}")
    if step.reward:
        parts.append(f"reward {step.reward:+.1f}")
    parts += [f"unlocked {name}" for name in step.unlocked]
    if step.terminated or step.truncated:
        parts.append("the episode ended")
    return ", ".join(parts)


def _say_part(label: str, text: str, *, full: bool) -> None:
    if not full:
        text = " ".join(text.split())
        text = text if len(text) <= _BRIEF else f"{text[: _BRIEF - 1]}…"
    lines = [part for line in text.split("\n") for part in _wrapped(printable(line))]
    # One write for all lines: a text in full may have tens of thousands.
    print(
        "\n".join(
            f"  {'' if i else label:<{_LABEL}} {line}".rstrip() for i, line in enumerate(lines)
        )
    )


def _wrapped(line: str) -> list[str]:
    if len(line) > _BRIEF * 20:
        # Wrapping at words takes far too long for a line of megabytes.
        return [line[start : start + _WIDTH] for start in range(0, len(line), _WIDTH)]
    return textwrap.wrap(line, _WIDTH) or [""]
