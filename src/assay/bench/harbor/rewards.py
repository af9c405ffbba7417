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
_STATUS: Final = {"passed": "passed", "failed": "failed", "skipped": "skipped"}
_MOST_TESTS: Final = 10_000


class RewardReading(NamedTuple):
    """Rewards of a verifier."""

    rewards: Mapping[str, float] | None
    outcome: CodingOutcome | None = None
    """Reason for a missing reward."""
    finding: TrialFinding | None = None


def read_rewards(folder: Path) -> RewardReading:
    """Read the rewards of a verifier from the folder that was its /logs/verifier."""
    try:
        said = {name: _read(folder / name) for name in (_JSON, _TEXT)}
    except (OSError, ValueError) as error:
        finding = TrialFinding("reward_unreadable", cut(str(error), 300))
        return RewardReading(None, CodingOutcome.TESTS_DID_NOT_RUN, finding)
    first, second = said[_JSON], said[_TEXT]
    if first is None and second is None:
        finding = TrialFinding("no_reward", f"the tests left neither {_JSON} nor {_TEXT}")
        return RewardReading(None, CodingOutcome.TESTS_DID_NOT_RUN, finding)
    if first is not None and second is not None and score_of(first) != score_of(second):
        text = f"{_JSON} says {score_of(first):g} and {_TEXT} {score_of(second):g}"
        finding = TrialFinding("rewards_disagree", text)
        return RewardReading(None, CodingOutcome.REWARDS_DISAGREE, finding)
    return RewardReading(second if first is None else first)


def _read(path: Path) -> dict[str, float] | None:
    """Read the rewards in one file; return None if it does not exist."""
    if not path.is_symlink() and not path.exists():
        return None
    text = read_plain_file(path).decode("utf-8").strip()
    if path.name == _TEXT:
        return {REWARD: _number(float(text), path.name)}
    said = json.loads(text)
    if not isinstance(said, dict) or not said:
        raise ValueError(f"{path.name} is not a mapping of names to numbers")
    rewards = {str(name): _number(value, path.name) for name, value in said.items()}
    if REWARD not in rewards and len(rewards) > 1:
        raise ValueError(f"{path.name} has {len(rewards)} rewards, and none is {REWARD!r}")
    return rewards


def _number(value: Any, name: str) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
    ):
        raise ValueError(f"{name} has {value!r}, which is not a number")
    return float(value)


def score_of(rewards: Mapping[str, float]) -> float:
    """Return the reward that counts: the one named `reward`, or the only one."""
    return rewards[REWARD] if REWARD in rewards else next(iter(rewards.values()))


def outcome_of(score: float | None) -> CodingOutcome:
    """Return the outcome for a score from 0 to 1; None means a missing reward."""
    if score is None:
        return CodingOutcome.TESTS_DID_NOT_RUN
    if score >= 1.0:
        return CodingOutcome.SOLVED
    return CodingOutcome.PARTLY if score > 0 else CodingOutcome.UNSOLVED


def combined(steps: Sequence[Mapping[str, float] | None], strategy: str) -> dict[str, float]:
    """Combine the rewards of all verified steps: their means, or those of the last step."""
    if strategy == "final":
        return dict(steps[-1] or {}) if steps else {}
    known = [rewards for rewards in steps if rewards is not None]
    names = dict.fromkeys(name for rewards in known for name in rewards)
    return {
        name: sum(rewards.get(name, 0.0) for rewards in known) / len(known) for name in names
    }


def read_tests(folder: Path, script: str) -> tuple[TestReport, ...]:
    """Read the results of single tests from a CTRF report; empty if there is none."""
    path = folder / _CTRF
    try:
        tests = json.loads(read_plain_file(path))["results"]["tests"]
        return tuple(
            TestReport(
                script,
                cut(str(test["name"]), 200),
                _STATUS.get(test["status"], "error"),
                cut(str(test.get("message", "")), 500),
            )
            for test in tests[:_MOST_TESTS]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()
