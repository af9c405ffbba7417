"""`assay traces show` and `replay`: print one session turn by turn, or replay it."""

import json
import pydoc
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter
from cyclopts.validators import Number

from assay.cli.options import Database, Flag, open_store
from assay.cli.output import (
    Show,
    compiling_shown,
    complain,
    counting,
    say,
    say_json,
    width_there_is,
)
from assay.cli.tables import Whole
from assay.core.text import printable
from assay.errors import OutputError, UsageError
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.episodes.replay import Replay, Replayed, Verification
    from assay.store.records import (
        CallRecord,
        MessageRecord,
        PlayedRecord,
        SessionRecord,
        StepRecord,
        Trace,
    )
    from assay.types import Message

_BRIEF = 240
_LABEL = 8
_WIDTH = 99
_VITALS = re.compile(
    r"\b[Hh]ealth ?(\d)(?:/9,)? food ?(\d)(?:/9,)? drink ?(\d)(?:/9,)? energy ?(\d)"
)


def show_(
    episode: str | None = None,
    /,
    *,
    turns: Annotated[
        str | None, Parameter(allow_leading_hyphen=True, show_default="all")
    ] = None,
    full: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Show one episode turn by turn: vitals, actions, replies, observations.

    'best' and 'worst' refer to the latest run; 'latest' is the episode that ended last.
    In a terminal, long output opens in $PAGER [default: less].

    For example:

        assay traces show best --turns -5

    Args:
        episode: Id of an episode or the start of it; or 'best', 'worst' or 'latest'.
        turns: Only these turns: 7, 3-9, 60- (from turn 60), -5 (the last five) or 'last'.
        full: Show observations and replies in full.
        database: DuckDB file to read.
        show: Output options.
    """
    from assay.api.traces import load_trace

    if episode is None:
        raise UsageError(
            "name an episode: best, worst, latest, or an id; 'assay traces list' shows them"
        )
    wanted = _wanted(turns)
    trace = load_trace(episode, database=open_store(database, show))
    shown = wanted(_turns(trace.session))
    if show.json:
        say_json(_as_json(trace, shown))
        return 0
    width = width_there_is()  # unknown once output is redirected to the pager
    with _paged():
        if not show.quiet:
            _say_about(trace, width)
        _say_turns(trace.session, shown, min(_WIDTH, width or _WIDTH), full=full)
    return 0


def _wanted(turns: str | None) -> Callable[[Sequence[int]], Sequence[int]]:
    """Parse `--turns`; return a function that selects turns of a session."""
    if turns is None:
        return lambda there: there
    said = turns.strip().replace("last", "-1")
    found = re.fullmatch(r"(\d{0,9})(-?)(\d{0,9})", said)
    if found is None or said in ("", "-", "-0"):
        raise UsageError(
            f"--turns {turns!r} is not allowed; give one such as 7, or 3-9, 60-, -5 or last"
        )
    start, dash, end = found.groups()
    if not start:
        return lambda there: there[-int(end) :]
    first = int(start)
    final = int(end) if end else 2**31 if dash else first
    if first > final:
        raise UsageError(f"--turns {turns!r} is not allowed; the first turn comes first")
    return lambda there: [turn for turn in there if first <= turn <= final]


def _turns(session: "SessionRecord") -> list[int]:
    return sorted(
        {call.turn for call in session.calls} | {played.turn for played in session.played}
    )


@contextmanager
def _paged() -> Iterator[None]:
    """Page the output of the block if it is longer than the terminal."""
    if not sys.stdout.isatty():
        yield
        return
    held = StringIO()
    with redirect_stdout(held):
        yield
    text = held.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines:
        print(text, end="")
    else:
        pydoc.pager(text)


def _as_json(trace: "Trace", turns: Sequence[int]) -> dict[str, Any]:
    from assay.store.formats.trace_json import dump_line

    value: dict[str, Any] = json.loads(dump_line(trace))
    shown = set(turns)
    for name in ("calls", "played"):
        value[name] = [item for item in value[name] if item["turn"] in shown]
    return value


def _say_about(trace: "Trace", width: int | None) -> None:
    def told(line: str) -> None:
        """Print a line, wrapped at words in a terminal."""
        for part in textwrap.wrap(line, width) if width else [line]:
            say(part)

    session = trace.session
    header, end = session.header, session.end
    seed = "" if header.seed is None else f", seed {header.seed}"
    say(f"episode {header.session_id}: {header.subject} on {header.task}{seed}")
    say(f"experiment {trace.experiment.name}, run {header.run_id}")
    if header.parent is not None:
        fork = header.metadata.get("fork") or {}
        say(
            f"forked from {header.parent} at turn {fork.get('turn', '?')}: its "
            f"{header.forked_at} steps up to there are in common, and not paid again"
        )
    if end is not None:
        steps = [step for played in session.played for step in played.steps]
        names = [name for step in steps for name in step.unlocked]
        # The log of an imported session may have totals that its turns do not show.
        totals = {
            "num_turns": len(_turns(session)),
            "num_timesteps": len(steps),
            "num_achievements": len(names),
            "total_reward": sum(step.reward for step in steps),
            **session.imported_totals,
        }
        # Other environments have no achievements.
        has_any = totals["num_achievements"] or header.task.startswith("crafter/")
        achieved = f"{totals['num_achievements']} achievements, " if has_any else ""
        how = (
            end.stop_reason
            if end.stop_reason.startswith("died")
            else f"ended by {end.stop_reason}"
        )
        told(
            f"{end.state}, {how} after {totals['num_turns']} turns and"
            f" {totals['num_timesteps']} steps: {achieved}reward {totals['total_reward']:.1f}"
        )
        if end.outcomes and not has_any:
            earned = ", ".join(f"{name} {value:.6g}" for name, value in end.outcomes.items())
            told(f"outcomes: {earned}")
        if names:
            told(f"achievements: {', '.join(names)}")
        if end.error is not None:
            say(f"error: {end.error.type}: {end.error.message}")
    say("")


def _say_turns(
    session: "SessionRecord", turns: Sequence[int], width: int, *, full: bool
) -> None:
    calls: dict[int, list[CallRecord]] = {}
    for call in session.calls:
        calls.setdefault(call.turn, []).append(call)
    played = {record.turn: record for record in session.played}
    if not turns:
        say(f"no turns to show; there are {len(_turns(session))}")
    for turn in turns:
        first_call, *more = calls.get(turn, [None])
        say(f"turn {turn}{_cost(first_call)}")
        told = list(_told(session, turn, first_call, full=full))
        for label, text in told:
            if label == "saw" and (vitals := _vitals(text)):
                _say_part("vitals", vitals, width, full=True)
        if turn in played:
            for label, text in _happened(played[turn]):
                _say_part(label, text, width, full=True)
        for label, text in sorted(told, key=lambda part: part[0] == "saw"):
            _say_part(label, text, width, full=full)
        for another in more:
            say(f"  asked again{_cost(another)}")
            for label, text in _told(session, turn, another, full=full):
                _say_part(label, text, width, full=full)
        say("")


def _vitals(seen: str) -> str:
    """Return the vitals of the player in a Crafter observation; empty if there are none."""
    found = _VITALS.search(seen)
    if found is None:
        return ""
    return "health {}, food {}, drink {}, energy {}".format(*found.groups())


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
    session: "SessionRecord", turn: int, call: "CallRecord | None", *, full: bool
) -> Iterator[tuple[str, str]]:
    """Yield the last message to the model and its reply, each with a label."""
    messages = session.messages
    if call is not None:
        seen = call.request[-1:] or _before(messages, call.reply)
        replies = [messages[call.reply]]
    else:
        # Logs of other programs may contain replies without calls.
        replies = [
            each for each in messages if each.turn == turn and each.message.role == "assistant"
        ]
        seen = _before(messages, replies[0].position) if replies else ()
    for position in seen:
        yield "saw", messages[position].message.text
    for reply in replies:
        if reply.message.text.strip():
            yield "said", reply.message.text
        yield from (("thought", text) for text in _reasons(reply.message))
        if full:
            for tool in reply.message.value.get("tool_calls") or ():
                yield "called", json.dumps(tool)


def _before(messages: "Sequence[MessageRecord]", position: int) -> tuple[int, ...]:
    """Return the position of the message before a reply, unless that is a reply, too."""
    said = position > 0 and messages[position - 1].message.role != "assistant"
    return (position - 1,) if said else ()


def _reasons(reply: "Message") -> Iterator[str]:
    said = reply.value.get("reasoning_content")
    if isinstance(said, str) and said.strip():
        yield said
    for tool in reply.value.get("tool_calls") or ():
        try:
            reasoning = json.loads(tool["function"]["arguments"])["reasoning"]
        except (KeyError, TypeError, ValueError, RecursionError):
            continue  # models may write anything there
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


def _say_part(label: str, text: str, width: int, *, full: bool) -> None:
    if not full:
        text = " ".join(text.split())
        text = text if len(text) <= _BRIEF else f"{text[: _BRIEF - 1]}…"
    room = width - _LABEL - 3
    lines = [part for line in text.split("\n") for part in _wrapped(printable(line), room)]
    # One write for all lines: a full text may have tens of thousands.
    print(
        "\n".join(
            f"  {'' if i else label:<{_LABEL}} {line}".rstrip() for i, line in enumerate(lines)
        )
    )


def _wrapped(line: str, room: int) -> list[str]:
    if len(line) > _BRIEF * 20:
        # Wrapping at words is too slow for lines of several megabytes.
        return [line[start : start + room] for start in range(0, len(line), room)]
    return textwrap.wrap(line, room) or [""]


_SAID = 300


class _Shot(NamedTuple):
    """Part of a replay to show, and how to show it."""

    first: int
    """Step after which the display starts."""
    fps: int
    size: int
    steps: int
    """Number of steps to replay."""


def replay(
    episode: str,
    /,
    *,
    gif: Path | None = None,
    frames: Path | None = None,
    fps: Annotated[Whole, Parameter(validator=Number(gte=1, lte=50))] = 12,
    from_step: Annotated[Whole, Parameter(validator=Number(gte=0))] = 0,
    size: Whole = 288,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Replay a recorded episode as an animation.

    A terminal shows the episode with the model's replies next to it; otherwise a line is
    printed for each achievement. The world is recomputed from its seed and compared with
    the recording; if they differ, the replay stops there.

    For example:

        assay traces replay best
        assay traces replay best --gif best.gif

    Args:
        episode: Id of an episode or the start of it; or 'best' or 'worst' in the latest run;
            or 'latest'.
        gif: Write a GIF to this file instead of showing the episode.
        frames: Write a PNG per step to this folder instead of showing the episode.
        fps: Steps per second; at most 50.
        from_step: Start after this step.
        size: Width and height of the images in pixels.
        database: DuckDB file to read.
        show: Output options.
    """
    if gif is not None and frames is not None:
        raise UsageError("give --gif or --frames, not both")
    from assay.api.traces import replay

    store = open_store(database, show)
    with compiling_shown(show):
        from assay.episodes.replay import verify_session

        replayed = replay(episode, database=store)
        found = verify_session(replayed.session)
    shot = _Shot(from_step, fps, size, _playable(replayed, found))
    if shot.first > shot.steps:
        raise UsageError(
            f"--from-step {from_step} is beyond the {shot.steps} steps of this episode"
        )
    interrupted = _show(replayed, shot, gif, frames, show)
    return _report(replayed, found, gif or frames, show, interrupted=interrupted)


def _playable(episode: "Replay", found: "Verification") -> int:
    """Return the number of steps up to the first difference from the recording."""
    if found.difference is None or found.difference.step is None:
        return episode.steps
    return found.steps


def _show(
    episode: "Replay", shot: _Shot, gif: Path | None, frames: Path | None, show: Show
) -> bool:
    """Show or draw the episode; return whether it was interrupted."""
    moments = _until(episode, shot.steps)
    try:
        for _ in range(shot.first):
            next(moments)
        if gif is not None:
            _film(episode, moments, shot, gif, show)
        elif frames is not None:
            _frames(episode, moments, shot, frames, show)
        else:
            _screen(episode, moments, shot, show)
    except KeyboardInterrupt:
        return True
    return False


def _until(episode: "Replay", steps: int) -> Iterator["Replayed"]:
    moments = iter(episode)
    for _ in range(steps):
        yield next(moments)


def _screen(episode: "Replay", moments: Iterator["Replayed"], shot: _Shot, show: Show) -> None:
    from assay.cli.screen import choose_screen
    from assay.crafter.players.episode import Moment
    from assay.crafter.rules import ACTIONS

    header = episode.session.header
    words = f"{header.subject}, seed {header.seed}, {header.difficulty or 'custom'}"
    said = _sayings(episode.session)
    silent = show.json or show.quiet
    with choose_screen(printable(words), shot.fps, live=True, silent=silent) as screen:
        for replayed in moments:
            step = Moment(
                episode.world.steps,
                ACTIONS.index(replayed.recorded.action),
                replayed.result,
            )
            turn = replayed.turn
            screen.show(episode, step, f"turn {turn}: {said.get(turn, '')}")


def _film(
    episode: "Replay", moments: Iterator["Replayed"], shot: _Shot, path: Path, show: Show
) -> None:
    from assay.cli.screen import Caption, Film

    caption = Caption()
    film = Film(lambda: caption.under(episode.world.render(shot.size)))
    try:
        with counting(show, "drawing") as progress:
            for number, moment in enumerate(moments, 1):
                step = moment.recorded
                caption.take(step.index, step.action, step.unlocked)
                film.offer(number)
                progress(number, shot.steps - shot.first)
    finally:
        film.save(path, fps=shot.fps)


def _frames(
    episode: "Replay", moments: Iterator["Replayed"], shot: _Shot, folder: Path, show: Show
) -> None:
    from PIL import Image

    def draw() -> None:
        picture = Image.fromarray(episode.world.render(shot.size))
        picture.save(folder / f"step_{episode.world.steps:05}.png")

    try:
        folder.mkdir(parents=True, exist_ok=True)
        draw()
        with counting(show, "drawing") as progress:
            for number, _ in enumerate(moments, 1):
                draw()
                progress(number, shot.steps - shot.first)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(
            f"cannot write to {str(folder)!r}: {reason}; name another --frames"
        ) from error


def _sayings(session: "SessionRecord") -> dict[int, str]:
    """Return the model's reply in each turn as printable text."""
    messages = {record.position: record.message for record in session.messages}
    said = ((call.turn, messages.get(call.reply)) for call in session.calls)
    return {turn: printable(_said(message)[:_SAID]) for turn, message in said if message}


def _said(message: "Message") -> str:
    """Return the text of a reply, or the reasoning in its tool calls."""
    if message.text.strip():
        return message.text.strip()
    for call in message.value.get("tool_calls") or ():
        try:
            arguments = json.loads(call["function"]["arguments"])
            reasoning = arguments["reasoning"]
        except (KeyError, TypeError, ValueError, RecursionError):
            continue  # the arguments do not contain a reasoning
        if isinstance(reasoning, str):
            return reasoning.strip()
    return ""


def _report(
    episode: "Replay",
    found: "Verification",
    picture: Path | None,
    show: Show,
    *,
    interrupted: bool,
) -> int:
    header = episode.session.header
    steps, unlocked = episode.world.steps, episode.unlocked
    if show.json:
        say_json(
            {
                "session": header.session_id,
                "steps": steps,
                "reward": episode.reward,
                "achievements": unlocked,
                "finding": found.finding,
                "difference": str(found.difference) if found.difference else None,
                "picture": None if picture is None else str(picture),
                "interrupted": interrupted,
            }
        )
    elif picture is not None and show.quiet:
        say(str(picture))
    elif not show.quiet:
        how = "interrupted after" if interrupted else "replayed"
        say(
            f"{how} {steps} of {episode.steps} steps of episode {header.session_id}: "
            f"{len(unlocked)} achievements, reward {episode.reward:.1f}"
        )
        if picture is not None:
            say(f"picture: {picture}")
    if found.difference is not None:
        complain(f"the world does not do what was recorded: {found.difference}")
    elif found.reason is not None and not (show.json or show.quiet):
        say(f"not compared with the trace: {found.reason}")
    return 130 if interrupted else 1 if found.difference is not None else 0
