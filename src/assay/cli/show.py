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
    OutputOptions,
    find_output_width,
    print_error,
    print_json,
    print_line,
    show_compilation,
    show_progress_bar,
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

_MAX_BRIEF = 240
_LABEL_WIDTH = 8
_MAX_WIDTH = 99
_VITALS_PATTERN = re.compile(
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
    show: OutputOptions = OutputOptions(),
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
            "give an episode: best, worst, latest, or an id; 'assay traces list' shows them"
        )
    select_turns = _parse_turns(turns)
    trace = load_trace(episode, database=open_store(database, show))
    shown = select_turns(_list_turns(trace.session))
    if show.json:
        print_json(_to_json(trace, shown))
        return 0
    width = find_output_width()  # unknown once output is redirected to the pager
    with _page_output():
        if not show.quiet:
            _print_header(trace, width)
        _print_turns(trace.session, shown, min(_MAX_WIDTH, width or _MAX_WIDTH), full=full)
    return 0


def _parse_turns(turns: str | None) -> Callable[[Sequence[int]], Sequence[int]]:
    """Parse `--turns`; return a function that selects turns of a session."""
    if turns is None:
        return lambda turns_played: turns_played
    text = turns.strip().replace("last", "-1")
    match = re.fullmatch(r"(\d{0,9})(-?)(\d{0,9})", text)
    if match is None or text in ("", "-", "-0"):
        raise UsageError(
            f"--turns {turns!r} is not allowed; give one such as 7, or 3-9, 60-, -5 or last"
        )
    start, dash, end = match.groups()
    if not start:
        return lambda turns_played: turns_played[-int(end) :]
    first = int(start)
    last = int(end) if end else 2**31 if dash else first
    if first > last:
        raise UsageError(
            f"--turns {turns!r} is not allowed; the first turn must not be after the last"
        )
    return lambda turns_played: [turn for turn in turns_played if first <= turn <= last]


def _list_turns(session: "SessionRecord") -> list[int]:
    return sorted(
        {call.turn for call in session.calls} | {played.turn for played in session.played}
    )


@contextmanager
def _page_output() -> Iterator[None]:
    """Page the output of the block if it is longer than the terminal."""
    if not sys.stdout.isatty():
        yield
        return
    output = StringIO()
    with redirect_stdout(output):
        yield
    text = output.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines:
        print(text, end="")
    else:
        pydoc.pager(text)


def _to_json(trace: "Trace", turns: Sequence[int]) -> dict[str, Any]:
    from assay.store.formats.trace_json import dump_line

    value: dict[str, Any] = json.loads(dump_line(trace))
    shown = set(turns)
    for name in ("calls", "played"):
        value[name] = [item for item in value[name] if item["turn"] in shown]
    return value


def _print_header(trace: "Trace", width: int | None) -> None:
    def print_text(line: str) -> None:
        """Print a line, wrapped at words in a terminal."""
        for part in textwrap.wrap(line, width) if width else [line]:
            print_line(part)

    session = trace.session
    header, end = session.header, session.end
    seed = "" if header.seed is None else f", seed {header.seed}"
    print_line(f"episode {header.session_id}: {header.subject} on {header.task}{seed}")
    print_line(f"experiment {trace.experiment.name}, run {header.run_id}")
    if header.parent is not None:
        fork = header.metadata.get("fork") or {}
        print_line(
            f"forked from {header.parent} at turn {fork.get('turn', '?')}: the first "
            f"{header.forked_at} steps are copied, and not charged again"
        )
    if end is not None:
        steps = [step for played in session.played for step in played.steps]
        names = [name for step in steps for name in step.unlocked]
        # The log of an imported session may have totals that its turns do not show.
        totals = {
            "num_turns": len(_list_turns(session)),
            "num_timesteps": len(steps),
            "num_achievements": len(names),
            "total_reward": sum(step.reward for step in steps),
            **session.imported_totals,
        }
        # Other environments have no achievements.
        has_any = totals["num_achievements"] or header.task.startswith("crafter/")
        achieved = f"{totals['num_achievements']} achievements, " if has_any else ""
        ending = (
            end.stop_reason
            if end.stop_reason.startswith("died")
            else f"ended by {end.stop_reason}"
        )
        print_text(
            f"{end.state}, {ending} after {totals['num_turns']} turns and"
            f" {totals['num_timesteps']} steps: {achieved}reward {totals['total_reward']:.1f}"
        )
        if end.outcomes and not has_any:
            outcomes = ", ".join(f"{name} {value:.6g}" for name, value in end.outcomes.items())
            print_text(f"outcomes: {outcomes}")
        if names:
            print_text(f"achievements: {', '.join(names)}")
        if end.error is not None:
            print_line(f"error: {end.error.type}: {end.error.message}")
    print_line("")


