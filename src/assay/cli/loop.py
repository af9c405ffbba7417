"""`assay loop`: record a teacher, fine-tune a student, and compare them in an exam."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from assay.cli import run_options
from assay.cli.output import Show, note, say, say_json, say_report, working
from assay.cli.progress_text import cost, duration
from assay.cli.tables import say_table

if TYPE_CHECKING:
    from assay.api.loop import LoopResult
    from assay.finetune.loop import LoopConfig, StageEvent
    from assay.finetune.loop_stages import LoopPlan


def loop(
    config: Path | None = None,
    /,
    *,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    options: "run_options.LoopOptions | None" = None,
    show: Show = Show(),
) -> int:
    """Fine-tune a student on a teacher's episodes and test it on new worlds.

    One command for the whole loop: play, filter, fine-tune, play again, compare. Completed
    stages are kept: the same command runs only missing stages, and resumes an interrupted one.
    The exam is fixed before training, on worlds that are not in the training data.

    For example:

        assay loop examples/loop/quick.toml
        assay loop examples/loop/quick.toml --dry-run

    Args:
        config: TOML file with [teacher], [play], [filter], [finetune] and [exam].
        dry_run: Print the plan with estimated time and cost without starting anything.
        options: Settings of the loop; they override the file.
        show: Output options.
    """
    from assay.api.loop import plan_loop

    plan = plan_loop(config, **(options or {}))
    if dry_run:
        return _planned(plan, show)
    result = _looped(plan, show)
    if show.json:
        say_json(_as_json(result))
        return 0
    if not show.quiet:
        from assay.report.comparison.document import comparison_document
        from assay.report.terminal import TerminalReport

        say_report(TerminalReport(comparison_document(result.comparison), detail=False))
        say(f"the model: {result.student}")
        say(f"let it play: {_played_with(result)}")
    say(f"report: {result.report}")
    return 0


def _played_with(result: "LoopResult") -> str:
    """Return the command that runs the student with the settings of the loop."""
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
    from assay.api.loop import LoopWatch, run_loop
    from assay.cli.finetune_jobs import follow
    from assay.cli.output import counting
    from assay.cli.run import watched_run

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
        return run_loop(
            plan,
            watch=LoopWatch(
                stage=stage,
                play=lambda prepared: watched_run(prepared, show, 0),
                rows=rows,
                follow=lambda jobs, database, every: follow(jobs, database, every, show)[0],
                notice=lambda words: None if silent else note(words),
            ),
        )


def _planned(plan: "LoopPlan", show: Show) -> int:
    from assay.api.loop import estimate_loop

    config = plan.config
    with working(show, "estimating"):
        estimate = estimate_loop(plan)
    if show.json:
        say_json(
            {
                "config": config.stored(),
                "database": str(plan.database),
                "stages": [asdict(stage) for stage in estimate.stages],
                "seconds": estimate.seconds,
                "dollars": estimate.dollars,
                "budget": estimate.budget,
            }
        )
        return 0
    for name, words in _stages_in_words(config).items():
        say(f"{name}: {words}")
    say("")
    rows = [
        (each.name, _time(each.seconds), _dollars(each.dollars), each.why)
        for each in estimate.stages
    ]
    rows.append(("in all", _time(estimate.seconds), _dollars(estimate.dollars), ""))
    say_table(("stage", "~time", "~cost", ""), rows, ("stage", ""))
    say("An estimate for episodes that take all their turns; those that end early cost less.")
    if estimate.budget is not None:
        say(f"The budget is {_dollars(estimate.budget)}, for all stages together.")
    say("nothing was started (--dry-run)")
    return 0


def _stages_in_words(config: "LoopConfig") -> dict[str, str]:
    taught, asked = config.teacher_seed, config.exam_seed
    beside = "".join(f", {name}" for name in config.beside)
    return {
        "teach": f"{config.teacher} plays seeds {taught} to"
        f" {taught + config.teacher_worlds - 1}, up to {config.max_turns} turns each",
        "filter": f"holds out {config.holdout} of the worlds to validate by",
        "finetune": f"{config.student} at backend {config.backend}",
        "exam": f"{config.student} before and after{beside}, on seeds {asked} to"
        f" {asked + config.exam_worlds - 1}",
    }


def _time(seconds: float | None) -> str:
    return "not known" if seconds is None else duration(seconds)


def _dollars(amount: float | None) -> str:
    return "not known" if amount is None else cost(amount)


def _as_json(result: "LoopResult") -> dict[str, Any]:
    from assay.report.comparison.document import comparison_document

    return {
        "model": result.student,
        "report": str(result.report),
        "stages": [done._asdict() for done in result.stages.values()],
        "comparison": comparison_document(result.comparison).values(),
    }
