"""`assay-results/1`: the numbers of a run in one file, one value per episode and metric.

An episode that did not end as a result has null in every metric, and is listed by name. What
is about Crafter is left out where another environment was played. Read back, one model is a
subject of a comparison; every problem of a file is a UsageError that says where it is, what
stands there, and what is allowed.
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

from assay.core.canonical_json import laid_out
from assay.core.files import atomic_file
from assay.core.settings import written
from assay.core.text import cut, printable
from assay.crafter.difficulty import DIFFICULTIES
from assay.crafter.rules import TASK
from assay.errors import OutputError, UsageError
from assay.judge.subjects import Subject, TrialOutcome
from assay.store.queries import EpisodeRow
from assay.store.records import StoredRun
from assay.types import TrialState

RESULTS_FORMAT: Final = "assay-results/1"
"""What the field `format` of every results file says."""
_OF_CRAFTER: Final = ("difficulty", "no_effect_actions", "asleep_actions", "achievements")
"""What means nothing of an episode in another world."""


def results_name(at: float) -> str:
    """The name of the results file of a run that ended at this time."""
    return f"multi_model_results_{datetime.fromtimestamp(at, UTC):%Y%m%d_%H%M%S}.json"


def write_results(
    path: Path,
    run: StoredRun,
    rows: Sequence[EpisodeRow],
    outcomes: Mapping[str, Mapping[str, float]],
    analysis: Mapping[str, Any],
    *,
    detailed: bool = True,
) -> None:
    """Write the results of a run.

    Args:
        path: The file, replaced if it is there.
        run: The run; its configuration is the `config` of the file.
        rows: Its episodes, in model, episode order.
        outcomes: For each session that has some, the numbers by metric.
        analysis: What the tables and rankings of the run say, as data.
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
            model: _model(group, outcomes, detailed=detailed)
            for model, group in _by_model(rows).items()
        },
        "analysis": analysis,
    }
    with atomic_file(path) as stream:
        try:
            stream.writelines(laid_out(results, levels=4))
        except ValueError as error:
            raise OutputError(
                f"cannot write {str(path)!r}: an outcome is not a finite number ({error})"
            ) from error


def _by_model(rows: Iterable[EpisodeRow]) -> dict[str, list[EpisodeRow]]:
    groups: dict[str, list[EpisodeRow]] = {}
    for row in rows:
        groups.setdefault(row.model, []).append(row)
    return groups


def _model(
    rows: Sequence[EpisodeRow],
    outcomes: Mapping[str, Mapping[str, float]],
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
        "without_result": list(_without_result(rows)),
    }
    if detailed:
        model["episodes"] = map(_episode, rows)
    return model


def _episode(row: EpisodeRow) -> dict[str, Any]:
    elsewhere = row.difficulty is None and not row.achievements
    return {
        name: value
        for name, value in asdict(row).items()
        if not (elsewhere and name in _OF_CRAFTER)
    }


def _without_result(rows: Sequence[EpisodeRow]) -> Iterator[dict[str, Any]]:
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
    """The JSON object in a file of at most `largest` bytes."""
    try:
        size = path.stat().st_size
        if size > largest:
            raise UsageError(
                f"{str(path)!r} has {size / 1e6:,.0f} MB, and at most {largest / 1e6:,.0f} MB "
                "are read; keep only what is to be compared in it"
            )
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be read: {error.strerror or error}; name a JSON file"
        ) from error
    try:
        value = json.loads(content.decode("utf-8-sig"), parse_constant=_not_a_number)
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(path)!r} is not text in UTF-8; save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        reason = printable(str(error))[:200]
        raise UsageError(f"{str(path)!r} is not whole, valid JSON: {reason}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{str(path)!r} holds {shown_json(value)}; it must be a JSON object")
    return value


def checked_label(value: Any, where: str, key: str, longest: int = _LONGEST_LABEL) -> str:
    """A text of one to `longest` letters."""
    if not isinstance(value, str) or not value.strip() or len(value) > longest:
        _refuse(value, where, key, f"text of 1 to {longest} letters")
    return value


def checked_list(value: Any, where: str, key: str) -> list[Any]:
    """A list with something in it."""
    if not isinstance(value, list):
        _refuse(value, where, key, "a list with a value for each trial")
    if not value:
        raise UsageError(
            f"{where}: {key} is empty; give a value for each trial, or leave it out"
        )
    return value


def checked_numbers(
    values: list[Any], where: str, key: str, *, least: float | None = None
) -> list[float | None]:
    """Finite numbers; null stands for a trial without one."""
    return [
        None if value is None else _number(value, where, f"value {place} of {key}", least)
        for place, value in enumerate(values, start=1)
    ]


def checked_flags(values: list[Any], where: str, key: str) -> list[float | None]:
    """True and false, or 1 and 0, as 1 and 0; null stands for a trial without one."""
    for place, value in enumerate(values, start=1):
        if value is not None and value not in (0, 1):
            _refuse(value, where, f"value {place} of {key}", "true or false")
    return [None if value is None else float(value) for value in values]


def checked_seeds(values: list[Any], where: str, key: str) -> list[int | None]:
    """Whole numbers of 64 bits; null stands for a trial without a seed."""
    for place, value in enumerate(values, start=1):
        whole = type(value) is int and -(2**63) <= value < 2**63
        if value is not None and not whole:
            _refuse(value, where, f"value {place} of {key}", "a whole number")
    return values


def shown_json(value: Any) -> str:
    """A value of a file in a few words, safe to print."""
    match value:
        case dict():
            return f"an object of {len(value)}"
        case list():
            return f"a list of {len(value)}"
        case int() if abs(value) >= 10**18:
            return "a number of more than 18 digits"
    return cut(json.dumps(value, ensure_ascii=False), _LONGEST_SHOWN)


