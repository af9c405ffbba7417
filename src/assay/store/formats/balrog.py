"""Import of BALROG episodes: a JSON file with totals and a CSV file with steps.

The files are `<run>/<environment>/<task>/<task>_run_NN.json` and `.csv`. The JSON file has the
tokens, invalid actions and achievements of the whole episode, but not their steps. Prompts are
not recorded, and the seed does not reproduce the world.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from math import isclose
from pathlib import PurePath
from typing import Any, Final

from assay.core.canonical_json import canonical_json, content_hash, derive_id
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
"""File name of an episode's JSON file."""

_REASON: Final = (
    "BALROG records neither the state of the world nor a seed that makes it again, "
    "so its steps cannot be replayed"
)
_DATE: Final = re.compile(r"(20\d\d)-?([01]\d)-?([0-3]\d)(?!\d)")
_COLUMNS: Final = ("Action", "Reasoning", "Observation", "Reward", "Done")
# BALROG uses this as the escape character, because it occurs in no game.
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
    """Return whether an object looks like the totals of a BALROG episode."""
    return {"action_frequency", "num_steps", "failed_candidates"} <= value.keys()


def read_balrog(
    value: Mapping[str, Any], steps: bytes | None, path: PurePath, modified: float
) -> Trace:
    """Convert an episode to a session.

    Args:
        value: The JSON file.
        steps: The CSV file, if there is one.
        path: Path of the JSON file; its folders are named after the run and environment.
        modified: When it was written, used if the name of the run has no date.

    Raises:
        ValueError: The files contradict each other, or contain an invalid value.
    """
    rows = [] if steps is None else list(_read_rows(steps))
    _check(value, rows, steps is not None)
    run = _make_run(value, path, modified)
    conversation, played = _make_turns(value, rows, run.created_at)
    match = EPISODE_FILE.fullmatch(path.name)
    seed = value.get("seed")
    return run.trace(
        session_id=derive_id("balrog", content_hash(canonical_json(value))),
        task=f"balrog/{_get_environment(path)}/{as_name(value.get('task'), 'default')}",
        imported=Imported(_REASON, _make_totals(value)),
        conversation=conversation,
        end=EndRecord(
            at=run.created_at,
            state=TrialState.RESULT,
            stop_reason=StopReason.DONE if value.get("done") else StopReason.MAX_STEPS,
            duration_s=0.0,
            outcomes=_make_outcomes(value),
        ),
        seed=seed if type(seed) is int else None,
        episode=int(match["number"]) % 2**31 if match else 0,
        metadata={"action_frequency": as_mapping(value.get("action_frequency"))},
        played=played,
    )


def _read_rows(content: bytes) -> Iterator[_StepRow]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError("the steps CSV is not UTF-8") from error
    reader = csv.DictReader(StringIO(text, newline=""), escapechar=_ESCAPE)
    try:
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise UsageError(f"the steps CSV has no column {missing[0]!r}")
        for number, row in enumerate(reader):
            reward = _parse_float(row["Reward"])
            if reward is None or number >= _MAX_STEPS:
                raise UsageError(f"the steps CSV is damaged at step {number}")
            yield _StepRow(
                row["Action"],
                row["Reasoning"],
                row["Observation"],
                reward,
                row["Done"] == "True",
            )
    except csv.Error as error:
        raise UsageError(f"the steps CSV is damaged: {error}") from error


def _parse_float(text: str | None) -> float | None:
    try:
        return as_number(float(text or ""))
    except ValueError:
        return None


def _check(value: Mapping[str, Any], rows: list[_StepRow], steps: bool) -> None:
    count, reward = value.get("num_steps"), as_number(value.get("episode_return"))
    if type(count) is not int or not 0 <= count <= _MAX_STEPS:
        raise UsageError(f"num_steps: must be a whole number, got {str(count)[:40]!r}")
    if not isinstance(value.get("failed_candidates"), list):
        raise UsageError("failed_candidates: must be a list")
    if not steps:
        return
    if len(rows) != count:
        raise UsageError(f"num_steps is {count}, but the CSV file has {len(rows)} steps")
    total = sum(row.reward for row in rows)
    if reward is not None and not isclose(total, reward, abs_tol=1e-6):
        raise UsageError(f"episode_return is {reward:g}, but the CSV file has {total:g}")


def _make_run(value: Mapping[str, Any], path: PurePath, modified: float) -> ForeignRun:
    agent, client = as_mapping(value.get("agent")), as_mapping(value.get("client"))
    folder = path.parts[-4] if len(path.parts) >= 4 else ""
    # Only these fields are kept, because a client's address may contain a key.
    known = {name: client.get(name) for name in ("client_name", "model_id", "generate_kwargs")}
    configuration = {"agent": agent, "client": known} if client else {"agent": agent}
    model = as_name(client.get("model_id"), as_name(folder, "unknown"))
    return ForeignRun(
        source="balrog",
        key=(folder, canonical_json(configuration).decode()),
        model=model,
        created_at=_find_date(folder, modified),
        configuration=configuration,
        provenance={"program": "BALROG", "run": folder},
    )


def _find_date(folder: str, modified: float) -> float:
    for match in _DATE.finditer(folder):
        at = as_seconds(f"{match[1]}-{match[2]}-{match[3]}")
        if at is not None:
            return at
    return max(modified, 0.0)


def _get_environment(path: PurePath) -> str:
    return as_name(path.parts[-3] if len(path.parts) >= 3 else "", "unknown")


def _make_turns(
    value: Mapping[str, Any], rows: list[_StepRow], at: float
) -> tuple[Conversation, list[PlayedRecord]]:
    conversation = Conversation(at)
    unknown = _find_unknown(value["failed_candidates"], rows)
    played: list[PlayedRecord] = []
    for turn, row in enumerate(rows, start=1):
        reply = f"{row.reasoning}\n{row.action}" if row.reasoning else row.action
        conversation.say(turn, {"role": "assistant", "content": reply}, "reply")
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


def _find_unknown(failed: list[Any], rows: list[_StepRow]) -> set[int]:
    """Return the turns with invalid actions; empty if the steps do not show them all.

    Older files have the action that was played, not the one in the reply.
    """
    found: set[int] = set()
    for turn, row in enumerate(rows, start=1):
        if len(found) < len(failed) and row.action == failed[len(found)]:
            found.add(turn)
    return found if len(found) == len(failed) else set()


def _make_totals(value: Mapping[str, Any]) -> dict[str, float | None]:
    totals: dict[str, float | None] = {
        "num_timesteps": value["num_steps"],
        "num_turns": value["num_steps"],
        "actions_asked": value["num_steps"],
        "unknown_actions": len(value["failed_candidates"]),
        "prompt_tokens": as_count(value.get("input_tokens")),
        "completion_tokens": as_count(value.get("output_tokens")),
        "num_achievements": len(_list_unlocked(value)),
        "cost_usd": None,
    }
    reward = as_number(value.get("episode_return"))
    return totals if reward is None else {**totals, "total_reward": reward}


def _list_unlocked(value: Mapping[str, Any]) -> list[str]:
    found = as_mapping(value.get("achievements"))
    return [name for name, times in found.items() if as_count(times)]


def _make_outcomes(value: Mapping[str, Any]) -> dict[str, float]:
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
        unlocked = set(_list_unlocked(value))
        outcomes["achievements"] = float(len(unlocked))
        for name in achievements:
            outcomes[f"unlocked/{as_text(name, 100)}"] = float(name in unlocked)
    return outcomes
