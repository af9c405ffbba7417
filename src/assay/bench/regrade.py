"""Creation and checks of tasks, and grading of trials after their run."""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from assay.agents.chat_models import make_model, make_pool
from assay.bench.attempt import grade_trial, make_sandbox_setup, resolve_limits
from assay.bench.base import NOTHING_ALLOWED, Allowed, Grade
from assay.bench.config import BenchConfig, TaskEntry, find_overrides, make_arm_labels
from assay.bench.grading.llm_judge import Judge
from assay.bench.grading.results import read_grade, write_grade
from assay.bench.harbor.task import find_task_problems, is_harbor_task
from assay.bench.manifest import Manifest, RolloutFolder, TrialResult
from assay.bench.options import RegradeOptions, TaskCheckOptions
from assay.bench.rollouts import Rollout, find_rollout
from assay.bench.task import BaseImages, RunnableTask, SandboxSetup, TaskCheck
from assay.bench.task_checks import check_task, overrides_problems
from assay.bench.task_layouts import load_any_task
from assay.bench.tasks.creation import new_task, prepare_task
from assay.bench.trial_files import (
    AgentRecord,
    JudgeUsage,
    make_graded_result,
    make_outcomes,
    read_agent_record,
    read_patch,
)
from assay.core.aio import run_in_own_loop
from assay.core.canonical_json import derive_id
from assay.core.files import find_free_path
from assay.core.options import takes_options
from assay.errors import UsageError
from assay.models.budget import Budget
from assay.sandboxes.backends import choose_backend
from assay.sandboxes.self_test import verify_enforcement
from assay.types import ChatReply, ChatRequest, Encoded, Message, Usage

bench_new = new_task
bench_prepare = prepare_task


class GradedTrial(NamedTuple):
    """A trial with its grade."""

    result: TrialResult
    grade: Grade | None
    """None if the agent left nothing to grade."""
    is_new: bool
    """Whether it was graded in this call."""


@takes_options
def bench_check(
    folder: Path | str,
    *,
    options: TaskCheckOptions,
    timeout_s: float = 600.0,
    base_images: Sequence[str] = (),
    allowed: Allowed = NOTHING_ALLOWED,
) -> tuple[TaskCheck, ...]:
    """Check that a task is solvable, and that only a solution scores.

    Args:
        folder: The folder of a prepared task.
        options: Options of the checks.
        timeout_s: Time limit of each grading.
        base_images: Replacements of FROM images, each as NAME=LOCAL.
        allowed: Data outside its folder that the task may read.
    """
    if options.tries < 1:
        raise UsageError(f"--tries {options.tries} is not allowed; give 1 or more")
    overrides = options.overrides
    entry = TaskEntry(
        prepared_dir=str(folder), overrides=None if overrides is None else str(overrides)
    )
    applied = find_overrides(entry)
    problems = () if applied is None else overrides_problems(Path(folder), applied, allowed)
    checks = []
    if applied is not None:
        detail = "; ".join(problems) or f"every key and path of {applied} is valid"
        checks.append(TaskCheck(name="overrides", passed=not problems, detail=detail))
    is_harbor = applied is None and is_harbor_task(Path(folder))
    if is_harbor and (unsupported := find_task_problems(Path(folder), allowed)):
        return tuple(
            TaskCheck(name="refused", passed=False, detail=problem) for problem in unsupported
        )
    task = load_any_task(Path(folder), applied, allowed)
    backend = choose_backend(options.sandbox)
    limits = resolve_limits(task.definition, entry, options.allow_network)
    images = BaseImages.parse(base_images, network=options.build_network)
    try:
        task.check_runnable(backend, images, judged=False)
    except UsageError as error:
        if task.image is None:
            raise
        return (TaskCheck(name="refused", passed=False, detail=str(error)),)
    verify_enforcement(backend, limits)
    name = f".check-{task.definition.task_id}"
    settings = SandboxSetup(
        backend=backend,
        images=images,
        folder=find_free_path(Path(folder).resolve().parent / name),
        limits=limits,
        timeout_s=timeout_s,
    )
    settings.folder.mkdir(mode=0o700)
    return (*checks, *run_in_own_loop(lambda: check_task(task, settings, tries=options.tries)))


