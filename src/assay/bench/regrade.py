"""Tasks that are made and checked, and trials that are graded after their run."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assay.agents.chat_models import model_of, pool_of
from assay.bench.attempt import limits_of
from assay.bench.base import NOTHING_ALLOWED, Allowed, CodingTask, Grade
from assay.bench.config import BenchConfig, TaskEntry, overrides_of
from assay.bench.grading.grade import check_gradable, grade
from assay.bench.grading.llm_judge import Judge
from assay.bench.grading.results import read_grade, write_grade
from assay.bench.harbor.attempt import check_harbor_task, grade_steps
from assay.bench.harbor.phases import BaseImages, HarborPhases, check_images
from assay.bench.harbor.task import HarborTask, is_harbor_task, load_any_task, problems_of
from assay.bench.manifest import Manifest, RolloutFolder, TrialResult
from assay.bench.rollouts import Rollout, select_rollout
from assay.bench.task_checks import TaskCheck, check_task, overrides_problems
from assay.bench.tasks.creation import new_task, prepare_task
from assay.bench.trial_files import (
    AgentEnd,
    JudgeBill,
    agent_end,
    graded_result,
    outcomes_of,
    patch_of,
)
from assay.core.aio import run_apart
from assay.core.canonical_json import derived_id
from assay.core.files import free_path, remove_folder
from assay.errors import UsageError
from assay.models.budget import Budget
from assay.models.pool import ModelPool
from assay.sandboxes.backends import choose_backend
from assay.sandboxes.base import ResourceLimits, SandboxBackend
from assay.sandboxes.self_test import proven_enforcement
from assay.types import ChatModel, ChatReply, ChatRequest, Encoded, Message

bench_new = new_task
bench_prepare = prepare_task


class GradedTrial(NamedTuple):
    """A trial, and the grade that it has."""

    result: TrialResult
    grade: Grade | None
    """None for a trial whose agent has left nothing to grade."""
    is_new: bool
    """Whether it was graded just now."""


def bench_check(
    folder: Path | str,
    *,
    overrides: Path | None = None,
    tries: int = 3,
    sandbox: str | None = None,
    timeout_s: float = 600.0,
    base_images: Sequence[str] = (),
    build_network: bool = False,
    allow_network: Sequence[str] = (),
    allowed: Allowed = NOTHING_ALLOWED,
) -> tuple[TaskCheck, ...]:
    """Find out whether a task measures what it says; each check says what is wrong.

    Args:
        folder: The folder of a prepared task.
        overrides: Applied to it; its own overrides.json unless given.
        tries: How often the reference solution is graded.
        sandbox: Where; see `assay.sandboxes`.
        timeout_s: The most seconds for each grading.
        base_images: What stands for an image of FROM, each as NAME=LOCAL.
        build_network: Whether building an image reaches the network.
        allow_network: Where a task that asks for a network may connect by HTTP(S).
        allowed: What the task may read outside of its folder.
    """
    entry = TaskEntry(
        prepared_dir=str(folder), overrides=None if overrides is None else str(overrides)
    )
    applied = overrides_of(entry)
    problems = () if applied is None else overrides_problems(Path(folder), applied, allowed)
    checks = []
    if applied is not None:
        said = "; ".join(problems) or f"every key and path of {applied} fits"
        checks.append(TaskCheck(name="overrides", passed=not problems, detail=said))
    is_harbor = applied is None and is_harbor_task(Path(folder))
    if is_harbor and (refused := problems_of(Path(folder), allowed)):
        return tuple(TaskCheck(name="refused", passed=False, detail=why) for why in refused)
    task = load_any_task(Path(folder), applied, allowed)
    backend = choose_backend(sandbox)
    limits = limits_of(task, entry, allow_network)
    bases = BaseImages.of(base_images, network=build_network)
    scratch = free_path(Path(folder).resolve().parent / f".check-{task.task_id}")
    if isinstance(task, HarborTask):
        try:
            check_images(task, backend, bases)
        except UsageError as error:
            return (TaskCheck(name="refused", passed=False, detail=str(error)),)
    else:
        check_gradable(task)
    proven_enforcement(backend, limits)

    scratch.mkdir(mode=0o700)

    async def check() -> tuple[TaskCheck, ...]:
        if isinstance(task, HarborTask):
            return await check_harbor_task(
                task,
                backend,
                bases,
                folder=scratch,
                tries=tries,
                limits=limits,
                timeout_s=timeout_s,
            )
        return await check_task(
            task, backend, folder=scratch, tries=tries, limits=limits, timeout_s=timeout_s
        )

    return (*checks, *run_apart(check))


def bench_eval(
    rollout: str,
    *,
    data_dir: Path | str = "data",
    latest: bool = False,
    stamp: str | None = None,
    again: bool = False,
    judge: str | None = None,
    judge_votes: int = 3,
    budget: float | None = None,
    allowed: Allowed = NOTHING_ALLOWED,
    done: Callable[[GradedTrial], None] = lambda _: None,
) -> tuple[GradedTrial, ...]:
    """Grade the trials of a rollout that have no grade, and return the grades of all.

    Args:
        rollout: A name, `name@stamp`, a tag, or a path.
        data_dir: Where benchmarks are.
        latest: Say that it is the latest.
        stamp: Its stamp, or the start of it.
        again: Grade all again; what the files said before is kept beside them.
        judge: The model that scores rubrics without tests; that of the run unless given.
        judge_votes: How often it is asked for each.
        budget: The most dollars that the judge may cost.
        allowed: What tasks may read outside of their folders. The word of the run does not
            count, because its files may come from another machine.
        done: Told of each trial.
    """
    found = select_rollout(rollout, Path(data_dir), latest=latest, stamp=stamp)
    return tuple(
        _told(trial, done)
        for trial in _graded(found, again, judge, judge_votes, budget, allowed)
    )


def bench_trials(
    rollout: str,
    *,
    data_dir: Path | str = "data",
    latest: bool = False,
    stamp: str | None = None,
) -> tuple[TrialResult, ...]:
    """The trials of a rollout as they are known; takes what `bench_eval` takes."""
    found = select_rollout(rollout, Path(data_dir), latest=latest, stamp=stamp)
    return found.manifest.results


def _told(trial: GradedTrial, done: Callable[[GradedTrial], None]) -> GradedTrial:
    done(trial)
    return trial


def _graded(
    rollout: Rollout,
    again: bool,
    judge: str | None,
    votes: int,
    budget: float | None,
    allowed: Allowed,
) -> Iterator[GradedTrial]:
    manifest = rollout.manifest
    folder = RolloutFolder(rollout.path.parents[2], manifest.name, manifest.created_at)
    grader: _Grader | None = None
    for result in manifest.results:
        run_dir = Path(result.run_dir)
        known = read_grade(run_dir)
        patch = patch_of(run_dir)
        agent = agent_end(run_dir, result.session_id)
        if agent is None or (known is not None and not again):
            yield GradedTrial(result, known, False)
            continue
        if grader is None:
            grader = _Grader(manifest, judge, votes, budget, allowed)
        graded, updated = grader.grade(result, agent, patch)
        if known is not None:
            _keep_old(run_dir)
        write_grade(
            run_dir,
            grader.task_of(result),
            graded,
            diff=patch,
            judge=grader.judged_by,
            agent_metrics=agent.metrics(),
        )
        folder.write_result(updated)
        manifest = folder.brought_up(manifest)
        folder.write(manifest)
        _store(manifest, updated, patch)
        yield GradedTrial(updated, graded, True)


class _Grader:
    """Grades trials of a rollout by the configuration that it ran with."""

    def __init__(
        self,
        manifest: Manifest,
        judge: str | None,
        votes: int,
        budget: float | None,
        allowed: Allowed,
    ) -> None:
        self._allowed = allowed
        self._config = BenchConfig(**_settings(manifest, judge, votes))
        self._budget = None if budget is None else Budget(budget)
        self._tasks: dict[tuple[str, str], tuple[CodingTask, TaskEntry]] = {}

    @property
    def judged_by(self) -> dict[str, Any] | None:
        """The judge as the files of a grade name it; None without one."""
        config = self._config
        if config.judge is None:
            return None
        return {"model": config.judge, "votes": config.judge_votes}

    def task_of(self, result: TrialResult) -> CodingTask:
        """The task of a trial, which must be what it was."""
        return self._entry_of(result)[0]

    def grade(
        self, result: TrialResult, agent: AgentEnd, diff: bytes
    ) -> tuple[Grade, TrialResult]:
        """Grade what an agent left; the trial with that grade, too."""
        task, entry = self._entry_of(result)
        if not isinstance(task, HarborTask):
            check_gradable(task, judged=self._config.judge is not None)
        backend = choose_backend(entry.sandbox)
        limits = limits_of(task, entry)
        proven_enforcement(backend, limits)
        run_dir = Path(result.run_dir).absolute()
        asking = _Asking(self._config, self._budget)

        async def graded() -> Grade:
            async with asking as judge:
                if isinstance(task, HarborTask):
                    trial = self._trial(task, backend, limits, entry, run_dir)
                    return await grade_steps(
                        task, trial, run_dir / "artifacts", timeout_s=entry.grading_timeout
                    )
                return await grade(
                    task,
                    diff,
                    backend,
                    folder=run_dir / "grading",
                    limits=limits,
                    timeout_s=entry.grading_timeout,
                    judge=judge,
                )

        begun = time.monotonic()
        remove_folder(run_dir / "grading")
        try:
            new = run_apart(graded)
        finally:
            remove_folder(run_dir / "grading")
        seconds = time.monotonic() - begun
        return new, graded_result(result, agent, new, grading_s=seconds, judge=asking.bill)

    def _trial(
        self,
        task: HarborTask,
        backend: SandboxBackend,
        limits: ResourceLimits,
        entry: TaskEntry,
        run_dir: Path,
    ) -> HarborPhases:
        config, folder = self._config, run_dir / "grading"
        folder.mkdir(parents=True)
        return HarborPhases(
            task,
            backend,
            BaseImages.of(config.base_images, network=config.build_network),
            folder=folder,
            limits=limits,
        )

    def _entry_of(self, result: TrialResult) -> tuple[CodingTask, TaskEntry]:
        from assay.bench.config import arm_labels

        key = (result.arm, result.task_dir)
        if key not in self._tasks:
            labels = arm_labels(self._config)
            entry = next(
                entry
                for label, entry in zip(labels, self._config.tasks, strict=True)
                if (label, entry.prepared_dir) == key
            )
            folder, overrides = Path(entry.prepared_dir), overrides_of(entry)
            task = load_any_task(folder, overrides, self._allowed)
            if result.task_checksum and task.checksum != result.task_checksum:
                raise UsageError(
                    f"{entry.prepared_dir} was changed since {result.run_id} ran; put it back, "
                    "or run the benchmark again"
                )
            self._tasks[key] = (task, entry)
        return self._tasks[key]


class _Asking:
    """The judge of a configuration, if it has one; its connections close with the block."""

    def __init__(self, config: BenchConfig, budget: Budget | None) -> None:
        self.bill = JudgeBill()
        self._config, self._budget = config, budget
        self._pool: ModelPool | None = None
        self._model: ChatModel | None = None

    async def __aenter__(self) -> Judge | None:
        config = self._config
        if config.judge is None:
            return None
        self._pool = pool_of(config, self._budget)
        self._model = model_of(config.judge, config, self._pool)
        return Judge(self._ask, model=config.judge, votes=config.judge_votes)

    async def __aexit__(self, *_: object) -> None:
        if self._model is not None:
            await self._model.close()
        if self._pool is not None:
            self._pool.close()

    async def _ask(self, messages: Sequence[Message], tools: Encoded) -> ChatReply:
        assert self._model is not None
        request = ChatRequest(self._model.name, messages, tools, max_tokens=4096)
        reply = await self._model.reply(request)
        spent, cost = self.bill.cost_usd, reply.cost_usd
        self.bill = JudgeBill(
            self.bill.usage + reply.usage,
            None if spent is None or cost is None else spent + cost,
            self.bill.calls + 1,
        )
        return reply


def _settings(manifest: Manifest, judge: str | None, votes: int) -> dict[str, Any]:
    stored = dict(manifest.configuration)
    if "tasks" not in stored:
        raise UsageError(
            f"{manifest.name}@{manifest.created_at} does not say how it was configured, so it "
            "cannot be graded; it was written by another program"
        )
    stored = {name: value for name, value in stored.items() if name not in _DERIVED}
    if judge is not None:
        stored |= {"judge": judge, "judge_votes": votes}
    return stored


_DERIVED = ("models",)


def _keep_old(run_dir: Path) -> None:
    """Set the last grade aside under the time at which that is done."""
    path = run_dir / "evaluation_results.json"
    stamp = time.strftime("%Y%m%d__%H-%M-%S", time.gmtime())
    path.rename(free_path(run_dir / f"evaluation_results.{stamp}.json"))


def _store(manifest: Manifest, result: TrialResult, diff: bytes) -> None:
    """Bring the outcomes of a stored session up to its new grade."""
    from assay.store.metric_outcomes import MetricOutcome, store_metric_outcomes
    from assay.store.store import Store

    database = Path(manifest.database)
    if not database.exists():
        return
    earned = outcomes_of(result, diff).items()
    with Store(database).writing() as connection:
        store_metric_outcomes(
            connection,
            derived_id(manifest.run, result.arm),
            [MetricOutcome(result.session_id, name, value) for name, value in earned],
        )
