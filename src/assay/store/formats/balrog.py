"""BALROG: an episode is a JSON file of totals and, beside it, a CSV file of its steps.

The folders are `<run>/<environment>/<task>/<task>_run_NN.json` and `.csv`. Totals come from
the JSON file: it has tokens, invalid actions and achievements of the whole episode, without
saying in which step they fell. Prompts are not recorded, and the seed does not make the same
world again.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from math import isclose
from pathlib import PurePath
from typing import Any, Final

from assay.core.canonical_json import canonical_json, content_hash, derived_id
from assay.errors import UsageError
from assay.store.formats.foreign import (
    Conversation,
    ForeignRun,
    as_count,
    as_mapping,
    as_name,
    as_number,
    as_seconds,
    as_text,
)
from assay.store.records import EndRecord, Imported, PlayedRecord, StepRecord, Trace
from assay.types import StopReason, TrialState

EPISODE_FILE: Final = re.compile(r"(?P<task>.+)_run_(?P<number>\d{1,9})\.json")
"""The name of the JSON file of an episode."""

_REASON: Final = (
    "BALROG records neither the state of the world nor a seed that makes it again, "
    "so its steps cannot be replayed"
)
_DATE: Final = re.compile(r"(20\d\d)-?([01]\d)-?([0-3]\d)(?!\d)")
_COLUMNS: Final = ("Action", "Reasoning", "Observation", "Reward", "Done")
# Written by the csv module of Python with this sign, which no game uses.
_ESCAPE: Final = "˘"
_MAX_STEPS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _StepRow:
    action: str
    reasoning: str
    observation: str
    reward: float
    done: bool


def is_balrog(value: Mapping[str, Any]) -> bool:
    """Whether an object looks like the totals of an episode."""
    return {"action_frequency", "num_steps", "failed_candidates"} <= value.keys()


def read_balrog(
    value: Mapping[str, Any], steps: bytes | None, path: PurePath, modified: float
) -> Trace:
    """An episode, from its totals and its steps where there are any.

    Args:
        value: The JSON file.
        steps: The CSV file beside it.
        path: Where the JSON file is: its folders name the run and the environment.
        modified: When it was written, for runs whose folder names no date.

    Raises:
        ValueError: The files contradict each other, or hold what no session may hold.
    """
    rows = [] if steps is None else list(_rows(steps))
    _check(value, rows, steps is not None)
    run = _run(value, path, modified)
    conversation, played = _play(value, rows, run.created_at)
    match = EPISODE_FILE.fullmatch(path.name)
    seed = value.get("seed")
    return run.trace(
        session_id=derived_id("balrog", content_hash(canonical_json(value))),
        task=f"balrog/{_environment(path)}/{as_name(value.get('task'), 'default')}",
        imported=Imported(_REASON, _totals(value)),
        conversation=conversation,
        end=EndRecord(
            at=run.created_at,
            state=TrialState.RESULT,
            stop_reason=StopReason.DONE if value.get("done") else StopReason.MAX_STEPS,
            duration_s=0.0,
            outcomes=_outcomes(value),
        ),
        seed=seed if type(seed) is int else None,
        episode=int(match["number"]) % 2**31 if match else 0,
        metadata={"action_frequency": as_mapping(value.get("action_frequency"))},
        played=played,
    )


def _rows(content: bytes) -> Iterator[_StepRow]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError("the CSV file of its steps is not UTF-8") from error
    reader = csv.DictReader(StringIO(text, newline=""), escapechar=_ESCAPE)
    try:
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise UsageError(f"the CSV file of its steps has no column {missing[0]!r}")
        for number, row in enumerate(reader):
            reward = _float(row["Reward"])
            if reward is None or number >= _MAX_STEPS:
                raise UsageError(f"the CSV file of its steps is damaged at step {number}")
            yield _StepRow(
                row["Action"],
                row["Reasoning"],
                row["Observation"],
                reward,
                row["Done"] == "True",
            )
    except csv.Error as error:
        raise UsageError(f"the CSV file of its steps is damaged: {error}") from error


def _float(text: str | None) -> float | None:
    try:
        return as_number(float(text or ""))
    except ValueError:
        return None


def _check(value: Mapping[str, Any], rows: list[_StepRow], steps: bool) -> None:
    count, earned = value.get("num_steps"), as_number(value.get("episode_return"))
    if type(count) is not int or not 0 <= count <= _MAX_STEPS:
        raise UsageError(f"num_steps: must be a whole number, got {str(count)[:40]!r}")
    if not isinstance(value.get("failed_candidates"), list):
        raise UsageError("failed_candidates: must be a list")
    if not steps:
        return
    if len(rows) != count:
        raise UsageError(f"num_steps is {count}, and the CSV file has {len(rows)} steps")
    total = sum(row.reward for row in rows)
    if earned is not None and not isclose(total, earned, abs_tol=1e-6):
        raise UsageError(f"episode_return is {earned:g}, and the CSV file has {total:g}")


def _run(value: Mapping[str, Any], path: PurePath, modified: float) -> ForeignRun:
    agent, client = as_mapping(value.get("agent")), as_mapping(value.get("client"))
    folder = path.parts[-4] if len(path.parts) >= 4 else ""
    # Only what is named here is kept: a client's address may hold a key.
    known = {name: client.get(name) for name in ("client_name", "model_id", "generate_kwargs")}
    configuration = {"agent": agent, "client": known} if client else {"agent": agent}
    model = as_name(client.get("model_id"), as_name(folder, "unknown"))
    return ForeignRun(
        source="balrog",
        key=(folder, canonical_json(configuration).decode()),
        model=model,
        created_at=_date(folder, modified),
        configuration=configuration,
        provenance={"program": "BALROG", "run": folder},
    )


def _date(folder: str, modified: float) -> float:
    for match in _DATE.finditer(folder):
        at = as_seconds(f"{match[1]}-{match[2]}-{match[3]}")
        if at is not None:
            return at
    return max(modified, 0.0)


def _environment(path: PurePath) -> str:
    return as_name(path.parts[-3] if len(path.parts) >= 3 else "", "unknown")


def _play(
    value: Mapping[str, Any], rows: list[_StepRow], at: float
) -> tuple[Conversation, list[PlayedRecord]]:
    conversation = Conversation(at)
    unknown = _unknown(value["failed_candidates"], rows)
    played: list[PlayedRecord] = []
    for turn, row in enumerate(rows, start=1):
        said = f"{row.reasoning}\n{row.action}" if row.reasoning else row.action
        conversation.say(turn, {"role": "assistant", "content": said}, "reply")
        conversation.say(turn, {"role": "user", "content": row.observation}, "observation")
        step = StepRecord(
            index=turn,
            action=row.action,
            reward=row.reward,
            digest=None,
            terminated=row.done,
        )
        bad = (row.action,) if turn in unknown else ()
        played.append(
            PlayedRecord(turn=turn, at=at, asked=(row.action,), unknown=bad, steps=(step,))
        )
    return conversation, played


def _unknown(failed: list[Any], rows: list[_StepRow]) -> set[int]:
    """The turns whose actions were invalid, where the steps tell.

    Older files have the action that was played instead of the one asked for.
    """
    found: set[int] = set()
    for turn, row in enumerate(rows, start=1):
        if len(found) < len(failed) and row.action == failed[len(found)]:
            found.add(turn)
    return found if len(found) == len(failed) else set()


def _totals(value: Mapping[str, Any]) -> dict[str, float | None]:
    totals: dict[str, float | None] = {
        "num_timesteps": value["num_steps"],
        "num_turns": value["num_steps"],
        "actions_asked": value["num_steps"],
        "unknown_actions": len(value["failed_candidates"]),
        "prompt_tokens": as_count(value.get("input_tokens")),
        "completion_tokens": as_count(value.get("output_tokens")),
        "num_achievements": len(_unlocked(value)),
        "cost_usd": None,
    }
    earned = as_number(value.get("episode_return"))
    return totals if earned is None else {**totals, "total_reward": earned}


def _unlocked(value: Mapping[str, Any]) -> list[str]:
    found = as_mapping(value.get("achievements"))
    return [name for name, times in found.items() if as_count(times)]


def _outcomes(value: Mapping[str, Any]) -> dict[str, float]:
    steps = value["num_steps"]
    outcomes = {
        "steps": float(steps),
        "turns": float(steps),
        "invalid_rate": len(value["failed_candidates"]) / steps if steps else 0.0,
        "tokens": float(
            as_count(value.get("input_tokens")) + as_count(value.get("output_tokens"))
        ),
    }
    for metric, name in (
        ("reward", "episode_return"),
        ("progression", "progression"),
        ("score", "score"),
    ):
        if (number := as_number(value.get(name))) is not None:
            outcomes[metric] = number
    achievements = as_mapping(value.get("achievements"))
    if achievements:
        unlocked = set(_unlocked(value))
        outcomes["achievements"] = float(len(unlocked))
        for name in achievements:
            outcomes[f"unlocked/{as_text(name, 100)}"] = float(name in unlocked)
    return outcomes
