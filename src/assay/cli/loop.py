"""`assay loop`: record a teacher, fine-tune a student, and compare them in an exam."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from assay.cli import run_options
from assay.cli.output import (
    OutputOptions,
    print_json,
    print_line,
    print_note,
    print_report,
    show_spinner,
)
from assay.cli.progress_text import format_cost, format_duration
from assay.cli.tables import print_table

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
    show: OutputOptions = OutputOptions(),
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
        return _print_plan(plan, show)
    result = _run_loop(plan, show)
    if show.json:
        print_json(_to_json(result))
        return 0
    if not show.quiet:
        from assay.report.comparison.document import comparison_document
        from assay.report.terminal import TerminalReport

        print_report(TerminalReport(comparison_document(result.comparison), detail=False))
        print_line(f"model: {result.student}")
        print_line(f"run it: {_format_run_command(result)}")
    print_line(f"report: {result.report}")
    return 0


def _format_run_command(result: "LoopResult") -> str:
    """Return the command that runs the student with the settings of the loop."""
    config = result.plan.config
    options = {
        "--models": result.student,
        "--difficulty": config.difficulty,
        "--view": config.view,
        "--history": config.history,
        "--actions-per-turn": config.actions_per_turn,
        "--temperature": config.temperature,
        "--max-tokens": config.max_tokens,
        "--database": result.plan.database,
    }
    words = [str(word) for pair in options.items() for word in pair]
    return shlex.join(["assay", "run", *words])


def _run_loop(plan: "LoopPlan", show: OutputOptions) -> "LoopResult":
    from assay.api.loop import LoopWatch, run_loop
    from assay.cli.finetune_jobs import follow_jobs
    from assay.cli.output import show_progress_bar
    from assay.cli.run import run_with_display

    silent = show.quiet or show.json

    def print_stage(event: "StageEvent") -> None:
        if silent:
            return
        what = f"{event.number}/{event.of} {event.stage.name}: {event.stage.about}"
        if event.done is None:
            print_note(what)
        elif event.kept:
            print_note(f"{what} (already done)")

    with show_progress_bar(show, "writing rows") as rows:
        return run_loop(
            plan,
            watch=LoopWatch(
                stage=print_stage,
                play=lambda prepared: run_with_display(prepared, show, 0),
                rows=rows,
                follow=lambda jobs, database, every: follow_jobs(jobs, database, every, show)[
                    0
                ],
                notice=lambda words: None if silent else print_note(words),
            ),
        )


def _print_plan(plan: "LoopPlan", show: OutputOptions) -> int:
    from assay.api.loop import estimate_loop

    config = plan.config
    with show_spinner(show, "estimating"):
        estimate = estimate_loop(plan)
    if show.json:
        print_json(
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
    for name, words in _describe_stages(config).items():
        print_line(f"{name}: {words}")
    print_line("")
    rows = [
        (stage.name, _format_time(stage.seconds), _format_dollars(stage.dollars), stage.why)
        for stage in estimate.stages
    ]
    rows.append(
        ("total", _format_time(estimate.seconds), _format_dollars(estimate.dollars), "")
    )
    print_table(("stage", "~time", "~cost", ""), rows, ("stage", ""))
    print_line("Estimated for episodes that use all their turns; shorter episodes cost less.")
    if estimate.budget is not None:
        print_line(f"The budget for all stages is {_format_dollars(estimate.budget)}.")
    print_line("nothing was started (--dry-run)")
    return 0


def _describe_stages(config: "LoopConfig") -> dict[str, str]:
    teacher_seed, exam_seed = config.teacher_seed, config.exam_seed
    others = "".join(f", {name}" for name in config.beside)
    return {
        "teach": f"{config.teacher} plays seeds {teacher_seed} to"
        f" {teacher_seed + config.teacher_worlds - 1}, up to {config.max_turns} turns each",
        "filter": f"holds out {config.holdout} of the worlds for validation",
        "finetune": f"{config.student} at backend {config.backend}",
        "exam": f"{config.student} before and after{others}, on seeds {exam_seed} to"
        f" {exam_seed + config.exam_worlds - 1}",
    }


def _format_time(seconds: float | None) -> str:
    return "unknown" if seconds is None else format_duration(seconds)


def _format_dollars(amount: float | None) -> str:
    return "unknown" if amount is None else format_cost(amount)


def _to_json(result: "LoopResult") -> dict[str, Any]:
    from assay.report.comparison.document import comparison_document

    return {
        "model": result.student,
        "report": str(result.report),
        "stages": [done._asdict() for done in result.stages.values()],
        "comparison": comparison_document(result.comparison).values(),
    }