@takes_options
def bench_eval(
    rollout: str,
    *,
    data_dir: Path | str = "data",
    stamp: str | None = None,
    again: bool = False,
    options: RegradeOptions,
    judge_votes: int = 3,
    allowed: Allowed = NOTHING_ALLOWED,
    done: Callable[[GradedTrial], None] = lambda _: None,
) -> tuple[GradedTrial, ...]:
    """Grade the trials of a rollout that have no grade, and return the grades of all trials.

    Args:
        rollout: A name, `name@stamp`, a tag, or a path.
        data_dir: The folder of benchmarks.
        stamp: Its stamp, or the beginning of it.
        again: Grade all trials again; old result files are kept next to the new ones.
        options: Options of the grading.
        judge_votes: Number of the judge's votes on each rubric.
        allowed: Data outside their folders that tasks may read. The permissions of the run do
            not count, because its files may come from another machine.
        done: Callback for each trial.
    """
    selected = find_rollout(rollout, Path(data_dir), latest=options.latest, stamp=stamp)
    make_grader = partial(_Grader, selected.manifest, options, judge_votes, allowed)
    trials = []
    for trial in _grade_rollout(selected, make_grader, again=again):
        done(trial)
        trials.append(trial)
    return tuple(trials)


def bench_trials(
    rollout: str,
    *,
    data_dir: Path | str = "data",
    latest: bool = False,
    stamp: str | None = None,
) -> tuple[TrialResult, ...]:
    """Return the current trials of a rollout; takes the arguments of `bench_eval`."""
    selected = find_rollout(rollout, Path(data_dir), latest=latest, stamp=stamp)
    return selected.manifest.results


def _grade_rollout(
    rollout: Rollout, make_grader: "Callable[[], _Grader]", *, again: bool
) -> Iterator[GradedTrial]:
    manifest = rollout.manifest
    folder = RolloutFolder(rollout.path.parents[2], manifest.name, manifest.created_at)
    grader: _Grader | None = None
    for result in manifest.results:
        run_dir = Path(result.run_dir)
        grade = read_grade(run_dir)
        patch = read_patch(run_dir)
        agent = read_agent_record(run_dir, result.session_id)
        if agent is None or (grade is not None and not again):
            yield GradedTrial(result, grade, False)
            continue
        if grader is None:
            grader = make_grader()
        new_grade, updated = grader.grade(result, agent)
        if grade is not None:
            _archive_results(run_dir)
        write_grade(
            run_dir,
            grader.load_task(result).definition,
            new_grade,
            diff=patch,
            judge=grader.judge_settings,
            agent_metrics=agent.collect_metrics(),
        )
        folder.write_result(updated)
        manifest = folder.refresh(manifest)
        folder.write(manifest)
        _store_outcomes(manifest, updated, patch)
        yield GradedTrial(updated, new_grade, True)


