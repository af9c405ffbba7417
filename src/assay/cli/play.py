"""`assay play`: watch one episode of a scripted policy."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from assay.cli.output import OutputOptions, print_json, print_line, show_compilation
from assay.cli.tables import Whole
from assay.errors import UsageError
from assay.types import StopReason

if TYPE_CHECKING:
    from assay.crafter.players.episode import PolicyEpisode


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class _AnimationOptions:
    """Options for the animation of an episode."""

    output: Path = Path("play")
    """Folder for the GIF, created if missing."""
    fps: Annotated[Whole, Parameter(validator=Number(gte=1, lte=50))] = 12
    """Steps per second in the terminal and in the GIF; at most 50."""
    size: Whole = 288
    """Width and height of the GIF in pixels."""
    live: bool = True
    """Show the world in the terminal during the episode."""


def play(
    *,
    policy: str = "random",
    seed: Whole = 0,
    difficulty: str = "classic",
    max_steps: Annotated[
        Whole | None,
        Parameter(validator=Number(gte=1), show_default="until the episode ends"),
    ] = None,
    animation: _AnimationOptions = _AnimationOptions(),
    show: OutputOptions = OutputOptions(),
) -> int:
    """Play one episode with a scripted policy and write a GIF of it.

    A terminal shows the episode live; otherwise a line is printed for each achievement. Ctrl-C
    ends the episode and writes the GIF up to there.

    For example:

        assay play --policy random --seed 7 --output demo

    Args:
        policy: Policy to run. [choices: noop, random, expert]
        seed: Seed of the world and the policy.
        difficulty: Rules of the world. [choices: classic, easy, medium, hard]
        max_steps: Maximum number of steps.
        animation: Options for the animation.
        show: Output options.
    """
    from assay.cli.screen import Caption, Film, choose_screen

    with show_compilation(show):
        from assay.api.servers import play
        from assay.crafter.rules import ACTIONS

        episode = play(policy, seed=seed, difficulty=difficulty, max_steps=max_steps)
        caption = Caption()
        film = Film(lambda: caption.draw_below(episode.world.render(animation.size)))
    _make_directory(animation.output)
    title = f"{policy}, seed {seed}, {difficulty}"
    interrupted = False
    try:
        with choose_screen(
            title, animation.fps, live=animation.live, silent=show.json or show.quiet
        ) as screen:
            for moment in episode:
                caption.update(moment.step, ACTIONS[moment.action], moment.result.unlocked)
                film.add_step(moment.step)
                screen.show(episode, moment)
    except KeyboardInterrupt:
        interrupted = True
    path = animation.output / f"{policy}-{difficulty}-seed{seed}.gif"
    film.save(path, fps=animation.fps)
    _print_result(episode, path, show, interrupted=interrupted)
    return 130 if interrupted else 0


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"cannot write to {str(path)!r}: {reason}; name another --output"
        ) from error


def _print_result(
    episode: "PolicyEpisode", path: Path, show: OutputOptions, *, interrupted: bool
) -> None:
    from assay.crafter.rules import ACHIEVEMENTS

    world = episode.world
    if show.json:
        print_json(
            {
                "seed": world.seed,
                "steps": world.steps,
                "ended": "interrupted" if interrupted else episode.ended,
                "reward": round(episode.reward, 6),
                "achievements": episode.unlocked,
                "digest": f"{world.digest():016x}",
                "picture": str(path),
            }
        )
        return
    if show.quiet:
        print_line(str(path))
    else:
        ending = "interrupted" if interrupted else _END_TEXTS[episode.ended or ""]
        print_line(
            f"{ending} after {world.steps} steps:"
            f" {len(episode.unlocked)} of {len(ACHIEVEMENTS)} achievements,"
            f" reward {episode.reward:.1f}"
        )
        print_line(f"picture: {path}")


_END_TEXTS: dict[str, str] = {
    StopReason.DIED: "died",
    StopReason.LENGTH: "reached the maximum length",
    StopReason.MAX_STEPS: "stopped",
}
