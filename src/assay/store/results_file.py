"""Writing and reading results files (`assay-results/1`): one value per episode and metric.

An episode without a result has null in every metric and is listed with its reason. Fields that
are specific to Crafter are omitted for other environments.

Reading turns one model of a file into a subject of a comparison. Files may be written by hand,
so every value is checked; an invalid one raises a UsageError with its place, the value, and the
allowed ones.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, Final, NoReturn

from assay.core.canonical_json import format_json
from assay.core.files import atomic_file
from assay.core.settings import to_stored
from assay.core.text import cut, printable
from assay.crafter.difficulty import DIFFICULTIES
from assay.crafter.rules import TASK
from assay.errors import OutputError, UsageError
from assay.judge.outcomes import Outcome, parse_outcome, written_outcome
from assay.judge.subjects import Subject, TrialOutcome
from assay.store.queries import EpisodeRow
from assay.store.records import StoredRun
from assay.types import TrialState

RESULTS_FORMAT: Final = "assay-results/1"
"""Value of the field `format` in every results file."""
_CRAFTER_ONLY: Final = ("difficulty", "no_effect_actions", "asleep_actions", "achievements")
"""Fields of an episode that other environments do not have."""


def results_name(at: float) -> str:
    """Return the name of the results file of a run that ended at this time."""
    return f"multi_model_results_{datetime.fromtimestamp(at, UTC):%Y%m%d_%H%M%S}.json"


def write_results(
    path: Path,
    run: StoredRun,
    rows: Sequence[EpisodeRow],
    outcomes: Mapping[str, Mapping[str, float]],
    analysis: Mapping[str, Any],
    *,
    declared: Mapping[str, Mapping[str, Outcome]] | None = None,
    detailed: bool = True,
) -> None:
    """Write the results of a run.

    Args:
        path: The file, replaced if it exists.
        run: The run; its configuration is the `config` of the file.
        rows: Its episodes, sorted by model and episode.
        outcomes: Values by session and metric.
        analysis: Content of the tables and rankings of the run.
        declared: Declared metrics by experiment.
        detailed: Whether to write `episodes` too.

    Raises:
        OutputError: The file cannot be written.
    """
    about = {name: value for name, value in asdict(run).items() if name != "configuration"}
    config = dict(run.configuration)
    if config.get("environment") is not None:
        del config["difficulty"]
    results = {
        "format": RESULTS_FORMAT,
        "run": about,
        "config": config,
        "models": {
            model: _make_model(group, outcomes, declared or {}, detailed=detailed)
            for model, group in _group_by_model(rows).items()
        },
        "analysis": analysis,
    }
    with atomic_file(path) as stream:
        try:
            stream.writelines(format_json(results, levels=4))
        except ValueError as error:
            raise OutputError(
                f"cannot write {str(path)!r}: an outcome is not a finite number ({error})"
            ) from error


def _group_by_model(rows: Iterable[EpisodeRow]) -> dict[str, list[EpisodeRow]]:
    groups: dict[str, list[EpisodeRow]] = {}
    for row in rows:
        groups.setdefault(row.model, []).append(row)
    return groups


def _make_model(
    rows: Sequence[EpisodeRow],
    outcomes: Mapping[str, Mapping[str, float]],
    declared: Mapping[str, Mapping[str, Outcome]],
    *,
    detailed: bool,
) -> dict[str, Any]:
    earned = [
        outcomes.get(row.session_id, {}) if row.state is TrialState.RESULT else {}
        for row in rows
    ]
    names = sorted({name for numbers in outcomes.values() for name in numbers})
    model: dict[str, Any] = {
        "name": rows[0].experiment_name,
        "experiment": rows[0].experiment_id,
        "baseline": rows[0].baseline,
        "seeds": [row.seed for row in rows],
        "metrics": {name: [numbers.get(name) for numbers in earned] for name in names},
        "without_result": list(_list_without_result(rows)),
    }
    if own := declared.get(rows[0].experiment_id):
        model["declared"] = {name: written_outcome(each) for name, each in own.items()}
    if detailed:
        model["episodes"] = map(_make_episode, rows)
    return model


def _make_episode(row: EpisodeRow) -> dict[str, Any]:
    is_crafter = row.difficulty is not None or row.achievements
    return {
        name: value
        for name, value in asdict(row).items()
        if is_crafter or name not in _CRAFTER_ONLY
    }


def _list_without_result(rows: Sequence[EpisodeRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row.state is not TrialState.RESULT:
            yield {
                "session_id": row.session_id,
                "seed": row.seed,
                "episode": row.episode,
                "state": row.state,
                "stop_reason": row.stop_reason,
                "error_type": row.error_type,
                "error_message": row.error_message,
            }


_LONGEST_LABEL = 300
_LONGEST_SHOWN = 60


def read_object(path: Path, largest: int) -> dict[str, Any]:
    """Read the JSON object in a file of at most `largest` bytes."""
    try:
        size = path.stat().st_size
        if size > largest:
            raise UsageError(
                f"{str(path)!r} has {size / 1e6:,.0f} MB, but at most {largest / 1e6:,.0f} MB "
                "are allowed; remove what is not needed for the comparison"
            )
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be read: {error.strerror or error}; give a JSON file"
        ) from error
    try:
        value = json.loads(content.decode("utf-8-sig"), parse_constant=_reject_constant)
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(path)!r} is not text in UTF-8; save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        reason = printable(str(error))[:200]
        raise UsageError(f"{str(path)!r} is not complete, valid JSON: {reason}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{str(path)!r} contains {describe_json(value)}; give a JSON object")
    return value


def check_label(value: Any, where: str, key: str, longest: int = _LONGEST_LABEL) -> str:
    """Return the value if it is text of 1 to `longest` characters; else raise UsageError."""
    if not isinstance(value, str) or not value.strip() or len(value) > longest:
        _reject(value, where, key, f"text of 1 to {longest} characters")
    return value


def check_list(value: Any, where: str, key: str) -> list[Any]:
    """Return the value if it is a list that is not empty; else raise UsageError."""
    if not isinstance(value, list):
        _reject(value, where, key, "a list with one value per trial")
    if not value:
        raise UsageError(f"{where}: {key} is empty; give one value per trial, or leave it out")
    return value


def check_numbers(
    values: list[Any], where: str, key: str, *, least: float | None = None
) -> list[float | None]:
    """Convert values to finite numbers; null is a trial without a value."""
    return [
        None if value is None else _check_number(value, where, f"value {place} of {key}", least)
        for place, value in enumerate(values, start=1)
    ]


def check_flags(values: list[Any], where: str, key: str) -> list[float | None]:
    """Convert true, false, 1 and 0 to 1.0 and 0.0; null is a trial without a value."""
    for place, value in enumerate(values, start=1):
        if value is not None and value not in (0, 1):
            _reject(value, where, f"value {place} of {key}", "true or false")
    return [None if value is None else float(value) for value in values]


def check_seeds(values: list[Any], where: str, key: str) -> list[int | None]:
    """Return the values if they are 64-bit integers or null; else raise UsageError."""
    for place, value in enumerate(values, start=1):
        whole = type(value) is int and -(2**63) <= value < 2**63
        if value is not None and not whole:
            _reject(value, where, f"value {place} of {key}", "a whole number")
    return values


def describe_json(value: Any) -> str:
    """Describe a JSON value in a few words that are safe to print."""
    match value:
        case dict():
            return f"an object of {len(value)}"
        case list():
            return f"a list of {len(value)}"
        case int() if abs(value) >= 10**18:
            return "a number of more than 18 digits"
    return cut(json.dumps(value, ensure_ascii=False), _LONGEST_SHOWN)


def _check_number(value: Any, where: str, key: str, least: float | None) -> float:
    # Python treats booleans as numbers, but true in a file is not meant as 1 here.
    if isinstance(value, bool) or not isinstance(value, int | float):
        _reject(value, where, key, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not isfinite(number):
        _reject(value, where, key, "a finite number")
    if least is not None and number < least:
        _reject(value, where, key, f"a number of at least {least:g}")
    return number


def _reject(value: Any, where: str, key: str, allowed: str) -> NoReturn:
    raise UsageError(f"{where}: {key} is {describe_json(value)}; give {allowed}")


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number; write null for a missing value")


_NAME = re.compile(r"(?P<series>.+) (?P<version>v\d+\.\d+)( #\d+)?")


def parse_results_subject(
    entry: dict[str, Any], file: Mapping[str, Any], model: str, source: str
) -> Subject:
    """Read one entry of `models`; `file` is the whole file, or empty if the entry is all."""
    name = check_label(entry.get("name", model), f"{source!r}", "name")
    where = f"model {printable(model)!r} of {source!r}" if file else f"{source!r}"
    for key in ("seeds", "metrics"):
        if key not in entry:
            raise UsageError(
                f"{where} has no {key}; a results file has name, seeds, and metrics with one "
                "value per seed"
            )
    seeds = check_seeds(check_list(entry["seeds"], where, "seeds"), where, "seeds")
    metrics = _check_metrics(entry["metrics"], len(seeds), where)
    run, origin = (
        _as_mapping(file.get("run")),
        _as_mapping(_as_mapping(file.get("run")).get("provenance")),
    )
    parts = _NAME.fullmatch(name) if file.get("format") == RESULTS_FORMAT else None
    commit = origin.get("commit")
    if isinstance(commit, str) and origin.get("dirty") is True:
        commit = f"{commit}+"
    facts = dict(_as_mapping(file.get("config")))
    used = {"name", "seeds", "metrics", "episodes", "without_result", "baseline", "declared"}
    facts |= {key: value for key, value in entry.items() if key not in used}
    return Subject(
        id=f"{source}#{model}" if file else source,
        name=name,
        model=model if file else None,
        series=parts["series"] if parts else None,
        version=parts["version"] if parts else None,
        run_id=run["id"] if isinstance(run.get("id"), str) else None,
        created_at=_parse_time(run.get("created_at")),
        commit=commit if isinstance(commit, str) else None,
        baseline=entry.get("baseline") is True,
        source=source,
        facts=facts,
        outcomes=parse_declared(entry.get("declared"), where),
        trials=tuple(
            _make_trials(
                entry, seeds, metrics, f"{source}#{model}", _find_task(facts.get("difficulty"))
            )
        ),
    )


def parse_declared(value: Any, where: str) -> dict[str, Outcome]:
    """Parse declared metrics: each name has `"lower"`, or `{"better": "lower", "low": 0}`."""
    if not isinstance(value, dict | None):
        _reject(value, where, "declared", 'an object, such as {"loss": "lower"}')
    return {
        name: parse_outcome(name, stated, f"{where}: ")
        for name, stated in (value or {}).items()
    }


def get_trial_values(metrics: Mapping[str, list[float | None]], at: int) -> dict[str, float]:
    """Return the values of one trial by metric, without missing ones."""
    return {
        name: value for name, values in metrics.items() if (value := values[at]) is not None
    }


def _check_metrics(value: Any, count: int, where: str) -> dict[str, list[float | None]]:
    if not isinstance(value, dict):
        raise UsageError(
            f"{where}: metrics is {describe_json(value)}; give an object with a list per metric"
        )
    metrics: dict[str, list[float | None]] = {}
    for name, values in value.items():
        label = f"metric {printable(name)!r}"
        metrics[name] = check_numbers(check_list(values, where, label), where, label)
        if len(values) != count:
            raise UsageError(
                f"{where} has {count} seeds but {len(values)} values of {label}; give one "
                "value per seed, or null if there is none"
            )
    return metrics


def _make_trials(
    entry: Mapping[str, Any],
    seeds: list[int | None],
    metrics: Mapping[str, list[float | None]],
    prefix: str,
    played: str | None,
) -> Iterator[TrialOutcome]:
    episodes = entry.get("episodes")
    if not isinstance(episodes, list) or len(episodes) != len(seeds):
        episodes = [None] * len(seeds)
    results = [get_trial_values(metrics, at) for at in range(len(seeds))]
    missing = sum(not values for values in results)
    reasons = entry.get("without_result")
    if not isinstance(reasons, list) or len(reasons) != missing:
        reasons = [None] * missing
    reason = iter(reasons)
    counts: Counter[int | None] = Counter()
    for at, (seed, values) in enumerate(zip(seeds, results, strict=True)):
        counts[seed] += 1
        about = {**(_as_mapping({} if values else next(reason))), **_as_mapping(episodes[at])}
        difficulty = about.get("difficulty")
        task = f"{TASK}{difficulty}" if isinstance(difficulty, str) else played
        trial_id = about.get("session_id")
        yield TrialOutcome(
            trial_id=trial_id if isinstance(trial_id, str) else f"{prefix} #{at + 1}",
            pair=None if seed is None else str(seed) if task is None else f"{task} {seed}",
            task=task,
            seed=seed,
            replicate=0 if seed is None else counts[seed] - 1,
            state=TrialState.RESULT if values else _parse_state(about.get("state")),
            values=values,
            ended=text if isinstance(text := about.get("stop_reason"), str) else None,
            unlock_steps=_read_steps(about.get("achievements")),
        )


def _read_steps(unlocked: Any) -> tuple[int, ...]:
    """Return the sorted steps of an episode's achievements, ignoring invalid ones."""
    return tuple(sorted(step for step in _as_mapping(unlocked).values() if type(step) is int))


def _find_task(numbers: Any) -> str | None:
    """Return the task with these numbers of a difficulty; None if they match no known one."""
    named = (name for name, preset in DIFFICULTIES.items() if numbers == to_stored(preset))
    return next((f"{TASK}{name}" for name in named), None)


def _parse_state(value: Any) -> TrialState:
    if value == TrialState.INFRASTRUCTURE.value:
        return TrialState.INFRASTRUCTURE
    return TrialState.FAILURE


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _parse_time(seconds: Any) -> datetime | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None
