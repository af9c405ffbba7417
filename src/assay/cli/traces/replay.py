"""`assay traces replay`: a stored episode to look at."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter
from cyclopts.validators import Number

from assay._util.text import printable
from assay.cli.database import Database, open_store
from assay.cli.numbers import Whole
from assay.cli.output import Show, compiling_shown, complain, say, say_json
from assay.cli.traces.counting import counting
from assay.errors import OutputError, UsageError
from assay.traces.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.metrics import Replay, Replayed, Verification
    from assay.traces.records import SessionRecord
    from assay.types import Message

__all__ = ["replay"]

_SAID = 300


class _Shot(NamedTuple):
    """What is to be shown of a replay, and how."""

    first: int
    """The step after which showing starts."""
    fps: int
    size: int
    steps: int
    """How many steps are played again."""


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

    In a terminal you watch it, with what the model said beside it; elsewhere each
    achievement prints a line. The world is computed again from its seed and compared with
    the recording; if they differ, the replay stops there.

    For example:

        assay traces replay best
        assay traces replay best --gif best.gif

    Args:
        episode: The id of an episode or the start of it; or 'best' or 'worst' of the latest
            run; or 'latest'.
        gif: Write a GIF to this file; show nothing.
        frames: Write a PNG per step into this folder; show nothing.
        fps: Steps per second; at most 50.
        from_step: Start showing after this step.
        size: Width and height of the images in pixels.
        database: The store to read.
        show: What to print.
    """
    if gif is not None and frames is not None:
        raise UsageError("give --gif or --frames, not both")
    from assay import api

    store = open_store(database, show)
    with compiling_shown(show):
        from assay.metrics import verify_session

        replayed = api.replay(episode, database=store)
        found = verify_session(replayed.session)
    shot = _Shot(from_step, fps, size, _playable(replayed, found))
    if shot.first > shot.steps:
        raise UsageError(
            f"--from-step {from_step} is beyond the {shot.steps} steps of this episode"
        )
    interrupted = _show(replayed, shot, gif, frames, show)
    return _report(replayed, found, gif or frames, show, interrupted=interrupted)


def _playable(episode: "Replay", found: "Verification") -> int:
    """How many steps can be shown: up to the first that is not what was recorded."""
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
    from assay.crafter import ACTIONS
    from assay.players import Moment

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
    from assay.cli.film import Caption, Film

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
    """What the model said in each turn, fit for a terminal."""
    messages = {record.position: record.message for record in session.messages}
    said = ((call.turn, messages.get(call.reply)) for call in session.calls)
    return {turn: printable(_said(message)[:_SAID]) for turn, message in said if message}


def _said(message: "Message") -> str:
    """The words of a reply, or the reasoning it gave with its actions."""
    if message.text.strip():
        return message.text.strip()
    for call in message.value.get("tool_calls") or ():
        try:
            arguments = json.loads(call["function"]["arguments"])
            reasoning = arguments["reasoning"]
        except (KeyError, TypeError, ValueError, RecursionError):
            continue  # whatever a model wrote there, it is not a reasoning
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