def _print_turns(
    session: "SessionRecord", turns: Sequence[int], width: int, *, full: bool
) -> None:
    calls: dict[int, list[CallRecord]] = {}
    for call in session.calls:
        calls.setdefault(call.turn, []).append(call)
    played = {record.turn: record for record in session.played}
    if not turns:
        print_line(f"no turns to show; the episode has {len(_list_turns(session))}")
    for turn in turns:
        first_call, *more = calls.get(turn, [None])
        print_line(f"turn {turn}{_format_call(first_call)}")
        messages = list(_list_messages(session, turn, first_call, full=full))
        for label, text in messages:
            if label == "saw" and (vitals := _find_vitals(text)):
                _print_part("vitals", vitals, width, full=True)
        if turn in played:
            for label, text in _describe_actions(played[turn]):
                _print_part(label, text, width, full=True)
        for label, text in sorted(messages, key=lambda part: part[0] == "saw"):
            _print_part(label, text, width, full=full)
        for retry in more:
            print_line(f"  another call{_format_call(retry)}")
            for label, text in _list_messages(session, turn, retry, full=full):
                _print_part(label, text, width, full=full)
        print_line("")


def _find_vitals(seen: str) -> str:
    """Return the vitals of the player in a Crafter observation; empty if there are none."""
    match = _VITALS_PATTERN.search(seen)
    if match is None:
        return ""
    return "health {}, food {}, drink {}, energy {}".format(*match.groups())


def _format_call(call: "CallRecord | None") -> str:
    if call is None:
        return ""
    dollars = "" if not call.cost_usd else f", ${call.cost_usd:.4f}"
    retries = "" if not call.retries else f", retried {call.retries}x"
    return (
        f"  ({call.usage.prompt} + {call.usage.completion} tokens, "
        f"{call.latency_s:.2f} s{dollars}{retries})"
    )


def _list_messages(
    session: "SessionRecord", turn: int, call: "CallRecord | None", *, full: bool
) -> Iterator[tuple[str, str]]:
    """Yield the last message to the model and its reply, each with a label."""
    messages = session.messages
    if call is not None:
        positions = call.request[-1:] or _find_message_before(messages, call.reply)
        replies = [messages[call.reply]]
    else:
        # Logs of other programs may contain replies without calls.
        replies = [
            message
            for message in messages
            if message.turn == turn and message.message.role == "assistant"
        ]
        positions = _find_message_before(messages, replies[0].position) if replies else ()
    for position in positions:
        yield "saw", messages[position].message.text
    for reply in replies:
        if reply.message.text.strip():
            yield "said", reply.message.text
        yield from (("thought", text) for text in _find_reasoning(reply.message))
        if full:
            for tool in reply.message.value.get("tool_calls") or ():
                yield "called", json.dumps(tool)


def _find_message_before(messages: "Sequence[MessageRecord]", position: int) -> tuple[int, ...]:
    """Return the position of the message before a reply, unless that is a reply, too."""
    is_request = position > 0 and messages[position - 1].message.role != "assistant"
    return (position - 1,) if is_request else ()


