"""Reading of a verifier's results from /logs/verifier: rewards and test reports.

`reward.json` is read first, then `reward.txt`, as in Harbor. If both exist and differ, neither
counts, because it is unclear which one is meant.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.bench.base import CodingOutcome, TestReport
from assay.core.files import read_plain_file
from assay.core.text import cut
from assay.sandboxes.base import TrialFinding

REWARD: Final = "reward"
_JSON: Final = "reward.json"
_TEXT: Final = "reward.txt"
_CTRF: Final = "ctrf.json"
_STATUSES: Final = {"passed": "passed", "failed": "failed", "skipped": "skipped"}
_MAX_TESTS: Final = 10_000


class VerifierResult(NamedTuple):
    """Result of verifying a step of a task."""

    rewards: Mapping[str, float] | None
    outcome: CodingOutcome | None = None
    """Reason for a missing reward."""
    findings: tuple[TrialFinding, ...] = ()
    tests: tuple[TestReport, ...] = ()
    log: str = ""


def read_rewards(folder: Path) -> VerifierResult:
    """Read the rewards of a verifier from the folder that was its /logs/verifier."""
    try:
        rewards = {name: _read_reward_file(folder / name) for name in (_JSON, _TEXT)}
    except (OSError, ValueError) as error:
        finding = TrialFinding("reward_unreadable", cut(str(error), 300))
        return VerifierResult(None, CodingOutcome.TESTS_DID_NOT_RUN, (finding,))
    first, second = rewards[_JSON], rewards[_TEXT]
    if first is None and second is None:
        finding = TrialFinding("no_reward", f"the tests left neither {_JSON} nor {_TEXT}")
        return VerifierResult(None, CodingOutcome.TESTS_DID_NOT_RUN, (finding,))
    if (
        first is not None
        and second is not None
        and select_reward(first) != select_reward(second)
    ):
        text = f"{_JSON}: {select_reward(first):g}, {_TEXT}: {select_reward(second):g}"
        finding = TrialFinding("rewards_disagree", text)
        return VerifierResult(None, CodingOutcome.REWARDS_DISAGREE, (finding,))
    return VerifierResult(second if first is None else first)


def _read_reward_file(path: Path) -> dict[str, float] | None:
    """Read the rewards in one file; return None if it does not exist."""
    if not path.is_symlink() and not path.exists():
        return None
    text = read_plain_file(path).decode("utf-8").strip()
    if path.name == _TEXT:
        return {REWARD: _check_number(float(text), path.name)}
    values = json.loads(text)
    if not isinstance(values, dict) or not values:
        raise ValueError(f"{path.name} is not a mapping of names to numbers")
    rewards = {str(name): _check_number(value, path.name) for name, value in values.items()}
    if REWARD not in rewards and len(rewards) > 1:
        raise ValueError(f"{path.name} has {len(rewards)} rewards, and none is {REWARD!r}")
    return rewards


def _check_number(value: Any, name: str) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
    ):
        raise ValueError(f"{name} has {value!r}, which is not a number")
    return float(value)


def select_reward(rewards: Mapping[str, float]) -> float:
    """Return the reward that counts: the one named `reward`, or the only one."""
    return rewards[REWARD] if REWARD in rewards else next(iter(rewards.values()))


def classify_score(score: float | None) -> CodingOutcome:
    """Return the outcome for a score from 0 to 1; None means a missing reward."""
    if score is None:
        return CodingOutcome.TESTS_DID_NOT_RUN
    if score >= 1.0:
        return CodingOutcome.SOLVED
    return CodingOutcome.PARTLY if score > 0 else CodingOutcome.UNSOLVED


def combine_rewards(
    steps: Sequence[Mapping[str, float] | None], strategy: str
) -> dict[str, float]:
    """Combine the rewards of all verified steps: their means, or those of the last step."""
    if strategy == "final":
        return dict(steps[-1] or {}) if steps else {}
    scored = [step for step in steps if step is not None]
    names = dict.fromkeys(name for step in scored for name in step)
    return {name: sum(step.get(name, 0.0) for step in scored) / len(scored) for name in names}


def read_tests(folder: Path, script: str) -> tuple[TestReport, ...]:
    """Read the results of single tests from a CTRF report; empty if there is none."""
    path = folder / _CTRF
    try:
        tests = json.loads(read_plain_file(path))["results"]["tests"]
        return tuple(
            TestReport(
                script,
                cut(str(test["name"]), 200),
                _STATUSES.get(test["status"], "error"),
                cut(str(test.get("message", "")), 500),
            )
            for test in tests[:_MAX_TESTS]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()