class _Grader:
    """Grades the trials of a rollout with the configuration of its run."""

    def __init__(
        self, manifest: Manifest, options: RegradeOptions, votes: int, allowed: Allowed
    ) -> None:
        self._allowed = allowed
        self._config = BenchConfig(**_read_settings(manifest, options.judge, votes))
        self._budget = None if options.budget is None else Budget(options.budget)
        self._tasks: dict[tuple[str, str], tuple[RunnableTask, TaskEntry]] = {}

    @property
    def judge_settings(self) -> dict[str, Any] | None:
        """The judge, for the grade files; None without one."""
        config = self._config
        if config.judge is None:
            return None
        return {"model": config.judge, "votes": config.judge_votes}

    def load_task(self, result: TrialResult) -> RunnableTask:
        """Return the task of a trial; raise UsageError if it has changed."""
        return self._load_entry(result)[0]

    def grade(self, result: TrialResult, agent: AgentRecord) -> tuple[Grade, TrialResult]:
        """Grade the work of an agent; return the grade and the updated trial."""
        task, entry = self._load_entry(result)
        config, backend = self._config, choose_backend(entry.sandbox)
        limits = resolve_limits(task.definition, entry)
        run_dir = Path(result.run_dir).absolute()
        settings = make_sandbox_setup(entry, config, backend, limits, run_dir / "grading")
        task.check_runnable(backend, settings.images, judged=config.judge is not None)
        verify_enforcement(backend, limits)
        replies: list[ChatReply] = []

        async def run_grading() -> tuple[Grade, float]:
            async with _open_judge(config, self._budget, replies) as judge:
                return await grade_trial(task, run_dir, settings, judge)

        grade, seconds = run_in_own_loop(run_grading)
        costs = [reply.cost_usd for reply in replies]
        usage = JudgeUsage(
            sum((reply.usage for reply in replies), Usage()),
            None if None in costs else sum(filter(None, costs)),
            len(replies),
        )
        return grade, make_graded_result(result, agent, grade, grading_s=seconds, judge=usage)

    def _load_entry(self, result: TrialResult) -> tuple[RunnableTask, TaskEntry]:
        key = (result.arm, result.task_dir)
        if key not in self._tasks:
            labels = make_arm_labels(self._config)
            entry = next(
                entry
                for label, entry in zip(labels, self._config.tasks, strict=True)
                if (label, entry.prepared_dir) == key
            )
            folder, overrides = Path(entry.prepared_dir), find_overrides(entry)
            task = load_any_task(folder, overrides, self._allowed)
            if result.task_checksum and task.definition.checksum != result.task_checksum:
                raise UsageError(
                    f"{entry.prepared_dir} changed after {result.run_id} ran; restore it, "
                    "or run the benchmark again"
                )
            self._tasks[key] = (task, entry)
        return self._tasks[key]


@asynccontextmanager
async def _open_judge(
    config: BenchConfig, budget: Budget | None, replies: list[ChatReply]
) -> AsyncIterator[Judge | None]:
    """Yield the judge of a configuration, or None; collect its replies."""
    if config.judge is None:
        yield None
        return
    settings = config.make_model_settings()
    pool = make_pool(settings, budget)
    model = make_model(config.judge, settings, pool)

    async def call_model(messages: Sequence[Message], tools: Encoded) -> ChatReply:
        request = ChatRequest(model.name, messages, tools, max_tokens=4096)
        replies.append(await model.reply(request))
        return replies[-1]

    try:
        yield Judge(call_model, model=config.judge, votes=config.judge_votes)
    finally:
        await model.close()
        pool.close()


def _read_settings(manifest: Manifest, judge: str | None, votes: int) -> dict[str, Any]:
    stored = dict(manifest.configuration)
    if "tasks" not in stored:
        raise UsageError(
            f"{manifest.name}@{manifest.created_at} cannot be graded: its manifest has no "
            "configuration, because another program wrote it"
        )
    stored.pop("models", None)  # derived from the tasks
    if judge is not None:
        stored |= {"judge": judge, "judge_votes": votes}
    return stored


def _archive_results(run_dir: Path) -> None:
    """Rename the last result file, with the current time in its name."""
    path = run_dir / "evaluation_results.json"
    stamp = time.strftime("%Y%m%d__%H-%M-%S", time.gmtime())
    path.rename(find_free_path(run_dir / f"evaluation_results.{stamp}.json"))


def _store_outcomes(manifest: Manifest, result: TrialResult, diff: bytes) -> None:
    """Update the outcomes of a stored session to its new grade."""
    from assay.store.metric_outcomes import MetricOutcome, store_metric_outcomes
    from assay.store.store import Store

    database = Path(manifest.database)
    if not database.exists():
        return
    outcomes = make_outcomes(result, diff).items()
    with Store(database).writing() as connection:
        store_metric_outcomes(
            connection,
            derive_id(manifest.run, result.arm),
            [MetricOutcome(result.session_id, name, value) for name, value in outcomes],
        )
