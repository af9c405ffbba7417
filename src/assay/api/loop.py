"""The closed loop, composed of what the single commands do.

What a loop would take and cost, stage by stage, before anything is started.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.agents.chat_models import price_of
from assay.errors import AssayError, LoopStopped, ServiceError, UsageError
from assay.finetune.loop import (
    LoopConfig,
    Notebook,
    Stage,
    StageDone,
    StageEvent,
    done_before,
    run_stages,
)

if TYPE_CHECKING:
    from assay.episodes.config import RunConfig
    from assay.finetune.plan import PlannedJob
    from assay.finetune.start import FinetunePlan
    from assay.judge.results import Comparison
    from assay.runs.kind import PreparedRun
    from assay.runs.run import RunResult
    from assay.store.finetune_jobs import FinetuneJob

TEACH, FILTER, FINETUNE, EXAM = "teach", "filter", "finetune", "exam"
_PUPIL, _PRACTICE, _RELABEL = "pupil", "practice", "relabel"
_PLAY: Final = (
    "difficulty",
    "view",
    "history",
    "actions_per_turn",
    "step_limit",
    "max_turns",
)
_LOCAL: Final = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPlan:
    """What a loop would do."""

    config: LoopConfig
    database: Path
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResult:
    """What came of a loop."""

    plan: LoopPlan
    stages: Mapping[str, StageDone]
    comparison: "Comparison"
    """Of the student before and after, and of who sat the exam beside it."""
    student: str
    """The name of the model that was made."""
    report: Path


def _play(prepared: "PreparedRun[RunConfig]") -> "RunResult":
    from assay.api.runs import run_prepared

    return run_prepared(prepared)


def _follow(
    jobs: "Sequence[FinetuneJob]", database: Path, interval: float
) -> "Sequence[FinetuneJob]":
    from assay.finetune.follow import finetune_follow

    last = {job.id: job for job in jobs}
    for progress in finetune_follow(jobs, database=database, poll_interval=interval):
        last[progress.job.id] = progress.job
    return list(last.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopWatch:
    """Who watches a loop; by default nobody."""

    stage: Callable[[StageEvent], None] = lambda event: None
    """Told when a stage begins and ends."""
    play: "Callable[[PreparedRun[RunConfig]], RunResult]" = _play
    """Plays a run, and shows it."""
    rows: Callable[[int, int], None] = lambda done, total: None
    """Told how many turns have become rows."""
    follow: "Callable[[Sequence[FinetuneJob], Path, float], Sequence[FinetuneJob]]" = _follow
    """Follows jobs of a store to their end, asking every so many seconds, and shows them."""
    notice: Callable[[str], None] = lambda words: None


_NOBODY: Final = LoopWatch()


def plan_loop(config: Path | str | None = None, **settings: Any) -> LoopPlan:
    """Settle what a loop would do; starts nothing.

    Args:
        config: A TOML file; what is given here counts before it.
        **settings: By the names of `LoopConfig`.

    Raises:
        UsageError: A value is not allowed, or the exam is among what is taught.
    """
    from assay.runs.configuration import resolve

    file = None if config is None else Path(config)
    found = resolve(LoopConfig, settings, file, source="assay.loop")
    chosen = found.config
    database = chosen.database or chosen.folder / "traces.duckdb"
    return LoopPlan(config=chosen, database=database, warnings=found.warnings)


def run_loop(
    plan: LoopPlan | Path | str | None = None, *, watch: LoopWatch = _NOBODY, **settings: Any
) -> LoopResult:
    """Teach, train and examine, and say whether the student got better.

    What was done with the same settings is not done again, and a loop that was stopped
    resumes with the stage it was in.

    Args:
        plan: A TOML file, or what `plan_loop` made of one.
        watch: Who watches.
        **settings: By the names of `LoopConfig`; they count before the file.

    Raises:
        LoopStopped: A stage was stopped, and can be resumed.
        AssayError: A stage failed; its note names the stage.
    """
    if not isinstance(plan, LoopPlan):
        plan = plan_loop(plan, **settings)
    config = plan.config
    for warning in plan.warnings:
        watch.notice(warning)
    stages, notebook = stages_of(plan, watch), Notebook(config.folder / "loop.json")
    if config.backend == _LOCAL and len(done_before(stages, notebook)) < len(stages):
        _find_service(watch)
    config.folder.mkdir(parents=True, exist_ok=True)
    done = run_stages(stages, notebook, watch.stage)
    student = done[FINETUNE].result["model"]
    exam = done[EXAM].result["run"]
    from assay.api.comparison import compare

    comparison = compare(exam, database=plan.database)
    report = _reported(plan, done, comparison)
    return LoopResult(
        plan=plan, stages=done, comparison=comparison, student=student, report=report
    )


def _find_service(watch: LoopWatch) -> None:
    """Learn before anything is taught that nobody can train."""
    from assay.finetune.start import backend_of, place_of
    from assay.models.local_service import check_local, ensure_local

    address = place_of(backend_of(_LOCAL, None), None).address
    assert address is not None
    ensure_local(address, watch.notice)
    check_local(address)


def stages_of(plan: LoopPlan, watch: LoopWatch) -> list[Stage]:
    """What a loop does, in its order."""
    config = plan.config
    stored = config.stored()
    play = {name: stored[name] for name in _PLAY}

    def of(*names: str) -> dict[str, Any]:
        return {name: stored[name] for name in names}

    training = ("student", "backend", "batch_size", "learning_rate", "training_seed", "suffix")

    def round_of(number: int) -> list[Stage]:
        """A pupil plays, and the data gets the expert's answers to what it came to."""
        pupil, practice = f"{_PUPIL}-{number + 1}", f"{_PRACTICE}-{number + 1}"
        return [
            Stage(
                pupil,
                f"a pupil, {config.student}, is trained on it",
                of("relabel_epochs", *training),
                lambda key, before: _trained(plan, before, config.relabel_epochs, None, watch),
            ),
            Stage(
                practice,
                f"the pupil plays {config.relabel_worlds} worlds",
                {**play, **of("relabel_worlds", "relabel_temperature", "max_tokens")},
                lambda key, before: _played(
                    plan,
                    key,
                    practice,
                    [before[pupil]["model"]],
                    config.relabel_worlds,
                    config.practice_seed(number),
                    watch,
                    _cost(before),
                ),
                lambda result: _is_stored(plan, result["run"]),
            ),
            Stage(
                f"{_RELABEL}-{number + 1}",
                "the expert says what it would have done there",
                {},
                lambda key, before: _filtered(plan, key, before, watch),
                lambda result: Path(result["data"]).exists(),
            ),
        ]

    return [
        Stage(
            TEACH,
            f"{config.teacher} plays {config.teacher_worlds} worlds",
            {**play, **of("teacher", "teacher_worlds", "teacher_seed")},
            lambda key, _: _played(
                plan,
                key,
                TEACH,
                [config.teacher],
                config.teacher_worlds,
                config.teacher_seed,
                watch,
            ),
            lambda result: _is_stored(plan, result["run"]),
        ),
        Stage(
            FILTER,
            "the best of it becomes training data",
            of("min_achievements", "top", "drop_notes", "holdout"),
            lambda key, before: _filtered(plan, key, before, watch),
            lambda result: Path(result["data"]).exists(),
        ),
        *(stage for number in range(config.relabel_rounds) for stage in round_of(number)),
        Stage(
            FINETUNE,
            f"{config.student} is trained on it",
            {
                **of("epochs", *training),
                # Keys of loops that were begun before there was this setting stay the same.
                **({} if config.subset is None else of("subset")),
            },
            lambda key, before: _trained(plan, before, config.epochs, config.subset, watch),
        ),
        Stage(
            EXAM,
            f"all play {config.exam_worlds} fresh worlds",
            {
                **play,
                **of("exam_worlds", "exam_seed", "until_decided", "beside"),
                **of("temperature", "max_tokens"),
            },
            lambda key, before: _played(
                plan,
                key,
                EXAM,
                [config.student, before[FINETUNE]["model"], *config.beside],
                config.exam_worlds,
                config.exam_seed,
                watch,
                _cost(before),
            ),
            lambda result: _is_stored(plan, result["run"]),
        ),
    ]


