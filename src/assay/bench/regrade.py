"""Creation and checks of tasks, and grading of trials after their run."""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from assay.agents.chat_models import make_model, make_pool
from assay.bench.attempt import grade_trial, limits_of, workplace_of
from assay.bench.base import NOTHING_ALLOWED, Allowed, Grade
from assay.bench.config import BenchConfig, TaskEntry, arm_labels, overrides_of
from assay.bench.grading.llm_judge import Judge
from assay.bench.grading.results import read_grade, write_grade
from assay.bench.harbor.task import is_harbor_task, problems_of
from assay.bench.manifest import Manifest, RolloutFolder, TrialResult
from assay.bench.options import RegradeOptions, TaskCheckOptions
from assay.bench.rollouts import Rollout, select_rollout
from assay.bench.task import BaseImages, Task, TaskCheck, Workplace
from assay.bench.task_checks import check_task, overrides_problems
from assay.bench.task_layouts import load_any_task
from assay.bench.tasks.creation import new_task, prepare_task
from assay.bench.trial_files import (
    AgentEnd,
    JudgeBill,
    agent_end,
    graded_result,
    outcomes_of,
    patch_of,
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
    backend = choose_backend(options.sandbox)
    limits = limits_of(task.definition, entry, options.allow_network)
    images = BaseImages.of(base_images, network=options.build_network)
    try:
        task.check_runnable(backend, images, judged=False)
    except UsageError as error:
        if task.image is None:
            raise
        return (TaskCheck(name="refused", passed=False, detail=str(error)),)
    verify_enforcement(backend, limits)
    name = f".check-{task.definition.task_id}"
    place = Workplace(
        backend=backend,
        images=images,
        folder=find_free_path(Path(folder).resolve().parent / name),
        limits=limits,
        timeout_s=timeout_s,
    )
    place.folder.mkdir(mode=0o700)
    return (*checks, *run_in_own_loop(lambda: check_task(task, place, tries=options.tries)))


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
    found = select_rollout(rollout, Path(data_dir), latest=options.latest, stamp=stamp)
    make_grader = partial(_Grader, found.manifest, options, judge_votes, allowed)
    trials = []
    for trial in _graded(found, make_grader, again=again):
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
    found = select_rollout(rollout, Path(data_dir), latest=latest, stamp=stamp)
    return found.manifest.results


def _graded(
    rollout: Rollout, make_grader: "Callable[[], _Grader]", *, again: bool
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
            grader = make_grader()
        graded, updated = grader.grade(result, agent)
        if known is not None:
            _keep_old(run_dir)
        write_grade(
            run_dir,
            grader.task_of(result).definition,
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
    """Grades the trials of a rollout with the configuration of its run."""

    def __init__(
        self, manifest: Manifest, options: RegradeOptions, votes: int, allowed: Allowed
    ) -> None:
        self._allowed = allowed
        self._config = BenchConfig(**_settings(manifest, options.judge, votes))
        self._budget = None if options.budget is None else Budget(options.budget)
        self._tasks: dict[tuple[str, str], tuple[Task, TaskEntry]] = {}

    @property
    def judged_by(self) -> dict[str, Any] | None:
        """The judge, for the grade files; None without one."""
        config = self._config
        if config.judge is None:
            return None
        return {"model": config.judge, "votes": config.judge_votes}

    def task_of(self, result: TrialResult) -> Task:
        """Return the task of a trial; raise UsageError if it has changed."""
        return self._entry_of(result)[0]

    def grade(self, result: TrialResult, agent: AgentEnd) -> tuple[Grade, TrialResult]:
        """Grade the work of an agent; return the grade and the updated trial."""
        task, entry = self._entry_of(result)
        config, backend = self._config, choose_backend(entry.sandbox)
        limits = limits_of(task.definition, entry)
        run_dir = Path(result.run_dir).absolute()
        place = workplace_of(entry, config, backend, limits, run_dir / "grading")
        task.check_runnable(backend, place.images, judged=config.judge is not None)
        verify_enforcement(backend, limits)
        replies: list[ChatReply] = []

        async def graded() -> tuple[Grade, float]:
            async with _open_judge(config, self._budget, replies) as judge:
                return await grade_trial(task, run_dir, place, judge)

        new, seconds = run_in_own_loop(graded)
        costs = [reply.cost_usd for reply in replies]
        bill = JudgeBill(
            sum((reply.usage for reply in replies), Usage()),
            None if None in costs else sum(filter(None, costs)),
            len(replies),
        )
        return new, graded_result(result, agent, new, grading_s=seconds, judge=bill)

    def _entry_of(self, result: TrialResult) -> tuple[Task, TaskEntry]:
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
            if result.task_checksum and task.definition.checksum != result.task_checksum:
                raise UsageError(
                    f"{entry.prepared_dir} was changed since {result.run_id} ran; put it back, "
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

    async def ask(messages: Sequence[Message], tools: Encoded) -> ChatReply:
        request = ChatRequest(model.name, messages, tools, max_tokens=4096)
        replies.append(await model.reply(request))
        return replies[-1]

    try:
        yield Judge(ask, model=config.judge, votes=config.judge_votes)
    finally:
        await model.close()
        pool.close()


def _settings(manifest: Manifest, judge: str | None, votes: int) -> dict[str, Any]:
    stored = dict(manifest.configuration)
    if "tasks" not in stored:
        raise UsageError(
            f"{manifest.name}@{manifest.created_at} does not say how it was configured, so it "
            "cannot be graded; it was written by another program"
        )
    stored.pop("models", None)  # derived from the tasks
    if judge is not None:
        stored |= {"judge": judge, "judge_votes": votes}
    return stored


def _keep_old(run_dir: Path) -> None:
    """Rename the last result file, with the current time in its name."""
    path = run_dir / "evaluation_results.json"
    stamp = time.strftime("%Y%m%d__%H-%M-%S", time.gmtime())
    path.rename(find_free_path(run_dir / f"evaluation_results.{stamp}.json"))


def _store(manifest: Manifest, result: TrialResult, diff: bytes) -> None:
    """Update the outcomes of a stored session to its new grade."""
    from assay.store.metric_outcomes import MetricOutcome, store_metric_outcomes
    from assay.store.store import Store

    database = Path(manifest.database)
    if not database.exists():
        return
    earned = outcomes_of(result, diff).items()
    with Store(database).writing() as connection:
        store_metric_outcomes(
            connection,
            derive_id(manifest.run, result.arm),
            [MetricOutcome(result.session_id, name, value) for name, value in earned],
        )
