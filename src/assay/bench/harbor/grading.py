"""The rewards of a Harbor task as a grade."""

import time
from collections.abc import Mapping
from pathlib import Path

from assay.bench.sandboxes.base import TrialFinding
from assay.bench.seams import Grade, GradingMode, TestReport

from .rewards import combined, outcome_of, score_of
from .task import HarborStep, HarborTask
from .trial import HarborPhases, Verified

__all__ = ["grade_steps", "layer_of", "passes", "verifier_timeout"]

_DEFAULT_S = 600.0


def layer_of(artifacts: Path, step: HarborStep) -> Path:
    """Where the changes that the agent made in a step are kept."""
    return artifacts / (f"changes-{step.name}.tar" if step.name else "changes.tar")


def verifier_timeout(step: HarborStep, said: float) -> float:
    """How long the tests of a step may take: what the user says, or else the task."""
    return step.verification.timeout_s if said == _DEFAULT_S else said


def passes(step: HarborStep, rewards: Mapping[str, float] | None) -> bool:
    """Whether a step was good enough for the next one."""
    found = rewards or {}
    return all(
        found.get(name, float("-inf")) >= least for name, least in step.min_rewards.items()
    )


async def grade_steps(
    task: HarborTask, trial: HarborPhases, artifacts: Path, *, timeout_s: float
) -> Grade:
    """Verify every step that was worked on.

    Args:
        task: As it was loaded.
        trial: Makes the sandboxes.
        artifacts: Where the changes of each step are.
        timeout_s: The most seconds for each step, if it is not the default.
    """
    start = time.monotonic()
    verified: list[tuple[HarborStep, Verified]] = []
    for step in task.steps:
        layer = layer_of(artifacts, step)
        if layer.is_file():
            found = await trial.verify(step, layer, verifier_timeout(step, timeout_s))
            verified.append((step, found))
    return _grade(task, verified, time.monotonic() - start)


def _grade(
    task: HarborTask, verified: list[tuple[HarborStep, Verified]], seconds: float
) -> Grade:
    strategy = task.config.multi_step_reward_strategy or "mean"
    rewards = combined([found.rewards for _, found in verified], strategy)
    findings = [finding for _, found in verified for finding in found.findings]
    missing = [found.outcome for _, found in verified if found.outcome is not None]
    total = 0.0
    if rewards:
        reward = score_of(rewards)
        total = min(1.0, max(0.0, reward))
        if total != reward:
            text = f"the reward {reward:g} is counted as {total:g}; scores are from 0 to 1"
            findings.append(TrialFinding("reward_out_of_range", text))
    metrics = dict(rewards)
    for step, found in verified:
        if step.name:
            for name, value in (found.rewards or {}).items():
                metrics[f"{step.name}/{name}"] = value
    return Grade(
        outcome=missing[-1] if missing and not total else outcome_of(total),
        total_score=total,
        tests=tuple(test for step, found in verified for test in _tests(step, found)),
        custom_metrics=metrics,
        findings=tuple(dict.fromkeys(findings)),
        seconds=seconds,
        log="\n".join(found.log for _, found in verified),
        # Tests of Harbor start what the agent left as they like, in the sandbox they are in.
        mode=GradingMode.IN_PROCESS if verified else None,
    )


def _tests(step: HarborStep, found: Verified) -> tuple[TestReport, ...]:
    """Single tests where the verifier reports them, else one for the whole step."""
    name = step.name or "reward"
    if found.tests:
        return found.tests
    if found.rewards is None:
        return (TestReport("tests/test.sh", name, "missing", str(found.outcome)),)
    reward = score_of(found.rewards)
    status = "passed" if reward >= 1.0 else "failed"
    return (TestReport("tests/test.sh", name, status, f"reward {reward:g}"),)