def _played(
    plan: LoopPlan,
    key: str,
    stage: str,
    models: list[str],
    worlds: int,
    seed: int,
    watch: LoopWatch,
    spent: float = 0.0,
) -> dict[str, Any]:
    """A run of its own, whose id follows from the key: the same call resumes it."""
    from assay.api.run_preparation import prepare

    config = plan.config
    run_id = f"{stage}-{key[:12]}"
    if not _is_stored(plan, run_id):
        budget = None if config.budget is None else config.budget - spent
        if budget is not None and budget <= 0:
            raise LoopStopped(
                f"the budget is spent: ${spent:.2f} of ${config.budget:.2f}; give a larger"
                " --budget to continue"
            )
        settings = {**run_settings(plan, stage, models, worlds, seed), "budget": budget}
        prepared = prepare(settings, run_id=run_id, command="assay loop", source="assay.loop")
        result = watch.play(prepared)
        if result.status != "finished":
            raise LoopStopped(
                f"{stage} is not finished: {_why(result)}; the same command resumes it"
            )
    return {
        "run": run_id,
        "models": models,
        "worlds": worlds,
        "seed": seed,
        "cost_usd": _spent(plan, run_id),
    }


def run_settings(
    plan: LoopPlan, stage: str, models: list[str], worlds: int, seed: int
) -> dict[str, Any]:
    """The settings of the run of a stage, but for its budget."""
    config = plan.config
    stored = config.stored()
    student: dict[str, Any] = {}
    if stage != TEACH:
        examined = stage == EXAM
        student = {
            "max_tokens": config.max_tokens,
            "temperature": config.temperature if examined else config.relabel_temperature,
        }
        if examined and config.until_decided:
            student["until_decided"] = "achievements"
    return {
        "models": models,
        "episodes": worlds,
        "seed": seed,
        "baselines": False,
        **student,
        "price": config.price,
        "max_concurrent_episodes": config.concurrent,
        "database": plan.database,
        "traces_dir": config.folder / "traces",
        **{name: stored[name] for name in _PLAY},
    }