def _number(value: Any, where: str, key: str, least: float | None) -> float:
    # Booleans are numbers to Python, and nobody who writes true means 1 here.
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(value, where, key, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not isfinite(number):
        _refuse(value, where, key, "a finite number")
    if least is not None and number < least:
        _refuse(value, where, key, f"a number of at least {least:g}")
    return number


def _refuse(value: Any, where: str, key: str, allowed: str) -> NoReturn:
    raise UsageError(f"{where}: {key} is {shown_json(value)}; give {allowed}")


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON; write null where there is no value")


_NAME = re.compile(r"(?P<series>.+) (?P<version>v\d+\.\d+)( #\d+)?")


def subject_of_results(
    entry: dict[str, Any], file: Mapping[str, Any], model: str, source: str
) -> Subject:
    """Read one entry of `models`; `file` is what stands around it, empty if nothing does."""
    name = checked_label(entry.get("name", model), f"{source!r}", "name")
    where = f"model {printable(model)!r} of {source!r}" if file else f"{source!r}"
    for key in ("seeds", "metrics"):
        if key not in entry:
            raise UsageError(
                f"{where} has no {key}; a results file has name, seeds, and metrics with a "
                "value for each seed"
            )
    seeds = checked_seeds(checked_list(entry["seeds"], where, "seeds"), where, "seeds")
    metrics = _metrics(entry["metrics"], len(seeds), where)
    run, origin = (
        _mapping(file.get("run")),
        _mapping(_mapping(file.get("run")).get("provenance")),
    )
    parts = _NAME.fullmatch(name) if file.get("format") == RESULTS_FORMAT else None
    commit = origin.get("commit")
    if isinstance(commit, str) and origin.get("dirty") is True:
        commit = f"{commit}+"
    facts = dict(_mapping(file.get("config")))
    used = {"name", "seeds", "metrics", "episodes", "without_result", "baseline"}
    facts |= {key: value for key, value in entry.items() if key not in used}
    return Subject(
        id=f"{source}#{model}" if file else source,
        name=name,
        model=model if file else None,
        series=parts["series"] if parts else None,
        version=parts["version"] if parts else None,
        run_id=run["id"] if isinstance(run.get("id"), str) else None,
        created_at=_moment(run.get("created_at")),
        commit=commit if isinstance(commit, str) else None,
        baseline=entry.get("baseline") is True,
        source=source,
        facts=facts,
        trials=tuple(
            _trials_of_results(
                entry, seeds, metrics, f"{source}#{model}", _difficulty(facts.get("difficulty"))
            )
        ),
    )


def values_at(metrics: Mapping[str, list[float | None]], at: int) -> dict[str, float]:
    """The numbers of one trial, by metric; those it does not have are left out."""
    return {
        name: value for name, values in metrics.items() if (value := values[at]) is not None
    }


def _metrics(value: Any, count: int, where: str) -> dict[str, list[float | None]]:
    if not isinstance(value, dict):
        raise UsageError(
            f"{where} has {shown_json(value)} as metrics; give a list for each metric"
        )
    metrics: dict[str, list[float | None]] = {}
    for name, values in value.items():
        label = f"metric {printable(name)!r}"
        metrics[name] = checked_numbers(checked_list(values, where, label), where, label)
        if len(values) != count:
            raise UsageError(
                f"{where} has {count} seeds and {len(values)} values of {label}; give a value "
                "for each seed, and null where there is none"
            )
    return metrics


def _trials_of_results(
    entry: Mapping[str, Any],
    seeds: list[int | None],
    metrics: Mapping[str, list[float | None]],
    prefix: str,
    played: str | None,
) -> Iterator[TrialOutcome]:
    episodes = entry.get("episodes")
    if not isinstance(episodes, list) or len(episodes) != len(seeds):
        episodes = [None] * len(seeds)
    values = [values_at(metrics, at) for at in range(len(seeds))]
    missing = sum(not earned for earned in values)
    reasons = entry.get("without_result")
    if not isinstance(reasons, list) or len(reasons) != missing:
        reasons = [None] * missing
    reason = iter(reasons)
    met: Counter[int | None] = Counter()
    for at, (seed, earned) in enumerate(zip(seeds, values, strict=True)):
        met[seed] += 1
        about = {**(_mapping({} if earned else next(reason))), **_mapping(episodes[at])}
        difficulty = about.get("difficulty")
        task = f"{TASK}{difficulty}" if isinstance(difficulty, str) else played
        trial_id = about.get("session_id")
        yield TrialOutcome(
            trial_id=trial_id if isinstance(trial_id, str) else f"{prefix} #{at + 1}",
            pair=None if seed is None else str(seed) if task is None else f"{task} {seed}",
            task=task,
            seed=seed,
            replicate=0 if seed is None else met[seed] - 1,
            state=TrialState.RESULT if earned else _state(about.get("state")),
            values=earned,
            ended=said if isinstance(said := about.get("stop_reason"), str) else None,
            unlock_steps=_steps(about.get("achievements")),
        )


def _steps(unlocked: Any) -> tuple[int, ...]:
    """The steps of an episode's achievements, as far as a file says them."""
    return tuple(sorted(step for step in _mapping(unlocked).values() if type(step) is int))


def _difficulty(numbers: Any) -> str | None:
    """The task of a run, from the numbers of its worlds; None if they have no name."""
    named = (name for name, one in DIFFICULTIES.items() if numbers == written(one))
    return next((f"{TASK}{name}" for name in named), None)


def _state(value: Any) -> TrialState:
    if value == TrialState.INFRASTRUCTURE.value:
        return TrialState.INFRASTRUCTURE
    return TrialState.FAILURE


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _moment(seconds: Any) -> datetime | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None
