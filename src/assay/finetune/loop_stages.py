"""The stages of a loop, with their estimates of time and cost.

Runs and training data are made by the caller, through `LoopActions`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from assay.agents.chat_models import parse_price
from assay.errors import AssayError, LoopStopped, ServiceError, UsageError
from assay.finetune.loop import LoopConfig, Stage, StageLog, StageResult, find_completed_stages

if TYPE_CHECKING:
    from assay.episodes.estimate import RunEstimate
    from assay.finetune.datasets.build import BuiltDataset
    from assay.finetune.plan import PlannedJob
    from assay.finetune.start import FinetunePlan
    from assay.runs.run import RunResult
    from assay.store.finetune_jobs import FinetuneJob

TEACH, FILTER, FINETUNE, EXAM = "teach", "filter", "finetune", "exam"
_PUPIL, _PRACTICE, _RELABEL = "pupil", "practice", "relabel"
_PLAY_SETTINGS: Final = (
    "difficulty",
    "view",
    "history",
    "actions_per_turn",
    "step_limit",
    "max_turns",
)
LOCAL: Final = "local"
_SECONDS_PER_TURN: Final = 0.0005
"""Time to convert a turn to a row, if no earlier loop in the folder has measured it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPlan:
    """A validated loop, before it starts."""

    config: LoopConfig
    database: Path
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEstimate:
    """Estimate of one stage."""

    name: str
    about: str
    done: bool = False
    """Whether the stage is completed already, so that it takes no time."""
    seconds: float | None = None
    """None if the speed is unknown."""
    dollars: float | None = None
    """None if a price is unknown."""
    why: str = ""
    """Origin of the numbers, or the missing information."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEstimate:
    """Estimate of a loop, assuming that every episode has the maximum number of turns."""

    stages: tuple[StageEstimate, ...]
    budget: float | None

    @property
    def seconds(self) -> float | None:
        """Total time; None if one stage is unknown."""
        return _sum_known([stage.seconds for stage in self.stages])

    @property
    def dollars(self) -> float | None:
        """Total cost; None if one stage is unknown."""
        return _sum_known([stage.dollars for stage in self.stages])


def _sum_known(values: list[float | None]) -> float | None:
    return None if None in values else sum(value or 0.0 for value in values)


class LoopActions(Protocol):
    """Operations of a loop that other packages provide."""

    def play(self, settings: Mapping[str, Any], run_id: str) -> "RunResult":
        """Execute a run, or resume it."""
        ...

    def estimate(self, settings: Mapping[str, Any]) -> "RunEstimate":
        """Estimate a run."""
        ...

    def make_data(self, output: Path, **options: Any) -> "BuiltDataset":
        """Build training data; takes the options of `sft_filter`."""
        ...

    def follow(
        self, jobs: "Sequence[FinetuneJob]", database: Path, interval: float
    ) -> "Sequence[FinetuneJob]":
        """Follow stored jobs until they end, with `interval` seconds between requests."""
        ...


class LoopStages:
    """The stages of one loop."""

    def __init__(self, plan: LoopPlan, actions: LoopActions) -> None:
        self._plan, self._config, self._actions = plan, plan.config, actions
        self.log = StageLog(plan.config.folder / "loop.json")

    def list_stages(self) -> list[Stage]:
        """Return the stages in their order."""
        config = self._config
        stored = config.stored()
        play = {name: stored[name] for name in _PLAY_SETTINGS}

        def select(*names: str) -> dict[str, Any]:
            return {name: stored[name] for name in names}

        def is_stored(result: Mapping[str, Any]) -> bool:
            return self._is_finished(result["run"])

        def is_file(result: Mapping[str, Any]) -> bool:
            return Path(result["data"]).exists()

        training = (
            *("student", "backend", "batch_size", "learning_rate"),
            *("training_seed", "suffix"),
        )

        def list_round_stages(number: int) -> list[Stage]:
            """Return the stages of a practice round: train a pupil, let it play, relabel."""
            pupil, practice = f"{_PUPIL}-{number + 1}", f"{_PRACTICE}-{number + 1}"
            return [
                Stage(
                    pupil,
                    f"a pupil, {config.student}, is trained on the data",
                    select("relabel_epochs", *training),
                    lambda _, earlier: self._train_model(earlier, config.relabel_epochs, None),
                ),
                Stage(
                    practice,
                    f"the pupil plays {config.relabel_worlds} worlds",
                    {**play, **select("relabel_worlds", "relabel_temperature", "max_tokens")},
                    lambda key, earlier: self._play_worlds(
                        key,
                        practice,
                        [earlier[pupil]["model"]],
                        config.relabel_worlds,
                        config.get_practice_seed(number),
                        earlier,
                    ),
                    is_stored,
                ),
                Stage(
                    f"{_RELABEL}-{number + 1}",
                    "the expert relabels the pupil's actions",
                    {},
                    self._make_rows,
                    is_file,
                ),
            ]

        return [
            Stage(
                TEACH,
                f"{config.teacher} plays {config.teacher_worlds} worlds",
                {**play, **select("teacher", "teacher_worlds", "teacher_seed")},
                lambda key, _: self._play_worlds(
                    key,
                    TEACH,
                    [config.teacher],
                    config.teacher_worlds,
                    config.teacher_seed,
                    {},
                ),
                is_stored,
            ),
            Stage(
                FILTER,
                "the best episodes become training data",
                select("min_achievements", "top", "drop_notes", "holdout"),
                self._make_rows,
                is_file,
            ),
            *(
                stage
                for number in range(config.relabel_rounds)
                for stage in list_round_stages(number)
            ),
            Stage(
                FINETUNE,
                f"{config.student} is trained on the data",
                {
                    **select("epochs", *training),
                    # Left out if None, so that loops from before this setting keep their keys.
                    **({} if config.subset is None else select("subset")),
                },
                lambda _, earlier: self._train_model(earlier, config.epochs, config.subset),
            ),
            Stage(
                EXAM,
                f"all models play {config.exam_worlds} fresh worlds",
                {
                    **play,
                    **select("exam_worlds", "exam_seed", "until_decided", "beside"),
                    **select("temperature", "max_tokens"),
                },
                lambda key, earlier: self._play_worlds(
                    key,
                    EXAM,
                    [config.student, earlier[FINETUNE]["model"], *config.beside],
                    config.exam_worlds,
                    config.exam_seed,
                    earlier,
                ),
                is_stored,
            ),
        ]

    def _play_worlds(
        self,
        key: str,
        stage: str,
        models: list[str],
        worlds: int,
        seed: int,
        earlier: Mapping[str, Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Execute a run whose id is derived from the key, so that the same call resumes it."""
        from assay.store.queries import episodes
        from assay.store.store import Store

        config, run_id = self._config, f"{stage}-{key[:12]}"
        if not self._is_finished(run_id):
            spent = _sum_costs(earlier)
            budget = None if config.budget is None else config.budget - spent
            if budget is not None and budget <= 0:
                raise LoopStopped(
                    f"the budget is spent: ${spent:.2f} of ${config.budget:.2f}; give a larger"
                    " --budget to continue"
                )
            settings = self._run_settings(stage, models, worlds, seed)
            result = self._actions.play({**settings, "budget": budget}, run_id)
            if result.status != "finished":
                raise LoopStopped(
                    f"{stage} is not finished: {_explain_stop(result)}; the same command "
                    "resumes it"
                )
        with Store(self._plan.database).reading() as connection:
            rows = episodes(connection, run_id=run_id)
        return {
            "run": run_id,
            "models": models,
            "worlds": worlds,
            "seed": seed,
            # Unknown prices count as 0.
            "cost_usd": sum(row.cost_usd or 0.0 for row in rows),
        }

    def _run_settings(
        self, stage: str, models: list[str], worlds: int, seed: int
    ) -> dict[str, Any]:
        """Return the settings of the run of a stage, without its budget."""
        config = self._config
        stored = config.stored()
        student: dict[str, Any] = {}
        if stage != TEACH:
            is_exam = stage == EXAM
            student = {
                "max_tokens": config.max_tokens,
                "temperature": config.temperature if is_exam else config.relabel_temperature,
            }
            if is_exam and config.until_decided:
                student["until_decided"] = "achievements"
        return {
            "models": models,
            "episodes": worlds,
            "seed": seed,
            "baselines": False,
            **student,
            "price": config.price,
            "max_concurrent_episodes": config.concurrent,
            "database": self._plan.database,
            "traces_dir": config.folder / "traces",
            **{name: stored[name] for name in _PLAY_SETTINGS},
        }

    def _is_finished(self, run_id: str) -> bool:
        from assay.store.load import load_stored_run
        from assay.store.store import Store

        if not self._plan.database.exists():
            return False
        with Store(self._plan.database).reading() as connection:
            try:
                return bool(load_stored_run(connection, run_id).status == "finished")
            except AssayError:
                return False

    def _make_rows(self, key: str, earlier: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Build rows from all runs so far; if pupils have played, with the expert's answers.

        Pupils are exempt from `min_achievements`, because their mistakes are useful.
        """
        config = self._config
        runs = [result["run"] for result in earlier.values() if "run" in result]
        has_practice = len(runs) > 1
        filters: dict[str, Any] = {"min_achievements": config.min_achievements}
        if has_practice and config.min_achievements is not None:
            filters = {
                "sql": f"num_achievements >= {config.min_achievements} or run_id <> '{runs[0]}'"
            }
        built = self._actions.make_data(
            config.folder / f"data-{key[:12]}.jsonl",
            database=self._plan.database,
            experiment=runs,
            relabel=has_practice,
            **filters,
            top=config.top,
            holdout_seeds=config.holdout,
            drop_notes=config.drop_notes,
        )
        assert built.path is not None
        funnel = [
            {
                "filter": step.name,
                "episodes": step.removed.episodes,
                "turns": step.removed.turns,
            }
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

    def _train_model(
        self,
        earlier: Mapping[str, Mapping[str, Any]],
        epochs: int | None,
        subset: int | None,
    ) -> dict[str, Any]:
        """Train a model on the data that was built last."""
        from assay.finetune.start import finetune_plan, finetune_start

        config, plan = self._config, self._plan
        data = [result for result in earlier.values() if "data" in result][-1]
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
        job = self._find_started_job(data, job_plan)
        if job is None:
            self._check_budget(job_plan.cost, _sum_costs(earlier))
            [job] = finetune_start(job_plan, database=plan.database, command="assay loop")
        interval = 1.0 if config.backend == LOCAL else 30.0
        [job] = self._actions.follow([job], plan.database, interval)
        if not job.ended:
            raise LoopStopped(
                f"job {job.id} is still {job.status}; the same command follows it"
            )
        if not job.succeeded:
            raise ServiceError(
                f"job {job.id} ended as {job.status}: {job.error or 'no reason given'}"
            )
        return {
            "model": job.result_model,
            "job": job.id,
            "address": job.address,
            "cost_usd": job_plan.cost,
        }

    def _check_budget(self, cost: float | None, spent: float) -> None:
        """Raise LoopStopped if the estimated training cost exceeds the remaining budget."""
        config = self._config
        if config.budget is None:
            return
        if cost is None:
            raise UsageError(
                f"the budget needs the price of training {config.student}; give it with"
                " --training-price, in dollars per million trained tokens"
            )
        if cost > config.budget - spent:
            raise LoopStopped(
                f"training {config.student} would cost about ${cost:.2f}, and"
                f" ${config.budget - spent:.2f} of the budget of ${config.budget:.2f} is left;"
                " give a larger --budget, or fewer rows with --subset or --epochs"
            )

    def _find_started_job(
        self, data: Mapping[str, Any], plan: "FinetunePlan"
    ) -> "FinetuneJob | None":
        """Return the job that an interrupted loop had started, if any."""
        from assay.finetune.follow import finetune_list

        [job] = plan.jobs
        sha256 = data["sha256"] if job.subset is None else _hash_subset(plan.data, job)
        for stored in finetune_list(database=self._plan.database):
            same = (stored.data_sha256, stored.model, stored.seed, stored.suffix) == (
                sha256,
                job.model.name,
                job.seed,
                self._config.suffix,
            )
            hyperparameters = job.hyperparameters.items()
            same = same and hyperparameters <= dict(stored.hyperparameters).items()
            if same and stored.status not in ("failed", "cancelled"):
                return stored
        return None

    def estimate(self) -> "LoopEstimate":
        """Estimate each stage from earlier loops in this folder, or from defaults.

        Needs no key, no network and no optional dependency, and writes nothing.
        """
        stages, latest = self.list_stages(), self.log.find_latest
        done = find_completed_stages(stages, self.log)
        teach = self._estimate_run(TEACH)
        estimators = {
            TEACH: lambda: self._estimate_play(TEACH, teach, latest(TEACH)),
            FILTER: lambda: _estimate_filter(teach.calls, latest(FILTER)),
            FINETUNE: lambda: self._estimate_training(teach),
            EXAM: lambda: self._estimate_play(EXAM, self._estimate_run(EXAM), latest(EXAM)),
        }
        estimates = [
            StageEstimate(
                name=stage.name,
                about=stage.about,
                **(
                    {"done": True, "seconds": 0.0, "dollars": 0.0, "why": "done before"}
                    if stage.name in done
                    else estimators[stage.name]()
                    if stage.name in estimators
                    else self._estimate_practice(latest(stage.name))
                ),
            )
            for stage in stages
        ]
        return LoopEstimate(stages=tuple(estimates), budget=self._config.budget)

    def _estimate_run(self, stage: str) -> "RunEstimate":
        """Estimate the run of a stage, without the student, which does not exist yet."""
        config = self._config
        models, worlds, seed = [config.teacher], config.teacher_worlds, config.teacher_seed
        if stage == EXAM:
            models = list(dict.fromkeys([config.student, *config.beside]))
            worlds, seed = config.exam_worlds, config.exam_seed
        settings = self._run_settings(stage, models, worlds, seed)
        return self._actions.estimate({**settings, "until_decided": None})

    def _estimate_play(
        self, stage: str, run: "RunEstimate", last: StageResult | None
    ) -> dict[str, Any]:
        config, models = self._config, list(run.models)
        costs = [m.dollars for m in models]
        fields: dict[str, Any] = {}
        if stage == EXAM:
            # The student plays twice, and may have another price after training.
            student = next(m for m in models if m.model == config.student)
            models.append(student)
            if config.backend == LOCAL:
                costs.append(student.dollars)
            elif (price := parse_price(config.price)) is not None:
                tokens = (student.prompt_tokens, student.completion_tokens)
                costs.append((tokens[0] * price.input + tokens[1] * price.output) / 1e6)
            else:
                costs.append(None)
                fields = {"why": "the price of the new model is unknown: --price IN/OUT"}
        fields["dollars"] = _sum_known(costs)
        if last is not None:
            episodes = sum(m.episodes for m in models)
            seconds_per_episode = last.seconds / (
                last.result["worlds"] * len(last.result["models"])
            )
            return {
                "why": "time by this folder's last run",
                **fields,
                "seconds": seconds_per_episode * episodes,
            }
        if any(m.provider == LOCAL for m in models):
            return {"why": "no local model took an exam here yet", **fields, "seconds": None}
        return {**fields, "seconds": sum(m.seconds for m in models)}

    def _estimate_practice(self, last: StageResult | None) -> dict[str, Any]:
        """Estimate a practice stage from its last execution, if there is one."""
        dollars = 0.0 if self._config.backend == LOCAL else None
        if last is None:
            note = "pupils have not practised here yet"
            return {"seconds": None, "dollars": dollars, "why": note}
        note = "time by this folder's last round"
        return {"seconds": last.seconds, "dollars": dollars, "why": note}

    def _estimate_training(self, teach: "RunEstimate") -> dict[str, Any]:
        from assay.finetune.options import TuningOptions
        from assay.finetune.plan import plan_jobs
        from assay.finetune.start import choose_backend, find_model, load_speeds, locate_service

        config = self._config
        backend = choose_backend(config.backend, config.student)
        model = find_model(backend, config.student, allow_unlisted=False)
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
        access = locate_service(backend, None)
        speed = load_speeds(self._plan.database, access.address, [model]).get(model.name)
        seconds, dollars = job.estimate_seconds(speed), job.estimate_cost(config.training_price)
        missing = []
        if seconds is None:
            missing.append("no earlier job in the database shows its speed")
        if dollars is None:
            missing.append("its price is unknown: --training-price")
        size = f"~{job.rows:,} rows, ~{job.trained_tokens:,} tokens"
        return {
            "seconds": seconds,
            "dollars": dollars,
            "why": "; ".join([size, *missing, *access.missing]),
        }


def _estimate_filter(turns: int, last: StageResult | None) -> dict[str, Any]:
    seconds_per_turn = _SECONDS_PER_TURN
    if last is not None and (rows := last.result["rows"] + last.result["holdout_rows"]):
        seconds_per_turn = last.seconds / rows
    return {"seconds": seconds_per_turn * turns, "dollars": 0.0}


def _explain_stop(result: "RunResult") -> str:
    stops = [str(tally.stop.reason) for tally in result.tallies.values() if tally.stop]
    reasons = (result.stopped_by, *stops, result.last_trouble)
    return next((reason for reason in reasons if reason), "it was interrupted")


def _sum_costs(earlier: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the cost of the earlier stages in dollars."""
    return float(sum(result.get("cost_usd") or 0.0 for result in earlier.values()))


def _hash_subset(data: Path, job: "PlannedJob") -> str:
    from assay.finetune.plan import write_subset

    assert job.subset is not None
    rows = BytesIO()
    write_subset(data, job.subset, job.seed, rows)
    return hashlib.sha256(rows.getbuffer()).hexdigest()