def _spent(plan: LoopPlan, run_id: str) -> float:
    """Dollars of a run, as far as prices are known."""
    from assay.store.queries import episodes
    from assay.store.store import Store

    with Store(plan.database).reading() as connection:
        return sum(row.cost_usd or 0.0 for row in episodes(connection, run_id=run_id))


def _why(result: "RunResult") -> str:
    stops = [str(tally.stop.reason) for tally in result.tallies.values() if tally.stop]
    told = (result.stopped_by, *stops, result.last_trouble)
    return next((reason for reason in told if reason), "it was interrupted")


def _is_stored(plan: LoopPlan, run_id: str) -> bool:
    """Whether a run is in the store, and finished."""
    from assay.store.load import load_stored_run
    from assay.store.store import Store

    if not plan.database.exists():
        return False
    with Store(plan.database).reading() as connection:
        try:
            return bool(load_stored_run(connection, run_id).status == "finished")
        except AssayError:
            return False


def _cost(before: Mapping[str, Mapping[str, Any]]) -> float:
    """Dollars of the stages before."""
    return float(sum(result.get("cost_usd") or 0.0 for result in before.values()))


def _filtered(
    plan: LoopPlan, key: str, before: Mapping[str, Mapping[str, Any]], watch: LoopWatch
) -> dict[str, Any]:
    """Rows of all that was played; where pupils played too, all answers are the expert's.

    What the teacher must come to is not asked of pupils: their mistakes are wanted.
    """
    from assay.api.sft import sft_filter

    config = plan.config
    runs = [result["run"] for result in before.values() if "run" in result]
    practised = len(runs) > 1
    chosen: dict[str, Any] = {"min_achievements": config.min_achievements}
    if practised and config.min_achievements is not None:
        chosen = {
            "sql": f"num_achievements >= {config.min_achievements} or run_id <> '{runs[0]}'"
        }
    built = sft_filter(
        config.folder / f"data-{key[:12]}.jsonl",
        database=plan.database,
        experiment=runs,
        relabel=practised,
        **chosen,
        top=config.top,
        holdout_seeds=config.holdout,
        drop_notes=config.drop_notes,
        card=True,
        command="assay loop",
        progress=watch.rows,
    )
    assert built.path is not None
    funnel = [
        {"filter": step.name, "episodes": step.removed.episodes, "turns": step.removed.turns}
        for step in built.funnel
    ]
    return {
        "data": str(built.path),
        "holdout": None if built.holdout_path is None else str(built.holdout_path),
        "sha256": hashlib.sha256(built.path.read_bytes()).hexdigest(),
        "rows": built.rows,
        "holdout_rows": built.holdout_rows,
        "episodes": [built.found.episodes, built.left.episodes],
        "funnel": funnel,
    }


