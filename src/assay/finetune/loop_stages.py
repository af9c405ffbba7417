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
from assay.finetune.loop import LoopConfig, Notebook, Stage, StageDone, done_before

if TYPE_CHECKING:
    from assay.episodes.estimate import RunEstimate
    from assay.finetune.datasets.build import BuiltDataset
    from assay.finetune.plan import PlannedJob
    from assay.finetune.start import FinetunePlan
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
        return _sum([stage.seconds for stage in self.stages])

    @property
    def dollars(self) -> float | None:
        """Total cost; None if one stage is unknown."""
        return _sum([stage.dollars for stage in self.stages])


def _sum(values: list[float | None]) -> float | None:
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
        self.notebook = Notebook(plan.config.folder / "loop.json")

    def all(self) -> list[Stage]:
        """Return the stages in their order."""
        config = self._config
        stored = config.stored()
        play = {name: stored[name] for name in _PLAY}

        def of(*names: str) -> dict[str, Any]:
            return {name: stored[name] for name in names}

        def is_stored(result: Mapping[str, Any]) -> bool:
            return self._is_finished(result["run"])

        def is_file(result: Mapping[str, Any]) -> bool:
            return Path(result["data"]).exists()

        training = (
            *("student", "backend", "batch_size", "learning_rate"),
            *("training_seed", "suffix"),
        )

        def round_of(number: int) -> list[Stage]:
            """Return the stages of a practice round: train a pupil, let it play, relabel."""
            pupil, practice = f"{_PUPIL}-{number + 1}", f"{_PRACTICE}-{number + 1}"
            return [
                Stage(
                    pupil,
                    f"a pupil, {config.student}, is trained on it",
                    of("relabel_epochs", *training),
                    lambda _, before: self._train(before, config.relabel_epochs, None),
                ),
                Stage(
                    practice,
                    f"the pupil plays {config.relabel_worlds} worlds",
                    {**play, **of("relabel_worlds", "relabel_temperature", "max_tokens")},
                    lambda key, before: self._play(
                        key,
                        practice,
                        [before[pupil]["model"]],
                        config.relabel_worlds,
                        config.practice_seed(number),
                        before,
                    ),
                    is_stored,
                ),
                Stage(
                    f"{_RELABEL}-{number + 1}",
                    "the expert says what it would have done there",
                    {},
                    self._filter,
                    is_file,
                ),
            ]

        return [
            Stage(
                TEACH,
                f"{config.teacher} plays {config.teacher_worlds} worlds",
                {**play, **of("teacher", "teacher_worlds", "teacher_seed")},
                lambda key, _: self._play(
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
                "the best of it becomes training data",
                of("min_achievements", "top", "drop_notes", "holdout"),
                self._filter,
                is_file,
            ),
            *(stage for number in range(config.relabel_rounds) for stage in round_of(number)),
            Stage(
                FINETUNE,
                f"{config.student} is trained on it",
                {
                    **of("epochs", *training),
                    # Left out if None, so that loops from before this setting keep their keys.
                    **({} if config.subset is None else of("subset")),
                },
                lambda _, before: self._train(before, config.epochs, config.subset),
            ),
            Stage(
                EXAM,
                f"all play {config.exam_worlds} fresh worlds",
                {
                    **play,
                    **of("exam_worlds", "exam_seed", "until_decided", "beside"),
                    **of("temperature", "max_tokens"),
                },
                lambda key, before: self._play(
                    key,
                    EXAM,
                    [config.student, before[FINETUNE]["model"], *config.beside],
                    config.exam_worlds,
                    config.exam_seed,
                    before,
                ),
                is_stored,
            ),
        ]

    def _play(
        self,
        key: str,
        stage: str,
        models: list[str],
        worlds: int,
        seed: int,
        before: Mapping[str, Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Execute a run whose id is derived from the key, so that the same call resumes it."""
        from assay.store.queries import episodes
        from assay.store.store import Store

        config, run_id = self._config, f"{stage}-{key[:12]}"
        if not self._is_finished(run_id):
            spent = _cost(before)
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
                    f"{stage} is not finished: {_why(result)}; the same command resumes it"
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
            "database": self._plan.database,
            "traces_dir": config.folder / "traces",
            **{name: stored[name] for name in _PLAY},
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

    def _filter(self, key: str, before: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Build rows from all runs so far; if pupils have played, with the expert's answers.

        Pupils are exempt from `min_achievements`, because their mistakes are useful.
        """
        config = self._config
        runs = [result["run"] for result in before.values() if "run" in result]
        practised = len(runs) > 1
        chosen: dict[str, Any] = {"min_achievements": config.min_achievements}
        if practised and config.min_achievements is not None:
            chosen = {
                "sql": f"num_achievements >= {config.min_achievements} or run_id <> '{runs[0]}'"
            }
        built = self._actions.make_data(
            config.folder / f"data-{key[:12]}.jsonl",
            database=self._plan.database,
            experiment=runs,
            relabel=practised,
            **chosen,
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

    def _train(
        self,
        before: Mapping[str, Mapping[str, Any]],
        epochs: int | None,
        subset: int | None,
    ) -> dict[str, Any]:
        """Train a model on the data that was built last."""
        from assay.finetune.start import finetune_plan, finetune_start

        config, plan = self._config, self._plan
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
        job = self._known_job(data, job_plan)
        if job is None:
            self._check_budget(job_plan.cost, _cost(before))
            [job] = finetune_start(job_plan, database=plan.database, command="assay loop")
        interval = 1.0 if config.backend == LOCAL else 30.0
        [job] = self._actions.follow([job], plan.database, interval)
        if not job.ended:
            raise LoopStopped(
                f"job {job.id} is still {job.status}; the same command follows it"
            )
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

    def _check_budget(self, cost: float | None, spent: float) -> None:
        """Raise LoopStopped if the estimated training cost exceeds the remaining budget."""
        config = self._config
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
        self, data: Mapping[str, Any], wanted: "FinetunePlan"
    ) -> "FinetuneJob | None":
        """Return the job that an interrupted loop had started, if any."""
        from assay.finetune.follow import finetune_list

        [job] = wanted.jobs
        sha256 = data["sha256"] if job.subset is None else _subset_sha256(wanted.data, job)
        for known in finetune_list(database=self._plan.database):
            same = (known.data_sha256, known.model, known.seed, known.suffix) == (
                sha256,
                job.model.name,
                job.seed,
                self._config.suffix,
            )
            asked = job.hyperparameters.items()
            same = same and asked <= dict(known.hyperparameters).items()
            if same and known.status not in ("failed", "cancelled"):
                return known
        return None

    def estimate(self) -> "LoopEstimate":
        """Estimate each stage from earlier loops in this folder, or from defaults.

        Needs no key, no network and no optional dependency, and writes nothing.
        """
        stages, latest = self.all(), self.notebook.latest
        done = done_before(stages, self.notebook)
        teach = self._estimate_run(TEACH)
        made = {
            TEACH: lambda: self._estimate_play(TEACH, teach, latest(TEACH)),
            FILTER: lambda: _estimate_filter(teach.calls, latest(FILTER)),
            FINETUNE: lambda: self._estimate_training(teach),
            EXAM: lambda: self._estimate_play(EXAM, self._estimate_run(EXAM), latest(EXAM)),
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
                    else self._estimate_practice(latest(stage.name))
                ),
            )
            for stage in stages
        ]
        return LoopEstimate(stages=tuple(found), budget=self._config.budget)

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
        self, stage: str, run: "RunEstimate", before: StageDone | None
    ) -> dict[str, Any]:
        config, models = self._config, list(run.models)
        costs = [each.dollars for each in models]
        known: dict[str, Any] = {}
        if stage == EXAM:
            # The student plays twice, and may have another price after training.
            after = next(each for each in models if each.model == config.student)
            models.append(after)
            if config.backend == LOCAL:
                costs.append(after.dollars)
            elif (price := parse_price(config.price)) is not None:
                tokens = (after.prompt_tokens, after.completion_tokens)
                costs.append((tokens[0] * price.input + tokens[1] * price.output) / 1e6)
            else:
                costs.append(None)
                known = {"why": "the price of the new model is not known: --price IN/OUT"}
        known["dollars"] = _sum(costs)
        if before is not None:
            episodes = sum(each.episodes for each in models)
            took = before.seconds / (before.result["worlds"] * len(before.result["models"]))
            return {
                "why": "time by this folder's last run",
                **known,
                "seconds": took * episodes,
            }
        if any(each.provider == LOCAL for each in models):
            return {"why": "no local model was examined here yet", **known, "seconds": None}
        return {**known, "seconds": sum(each.seconds for each in models)}

    def _estimate_practice(self, before: StageDone | None) -> dict[str, Any]:
        """Estimate a practice stage from its last execution, if there is one."""
        dollars = 0.0 if self._config.backend == LOCAL else None
        if before is None:
            why = "pupils have not practised here yet"
            return {"seconds": None, "dollars": dollars, "why": why}
        why = "time by this folder's last round"
        return {"seconds": before.seconds, "dollars": dollars, "why": why}

    def _estimate_training(self, teach: "RunEstimate") -> dict[str, Any]:
        from assay.finetune.options import TuningOptions
        from assay.finetune.plan import plan_jobs
        from assay.finetune.start import backend_of, model_of_backend, place_of, speeds_of

        config = self._config
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
        speed = speeds_of(self._plan.database, place.address, [model]).get(model.name)
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


def _estimate_filter(turns: int, before: StageDone | None) -> dict[str, Any]:
    took = _SECONDS_PER_TURN
    if before is not None and (rows := before.result["rows"] + before.result["holdout_rows"]):
        took = before.seconds / rows
    return {"seconds": took * turns, "dollars": 0.0}


def _why(result: "RunResult") -> str:
    stops = [str(tally.stop.reason) for tally in result.tallies.values() if tally.stop]
    told = (result.stopped_by, *stops, result.last_trouble)
    return next((reason for reason in told if reason), "it was interrupted")


def _cost(before: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the cost of the earlier stages in dollars."""
    return float(sum(result.get("cost_usd") or 0.0 for result in before.values()))


def _subset_sha256(data: Path, job: "PlannedJob") -> str:
    from assay.finetune.plan import write_subset

    assert job.subset is not None
    rows = BytesIO()
    write_subset(data, job.subset, job.seed, rows)
    return hashlib.sha256(rows.getbuffer()).hexdigest()
