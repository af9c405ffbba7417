"""What a loop would take and cost, stage by stage, before anything is started."""

from dataclasses import dataclass
from typing import Any, Final

from assay.agents.chat_models import price_of
from assay.api.looping import (
    EXAM,
    FILTER,
    FINETUNE,
    TEACH,
    LoopPlan,
    LoopWatch,
    run_settings,
    stages_of,
)
from assay.loop import Notebook, StageDone, done_before

__all__ = ["LoopEstimate", "StageEstimate", "estimate_loop"]

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
        TEACH: lambda: _played(plan, TEACH, teach, notebook.latest(TEACH)),
        FILTER: lambda: _filtered(teach.calls, notebook.latest(FILTER)),
        FINETUNE: lambda: _trained(plan, teach),
        EXAM: lambda: _played(plan, EXAM, _run(plan, EXAM), notebook.latest(EXAM)),
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
    from assay.api.estimating import estimate
    from assay.api.run_preparation import prepare

    config = plan.config
    models, worlds, seed = [config.teacher], config.teacher_worlds, config.teacher_seed
    if stage == EXAM:
        models = list(dict.fromkeys([config.student, *config.beside]))
        worlds, seed = config.exam_worlds, config.exam_seed
    settings = {**run_settings(plan, stage, models, worlds, seed), "until_decided": None}
    return estimate(prepare(settings, dry=True, fresh=True, source="assay.loop"))


def _played(plan: LoopPlan, stage: str, run: Any, before: StageDone | None) -> dict[str, Any]:
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


def _filtered(turns: int, before: StageDone | None) -> dict[str, Any]:
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


def _trained(plan: LoopPlan, teach: Any) -> dict[str, Any]:
    from assay.api._finetune_parts import backend_of, model_of_backend, place_of
    from assay.api.finetuning import speeds_of
    from assay.finetune import plan_jobs

    config = plan.config
    backend = backend_of(config.backend, config.student)
    model = model_of_backend(backend, config.student, anywhere=False)
    share = 1 - float(config.holdout.removesuffix("%")) / 100
    rows = max(1, round(teach.calls * share))
    [job] = plan_jobs(
        backend,
        [model],
        rows=rows,
        tokens=round((teach.prompt_tokens + teach.completion_tokens) * share),
        subsets=[] if config.subset is None else [min(config.subset, rows)],
        epochs=[config.epochs] if config.epochs else [],
        batch_sizes=[config.batch_size] if config.batch_size else [],
        suffix=config.suffix,
        seed=config.training_seed,
    )
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