def _trained(
    plan: LoopPlan,
    before: Mapping[str, Mapping[str, Any]],
    epochs: int | None,
    subset: int | None,
    watch: LoopWatch,
) -> dict[str, Any]:
    """A model trained on the last data that was made."""
    from assay.finetune.start import finetune_plan, finetune_start

    config = plan.config
    data = [result for result in before.values() if "data" in result][-1]
    job_plan = finetune_plan(
        data["data"],
        model=config.student,
        backend=config.backend,
        epochs=epochs,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        subset=subset,
        suffix=config.suffix,
        seed=config.training_seed,
        price=config.training_price,
        database=plan.database,
    )
    job = _known_job(plan, data, job_plan)
    if job is None:
        _check_budget(plan, job_plan.cost, _cost(before))
        [job] = finetune_start(job_plan, database=plan.database, command="assay loop")
    interval = 1.0 if config.backend == _LOCAL else 30.0
    [job] = watch.follow([job], plan.database, interval)
    if not job.ended:
        raise LoopStopped(f"job {job.id} is still {job.status}; the same command follows it")
    if not job.succeeded:
        raise ServiceError(
            f"job {job.id} ended as {job.status}: {job.error or 'nobody says why'}"
        )
    return {
        "model": job.result_model,
        "job": job.id,
        "address": job.address,
        "cost_usd": job_plan.cost,
    }


def _check_budget(plan: LoopPlan, cost: float | None, spent: float) -> None:
    """Start no training that the budget does not cover, by its estimate."""
    config = plan.config
    if config.budget is None:
        return
    if cost is None:
        raise UsageError(
            f"the budget needs the price of training {config.student}; give it with"
            " --training-price, in dollars for a million trained tokens"
        )
    if cost > config.budget - spent:
        raise LoopStopped(
            f"training {config.student} would cost about ${cost:.2f}, and"
            f" ${config.budget - spent:.2f} of the budget of ${config.budget:.2f} are left;"
            " give a larger --budget, or fewer rows with --subset or --epochs"
        )


def _known_job(
    plan: LoopPlan, data: Mapping[str, Any], wanted: "FinetunePlan"
) -> "FinetuneJob | None":
    """The job that a loop which was stopped had asked for, if there is one."""
    from assay.finetune.follow import finetune_list

    [job] = wanted.jobs
    sha256 = data["sha256"] if job.subset is None else _subset_sha256(wanted.data, job)
    for known in finetune_list(database=plan.database):
        same = (known.data_sha256, known.model, known.seed, known.suffix) == (
            sha256,
            job.model.name,
            job.seed,
            plan.config.suffix,
        )
        asked = job.hyperparameters.items()
        same = same and asked <= dict(known.hyperparameters).items()
        if same and known.status not in ("failed", "cancelled"):
            return known
    return None


def _subset_sha256(data: Path, job: "PlannedJob") -> str:
    from assay.finetune.plan import write_subset

    assert job.subset is not None
    rows = BytesIO()
    write_subset(data, job.subset, job.seed, rows)
    return hashlib.sha256(rows.getbuffer()).hexdigest()


def _reported(plan: LoopPlan, done: Mapping[str, StageDone], comparison: "Comparison") -> Path:
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


_SECONDS_PER_TURN: Final = 0.0005
"""What a turn takes to become a row, where no earlier loop of the folder says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEstimate:
    """What one stage would take."""

    name: str
    about: str
    done: bool = False
    """Whether it was done before, so that it takes nothing."""
    seconds: float | None = None
    """None where nothing is known of its speed."""
    dollars: float | None = None
    """None where a price is not known."""
    why: str = ""
    """Where the numbers come from, or what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEstimate:
    """What a loop would take, if every episode has all its turns."""

    stages: tuple[StageEstimate, ...]
    budget: float | None

    @property
    def seconds(self) -> float | None:
        """Of all stages; None where one is not known."""
        return _sum([stage.seconds for stage in self.stages])

    @property
    def dollars(self) -> float | None:
        """Of all stages; None where one is not known."""
        return _sum([stage.dollars for stage in self.stages])


def _sum(values: list[float | None]) -> float | None:
    return None if None in values else sum(value or 0.0 for value in values)


def estimate_loop(plan: LoopPlan) -> LoopEstimate:
    """Estimate each stage of a loop: by what this folder took before, else by what is known.

    Needs no key, no network and no extra, and writes nothing.
    """
    stages = stages_of(plan, LoopWatch())
    notebook = Notebook(plan.config.folder / "loop.json")
    done = done_before(stages, notebook)
    teach = _run(plan, TEACH)
    made = {
        TEACH: lambda: _estimate_play(plan, TEACH, teach, notebook.latest(TEACH)),
        FILTER: lambda: _estimate_filter(teach.calls, notebook.latest(FILTER)),
        FINETUNE: lambda: _estimate_training(plan, teach),
        EXAM: lambda: _estimate_play(plan, EXAM, _run(plan, EXAM), notebook.latest(EXAM)),
    }
    found = [
        StageEstimate(
            name=stage.name,
            about=stage.about,
            **(
                {"done": True, "seconds": 0.0, "dollars": 0.0, "why": "done before"}
                if stage.name in done
                else made[stage.name]()
                if stage.name in made
                else _practised(plan, notebook.latest(stage.name))
            ),
        )
        for stage in stages
    ]
    return LoopEstimate(stages=tuple(found), budget=plan.config.budget)