def _find_reasoning(reply: "Message") -> Iterator[str]:
    reasoning_text = reply.value.get("reasoning_content")
    if isinstance(reasoning_text, str) and reasoning_text.strip():
        yield reasoning_text
    for tool in reply.value.get("tool_calls") or ():
        try:
            reasoning = json.loads(tool["function"]["arguments"])["reasoning"]
        except (KeyError, TypeError, ValueError, RecursionError):
            continue  # models may write anything there
        if isinstance(reasoning, str) and reasoning.strip():
            yield reasoning


def _describe_actions(played: "PlayedRecord") -> Iterator[tuple[str, str]]:
    if played.asked:
        yield "asked", ", ".join(played.asked)
    if played.malformed is not None:
        yield "wrong", played.malformed
    if played.unknown:
        yield "unknown", ", ".join(played.unknown)
    for step in played.steps:
        yield "played", _format_step(step)
    if played.skipped:
        yield "skipped", f"{played.skipped} actions, because the episode had ended"
    for hook in played.hooks:
        where = "" if hook.step is None else f"step {hook.step}: "
        yield "hook", f"{hook.code} {hook.name}: {where}{hook.description}".rstrip(": ")


def _format_step(step: "StepRecord") -> str:
    parts = [f"{step.index:>4} {step.action}"]
    if step.no_effect is not None:
        parts.append(f"without effect: {step.no_effect}")
    if step.reward:
        parts.append(f"reward {step.reward:+.1f}")
    parts += [f"unlocked {name}" for name in step.unlocked]
    if step.terminated or step.truncated:
        parts.append("the episode ended")
    return ", ".join(parts)


def _print_part(label: str, text: str, width: int, *, full: bool) -> None:
    if not full:
        text = " ".join(text.split())
        text = text if len(text) <= _MAX_BRIEF else f"{text[: _MAX_BRIEF - 1]}…"
    room = width - _LABEL_WIDTH - 3
    lines = [part for line in text.split("\n") for part in _wrap_line(printable(line), room)]
    # One write for all lines: a full text may have tens of thousands.
    print(
        "\n".join(
            f"  {'' if i else label:<{_LABEL_WIDTH}} {line}".rstrip()
            for i, line in enumerate(lines)
        )
    )


def _wrap_line(line: str, room: int) -> list[str]:
    if len(line) > _MAX_BRIEF * 20:
        # Wrapping at words is too slow for lines of several megabytes.
        return [line[start : start + room] for start in range(0, len(line), room)]
    return textwrap.wrap(line, room) or [""]


_MAX_CAPTION = 300


class _ReplayView(NamedTuple):
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
    show: OutputOptions = OutputOptions(),
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
    with show_compilation(show):
        from assay.episodes.replay import verify_session

        replayed = replay(episode, database=store)
        verification = verify_session(replayed.session)
    view = _ReplayView(from_step, fps, size, _count_playable_steps(replayed, verification))
    if view.first > view.steps:
        raise UsageError(
            f"--from-step {from_step} is beyond the {view.steps} steps of this episode"
        )
    interrupted = _present(replayed, view, gif, frames, show)
    return _print_result(replayed, verification, gif or frames, show, interrupted=interrupted)


def _count_playable_steps(episode: "Replay", verification: "Verification") -> int:
    """Return the number of steps up to the first difference from the recording."""
    if verification.difference is None or verification.difference.step is None:
        return episode.steps
    return verification.steps


def _present(
    episode: "Replay",
    view: _ReplayView,
    gif: Path | None,
    frames: Path | None,
    show: OutputOptions,
) -> bool:
    """Show or draw the episode; return whether it was interrupted."""
    moments = _replay_steps(episode, view.steps)
    try:
        for _ in range(view.first):
            next(moments)
        if gif is not None:
            _write_gif(episode, moments, view, gif, show)
        elif frames is not None:
            _write_frames(episode, moments, view, frames, show)
        else:
            _show_on_screen(episode, moments, view, show)
    except KeyboardInterrupt:
        return True
    return False


