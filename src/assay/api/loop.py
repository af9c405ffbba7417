"""The fine-tuning loop, composed of the functions behind the single commands."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.finetune.loop import (
    LoopConfig,
    StageEvent,
    StageResult,
    find_completed_stages,
    run_stages,
)
from assay.finetune.loop_stages import (
    EXAM,
    FINETUNE,
    LOCAL,
    LoopEstimate,
    LoopPlan,
    LoopStages,
)

if TYPE_CHECKING:
    from assay.episodes.config import RunConfig
    from assay.episodes.estimate import RunEstimate
    from assay.finetune.datasets.build import BuiltDataset
    from assay.judge.results import Comparison
    from assay.runs.kind import PreparedRun
    from assay.runs.run import RunResult
    from assay.store.finetune_jobs import FinetuneJob


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResult:
    """Result of a loop."""

    plan: LoopPlan
    stages: Mapping[str, StageResult]
    comparison: "Comparison"
    """Comparison of the student before and after, and of the other entries in the exam."""
    student: str
    """Name of the fine-tuned model."""
    report: Path


def _run_silently(prepared: "PreparedRun[RunConfig]") -> "RunResult":
    from assay.api.runs import run_prepared

    return run_prepared(prepared)


def _follow_silently(
    jobs: "Sequence[FinetuneJob]", database: Path, interval: float
) -> "Sequence[FinetuneJob]":
    from assay.finetune.follow import finetune_follow

    last = {job.id: job for job in jobs}
    for progress in finetune_follow(jobs, database=database, poll_interval=interval):
        last[progress.job.id] = progress.job
    return list(last.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopWatch:
    """Callbacks that observe a loop; the defaults show nothing."""

    stage: Callable[[StageEvent], None] = lambda event: None
    """Called when a stage starts and ends."""
    play: "Callable[[PreparedRun[RunConfig]], RunResult]" = _run_silently
    """Executes a run, and may show its progress."""
    rows: Callable[[int, int], None] = lambda done, total: None
    """Called with the number of turns that were turned into rows, and their total."""
    follow: "Callable[[Sequence[FinetuneJob], Path, float], Sequence[FinetuneJob]]" = (
        _follow_silently
    )
    """Follows jobs to their end, with a database and a polling interval in seconds."""
    notice: Callable[[str], None] = lambda words: None


_SILENT: Final = LoopWatch()


class _StageActions:
    """Actions of the stages, which call the functions behind other commands."""

    def __init__(self, watch: LoopWatch) -> None:
        self._watch, self.follow = watch, watch.follow

    def play(self, settings: Mapping[str, Any], run_id: str) -> "RunResult":
        from assay.api.run_preparation import prepare

        prepared = prepare(settings, run_id=run_id, command="assay loop", source="assay.loop")
        return self._watch.play(prepared)

    def estimate(self, settings: Mapping[str, Any]) -> "RunEstimate":
        from assay.api.run_preparation import prepare
        from assay.api.runs import estimate

        return estimate(prepare(settings, dry=True, fresh=True, source="assay.loop"))

    def make_data(self, output: Path, **options: Any) -> "BuiltDataset":
        from assay.api.sft import sft_filter

        rows = self._watch.rows
        return sft_filter(output, **options, card=True, command="assay loop", progress=rows)


def plan_loop(config: Path | str | None = None, **settings: Any) -> LoopPlan:
    """Resolve the settings of a loop; nothing is started.

    Args:
        config: TOML file; `settings` override it.
        **settings: Values by the names of `LoopConfig`.

    Raises:
        UsageError: A value is invalid, or the exam overlaps with the teaching data.
    """
    from assay.runs.configuration import resolve

    file = None if config is None else Path(config)
    resolved = resolve(LoopConfig, settings, file, source="assay.loop")
    loop_config = resolved.config
    database = loop_config.database or loop_config.folder / "traces.duckdb"
    return LoopPlan(config=loop_config, database=database, warnings=resolved.warnings)


def run_loop(
    plan: LoopPlan | Path | str | None = None, *, watch: LoopWatch = _SILENT, **settings: Any
) -> LoopResult:
    """Run a loop: teach, train, examine, and compare the student before and after.

    Stages that were completed with the same settings are skipped, and a stopped loop resumes
    with its current stage.

    Args:
        plan: TOML file, or a plan returned by `plan_loop`.
        watch: Callbacks that observe the loop.
        **settings: Values by the names of `LoopConfig`; they override the file.

    Raises:
        LoopStopped: A stage was stopped, and can be resumed.
        AssayError: A stage failed; its note names the stage.
    """
    if not isinstance(plan, LoopPlan):
        plan = plan_loop(plan, **settings)
    config = plan.config
    for warning in plan.warnings:
        watch.notice(warning)
    loop = LoopStages(plan, _StageActions(watch))
    stages, log = loop.list_stages(), loop.log
    if config.backend == LOCAL and len(find_completed_stages(stages, log)) < len(stages):
        _find_service(watch)
    config.folder.mkdir(parents=True, exist_ok=True)
    done = run_stages(stages, log, watch.stage)
    student = done[FINETUNE].result["model"]
    exam = done[EXAM].result["run"]
    from assay.api.comparison import compare

    comparison = compare(exam, database=plan.database)
    report = _write_report(plan, done, comparison)
    return LoopResult(
        plan=plan, stages=done, comparison=comparison, student=student, report=report
    )


def _find_service(watch: LoopWatch) -> None:
    """Start the local service if needed; raise before the teaching if it cannot train."""
    from assay.finetune.start import choose_backend, locate_service
    from assay.models.local_service import check_local, ensure_local

    address = locate_service(choose_backend(LOCAL, None), None).address
    assert address is not None
    ensure_local(address, watch.notice)
    check_local(address)


def _write_report(
    plan: LoopPlan, done: Mapping[str, StageResult], comparison: "Comparison"
) -> Path:
    from assay.finetune.follow import finetune_events
    from assay.report.files import write_document
    from assay.report.loop import LoopFacts, TrainingPoint, loop_document

    events = finetune_events(done[FINETUNE].result["job"], database=plan.database)
    points = [
        TrainingPoint(event.step, event.metrics) for event in events if event.step is not None
    ]
    costs = [stage.result["cost_usd"] for stage in done.values() if "cost_usd" in stage.result]
    facts = LoopFacts(
        config=plan.config,
        stages=done,
        comparison=comparison,
        training=sorted(points, key=lambda point: point.step),
        cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
    )
    report = plan.config.folder / "report.html"
    document = loop_document(facts)
    write_document(document, report, report.with_suffix(".json"))
    return report


def estimate_loop(plan: LoopPlan) -> LoopEstimate:
    """Estimate each stage of a loop from earlier runs in its folder, or from known values.

    Needs no key, network or optional package, and writes nothing.
    """
    return LoopStages(plan, _StageActions(_SILENT)).estimate()