def _run(plan: LoopPlan, stage: str) -> Any:
    """The estimate of the run of a stage; the student that is to be made is not in it."""
    from assay.api.run_preparation import prepare
    from assay.api.runs import estimate

    config = plan.config
    models, worlds, seed = [config.teacher], config.teacher_worlds, config.teacher_seed
    if stage == EXAM:
        models = list(dict.fromkeys([config.student, *config.beside]))
        worlds, seed = config.exam_worlds, config.exam_seed
    settings = {**run_settings(plan, stage, models, worlds, seed), "until_decided": None}
    return estimate(prepare(settings, dry=True, fresh=True, source="assay.loop"))


def _estimate_play(
    plan: LoopPlan, stage: str, run: Any, before: StageDone | None
) -> dict[str, Any]:
    config, models = plan.config, list(run.models)
    costs = [each.dollars for each in models]
    known: dict[str, Any] = {}
    if stage == EXAM:
        # The student plays twice; after training it has a price of its own.
        after = next(each for each in models if each.model == config.student)
        models.append(after)
        if config.backend == "local":
            costs.append(after.dollars)
        elif (price := price_of(config.price)) is not None:
            tokens = (after.prompt_tokens, after.completion_tokens)
            costs.append((tokens[0] * price.input + tokens[1] * price.output) / 1e6)
        else:
            costs.append(None)
            known = {"why": "the price of the new model is not known: --price IN/OUT"}
    known["dollars"] = _sum(costs)
    if before is not None:
        episodes = sum(each.episodes for each in models)
        took = before.seconds / (before.result["worlds"] * len(before.result["models"]))
        return {"why": "time by this folder's last run", **known, "seconds": took * episodes}
    if any(each.provider == "local" for each in models):
        return {"why": "no local model was examined here yet", **known, "seconds": None}
    return {**known, "seconds": sum(each.seconds for each in models)}


def _estimate_filter(turns: int, before: StageDone | None) -> dict[str, Any]:
    took = _SECONDS_PER_TURN
    if before is not None and (rows := before.result["rows"] + before.result["holdout_rows"]):
        took = before.seconds / rows
    return {"seconds": took * turns, "dollars": 0.0}


def _practised(plan: LoopPlan, before: StageDone | None) -> dict[str, Any]:
    """A stage of practice, which nothing but its last time says anything of."""
    dollars = 0.0 if plan.config.backend == "local" else None
    if before is None:
        why = "pupils have not practised here yet"
        return {"seconds": None, "dollars": dollars, "why": why}
    return {
        "seconds": before.seconds,
        "dollars": dollars,
        "why": "time by this folder's last round",
    }


def _estimate_training(plan: LoopPlan, teach: Any) -> dict[str, Any]:
    from assay.finetune.options import TuningOptions
    from assay.finetune.plan import plan_jobs
    from assay.finetune.start import backend_of, model_of_backend, place_of, speeds_of

    config = plan.config
    backend = backend_of(config.backend, config.student)
    model = model_of_backend(backend, config.student, anywhere=False)
    share = 1 - float(config.holdout.removesuffix("%")) / 100
    rows = max(1, round(teach.calls * share))
    tuning = TuningOptions(
        subsets=() if config.subset is None else (min(config.subset, rows),),
        epochs=(config.epochs,) if config.epochs else (),
        batch_sizes=(config.batch_size,) if config.batch_size else (),
        suffix=config.suffix,
        seed=config.training_seed,
    )
    tokens = round((teach.prompt_tokens + teach.completion_tokens) * share)
    [job] = plan_jobs(backend, [model], tuning, rows=rows, tokens=tokens)
    place = place_of(backend, None)
    speed = speeds_of(plan.database, place.address, [model]).get(model.name)
    seconds, dollars = job.seconds(speed), job.cost(config.training_price)
    missing = []
    if seconds is None:
        missing.append("no earlier job in the store says how fast it is")
    if dollars is None:
        missing.append("its price is not known: --training-price")
    told = f"~{job.rows:,} rows, ~{job.trained_tokens:,} tokens"
    return {
        "seconds": seconds,
        "dollars": dollars,
        "why": "; ".join([told, *missing, *place.missing]),
    }
