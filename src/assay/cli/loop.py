"""`assay loop`: teach, train, examine, judge."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from assay.cli import run_options
from assay.cli.output import Show, note, say, say_json, say_report

if TYPE_CHECKING:
    from assay.api import LoopPlan, LoopResult
    from assay.loop import StageEvent

__all__ = ["loop"]


def loop(
    config: Path | None = None,
    /,
    *,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    options: "run_options.LoopOptions | None" = None,
    show: Show = Show(),
) -> int:
    """Let a teacher play, train a student on it, and examine both on fresh worlds.

    One command for the whole loop: play, filter, fine-tune, play again, compare. What is done
    is kept; the same command again does only what is missing, and resumes a stage that was
    stopped. The exam is fixed before anything is trained, on worlds that nobody was taught on.

    For example:

        assay loop examples/loop/quick.toml
        assay loop examples/loop/quick.toml --dry-run

    Args:
        config: A TOML file with [teacher], [play], [filter], [finetune] and [exam].
        dry_run: Show what would be done; nothing is started.
        options: What to choose, before the file.
        show: What to print.
    """
    from assay import api

    plan = api.plan_loop(config, **(options or {}))
    if dry_run:
        return _planned(plan, show)
    result = _looped(plan, show)
    if show.json:
        say_json(_as_json(result))
        return 0
    if not show.quiet:
        from assay.report.comparison import comparison_document
        from assay.report.terminal import TerminalReport

        say_report(TerminalReport(comparison_document(result.comparison), detail=False))
        say(f"the model: {result.student}")
        say(f"let it play: {_played_with(result)}")
    say(f"report: {result.report}")
    return 0


def _played_with(result: "LoopResult") -> str:
    """The command with which the student plays as it was taught."""
    config = result.plan.config
    given = {
        "--models": result.student,
        "--difficulty": config.difficulty,
        "--view": config.view,
        "--history": config.history,
        "--actions-per-turn": config.actions_per_turn,
        "--temperature": config.temperature,
        "--max-tokens": config.max_tokens,
        "--database": result.plan.database,
    }
    words = [str(word) for pair in given.items() for word in pair]
    return shlex.join(["assay", "run", *words])


def _looped(plan: "LoopPlan", show: Show) -> "LoopResult":
    from assay import api
    from assay.cli.finetune.watching import follow
    from assay.cli.run import watched_run
    from assay.cli.traces.counting import counting

    silent = show.quiet or show.json

    def stage(event: "StageEvent") -> None:
        if silent:
            return
        what = f"{event.number}/{event.of} {event.stage.name}: {event.stage.about}"
        if event.done is None:
            note(what)
        elif event.kept:
            note(f"{what} (done before)")

    with counting(show, "making rows") as rows:
        return api.run_loop(
            plan,
            watch=api.LoopWatch(
                stage=stage,
                play=lambda prepared: watched_run(prepared, show, 0),
                rows=rows,
                follow=lambda jobs, database, every: follow(jobs, database, every, show)[0],
                notice=lambda words: None if silent else note(words),
            ),
        )


def _planned(plan: "LoopPlan", show: Show) -> int:
    config = plan.config
    stored = config.stored()
    if show.json:
        say_json({"config": stored, "database": str(plan.database)})
        return 0
    games = config.teacher_worlds + (2 + len(config.beside)) * config.exam_worlds
    say(
        f"teach: {config.teacher} plays seeds {config.teacher_seed} to"
        f" {config.teacher_seed + config.teacher_worlds - 1}"
    )
    say(f"filter: holds out {config.holdout} of the worlds to validate by")
    say(f"finetune: {config.student} at backend {config.backend}")
    say(
        f"exam: {config.student} before and after, {', '.join(config.beside)}, on seeds"
        f" {config.exam_seed} to {config.exam_seed + config.exam_worlds - 1}"
    )
    say(f"{games} episodes of up to {config.step_limit} steps; nothing was started")
    return 0


def _as_json(result: "LoopResult") -> dict[str, Any]:
    from assay.report.comparison import comparison_document

    return {
        "model": result.student,
        "report": str(result.report),
        "stages": [done._asdict() for done in result.stages.values()],
        "comparison": comparison_document(result.comparison).values(),
    }