def _replay_steps(episode: "Replay", steps: int) -> Iterator["Replayed"]:
    moments = iter(episode)
    for _ in range(steps):
        yield next(moments)


def _show_on_screen(
    episode: "Replay", moments: Iterator["Replayed"], view: _ReplayView, show: OutputOptions
) -> None:
    from assay.cli.screen import choose_screen
    from assay.crafter.players.episode import Moment
    from assay.crafter.rules import ACTIONS

    header = episode.session.header
    title = f"{header.subject}, seed {header.seed}, {header.difficulty or 'custom'}"
    replies = _collect_replies(episode.session)
    silent = show.json or show.quiet
    with choose_screen(printable(title), view.fps, live=True, silent=silent) as screen:
        for replayed in moments:
            step = Moment(
                episode.world.steps,
                ACTIONS.index(replayed.recorded.action),
                replayed.result,
            )
            turn = replayed.turn
            screen.show(episode, step, f"turn {turn}: {replies.get(turn, '')}")


def _write_gif(
    episode: "Replay",
    moments: Iterator["Replayed"],
    view: _ReplayView,
    path: Path,
    show: OutputOptions,
) -> None:
    from assay.cli.screen import Caption, Film

    caption = Caption()
    film = Film(lambda: caption.draw_below(episode.world.render(view.size)))
    try:
        with show_progress_bar(show, "drawing") as progress:
            for number, moment in enumerate(moments, 1):
                step = moment.recorded
                caption.update(step.index, step.action, step.unlocked)
                film.add_step(number)
                progress(number, view.steps - view.first)
    finally:
        film.save(path, fps=view.fps)


def _write_frames(
    episode: "Replay",
    moments: Iterator["Replayed"],
    view: _ReplayView,
    folder: Path,
    show: OutputOptions,
) -> None:
    from PIL import Image

    def draw_frame() -> None:
        picture = Image.fromarray(episode.world.render(view.size))
        picture.save(folder / f"step_{episode.world.steps:05}.png")

    try:
        folder.mkdir(parents=True, exist_ok=True)
        draw_frame()
        with show_progress_bar(show, "drawing") as progress:
            for number, _ in enumerate(moments, 1):
                draw_frame()
                progress(number, view.steps - view.first)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(
            f"cannot write to {str(folder)!r}: {reason}; choose another --frames folder"
        ) from error


def _collect_replies(session: "SessionRecord") -> dict[int, str]:
    """Return the model's reply in each turn as printable text."""
    messages = {record.position: record.message for record in session.messages}
    replies = ((call.turn, messages.get(call.reply)) for call in session.calls)
    return {
        turn: printable(_extract_reply(message)[:_MAX_CAPTION])
        for turn, message in replies
        if message
    }


def _extract_reply(message: "Message") -> str:
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


def _print_result(
    episode: "Replay",
    verification: "Verification",
    picture: Path | None,
    show: OutputOptions,
    *,
    interrupted: bool,
) -> int:
    header = episode.session.header
    steps, unlocked = episode.world.steps, episode.unlocked
    if show.json:
        print_json(
            {
                "session": header.session_id,
                "steps": steps,
                "reward": episode.reward,
                "achievements": unlocked,
                "finding": verification.finding,
                "difference": str(verification.difference) if verification.difference else None,
                "picture": None if picture is None else str(picture),
                "interrupted": interrupted,
            }
        )
    elif picture is not None and show.quiet:
        print_line(str(picture))
    elif not show.quiet:
        action = "interrupted after" if interrupted else "replayed"
        print_line(
            f"{action} {steps} of {episode.steps} steps of episode {header.session_id}: "
            f"{len(unlocked)} achievements, reward {episode.reward:.1f}"
        )
        if picture is not None:
            print_line(f"picture: {picture}")
    if verification.difference is not None:
        print_error(f"the replay differs from the recording: {verification.difference}")
    elif verification.reason is not None and not (show.json or show.quiet):
        print_line(f"not compared with the trace: {verification.reason}")
    return 130 if interrupted else 1 if verification.difference is not None else 0
