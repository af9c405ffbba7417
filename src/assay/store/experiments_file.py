"""Reading the subjects of a comparison from files, and writing them to an experiments file.

Two layouts are read. An experiments file is written by hand or by `assay experiments export`:
a list of experiments, each with its achievements and instances. A results file is written by
`assay run`; a file with only one of its models is accepted too. An invalid file raises a
UsageError that names the file and the experiment. Nothing here computes a statistic.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from assay.core.canonical_json import format_json
from assay.core.files import atomic_file
from assay.core.text import printable, shown, unknown_name
from assay.crafter.rules import TASK
from assay.errors import UsageError
from assay.judge.subjects import SUBJECT_METRICS, Subject, TrialOutcome
from assay.store.results_file import (
    check_flags,
    check_label,
    check_list,
    check_numbers,
    check_seeds,
    describe_json,
    get_trial_values,
    parse_declared,
    parse_results_subject,
    read_object,
)
from assay.types import TrialState

_LONGEST = 10_000
_TEXTS = ("model", "version", "series", "note", "commit", "run_id")
"""Text fields of an experiment that are also fields of a subject."""
_OWN_MACHINE = frozenset(
    {
        *("database", "traces_dir", "cache", "hooks", "metrics_from", "service_url"),
        SUBJECT_METRICS,
    }
)
"""Settings that have no meaning on another machine, so they are not exported."""
_LISTS = ("achievements", "instances", "success", "durations", "seeds")


def parse_experiment(entry: dict[str, Any], where: str, source: str) -> Subject:
    """Read one experiment; `where` identifies it in errors until its name is read."""
    name = check_label(entry.get("name"), where, "name")
    where = f"experiment {printable(name)!r} of {source!r}"
    lists = {
        key: check_list(entry[key], where, key) for key in _LISTS if entry.get(key) is not None
    }
    for key in ("achievements", "instances"):
        if key not in lists:
            raise UsageError(f"{where} has no {key}; give a list with one value per trial")
    count = len(lists["achievements"])
    for key, values in lists.items():
        if len(values) != count:
            raise UsageError(
                f"{where} has {count} achievements but {len(values)} {key}; give one value per "
                "trial in each list"
            )
    texts = {
        key: None if entry.get(key) is None else check_label(entry[key], where, key, _LONGEST)
        for key in _TEXTS
    }
    known = {"name", "configuration", "declared", *_TEXTS, *_LISTS}
    configuration = entry.get("configuration")
    others = {key: value for key, value in entry.items() if key not in known}
    return Subject(
        id=name,
        name=name,
        model=texts["model"],
        version=texts["version"],
        series=texts["series"],
        note=texts["note"],
        commit=texts["commit"],
        run_id=texts["run_id"],
        source=source,
        facts={
            **(configuration if isinstance(configuration, dict) else {}),
            **others,
        },
        remarks={
            key: value
            if isinstance(value, str | int | float)
            else shown(value, write=json.dumps)
            for key, value in others.items()
            if value is not None and key not in ("without_result", SUBJECT_METRICS)
        },
        outcomes=parse_declared(entry.get("declared"), where),
        trials=tuple(_make_trials(name, lists, where)),
    )


def make_experiment(subject: Subject) -> dict[str, Any]:
    """Convert a subject to an experiment of a file, with its trials that have achievements."""
    trials = [
        trial
        for trial in subject.trials
        if trial.state is TrialState.RESULT and "achievements" in trial.values
    ]
    if not trials:
        raise UsageError(
            f"experiment {printable(subject.name)!r} has no results with achievements, and an "
            "experiments file needs them; leave it out, or run it again"
        )
    entry: dict[str, Any] = {"name": subject.name}
    entry |= {key: value for key in _TEXTS if (value := getattr(subject, key)) is not None}
    for key in ("training_data", "epochs"):
        if key in subject.facts:
            entry[key] = subject.facts[key]
    entry["achievements"] = [trial.values["achievements"] for trial in trials]
    entry["instances"] = [(trial.task or "unknown").removeprefix(TASK) for trial in trials]
    if all(trial.seed is not None for trial in trials):
        entry["seeds"] = [trial.seed for trial in trials]
    for key, metric in (("durations", "duration_s"), ("success", "success")):
        if any(metric in trial.values for trial in trials):
            entry[key] = [trial.values.get(metric) for trial in trials]
    if left_out := len(subject.trials) - len(trials):
        entry["without_result"] = left_out
    if "max_turns" in subject.facts:
        entry["configuration"] = {
            key: value for key, value in subject.facts.items() if key not in _OWN_MACHINE
        }
    return entry


def _make_trials(
    name: str, lists: Mapping[str, list[Any]], where: str
) -> Iterator[TrialOutcome]:
    count = len(lists["achievements"])
    instances = [
        check_label(
            str(value) if type(value) is int else value, where, f"value {place} of instances"
        )
        for place, value in enumerate(lists["instances"], start=1)
    ]
    metrics = {
        "achievements": check_numbers(lists["achievements"], where, "achievements"),
    }
    if "success" in lists:
        metrics["success"] = check_flags(lists["success"], where, "success")
    if "durations" in lists:
        metrics["duration_s"] = check_numbers(lists["durations"], where, "durations", least=0.0)
    seeds = check_seeds(lists["seeds"], where, "seeds") if "seeds" in lists else None
    seen: Counter[str] = Counter()
    for at in range(count):
        seed = None if seeds is None else seeds[at]
        world = f"{instances[at]} {seed}"
        seen[world] += 1
        has_result = metrics["achievements"][at] is not None
        pair = f"{instances[at]} #{seen[world]}" if seeds is None else world
        yield TrialOutcome(
            trial_id=f"{name} #{at + 1}",
            pair=None if seeds is not None and seed is None else pair,
            task=instances[at],
            seed=seed,
            # Without seeds, trials in the same world cannot be recognised.
            replicate=seen[world] - 1 if seed is not None else 0,
            state=TrialState.RESULT if has_result else TrialState.FAILURE,
            values=get_trial_values(metrics, at) if has_result else {},
        )


EXPERIMENTS_FORMAT: Final = "assay-experiments/1"
"""Value of the field `format` in a file that `write_experiments_file` wrote."""

_LARGEST_EXPERIMENTS = 100_000_000
_LARGEST_RESULTS = 1_000_000_000


def read_experiments_file(path: Path | str) -> list[Subject]:
    """Read the experiments of a file, in order.

    Each has a `name`, and `achievements` and `instances` of equal length: value i is the result
    on instance i. `success` (true or false), `durations` (seconds) and `seeds` are optional
    lists of the same length. They become the metrics `achievements`, `success` and
    `duration_s`. Trials of different experiments with the same instance and seed are paired;
    without seeds, the first trials on an instance are paired, then the second ones. All other
    fields of an experiment become its facts. A null among the achievements is a trial without
    a result.

    Raises:
        UsageError: The file cannot be read, or an experiment in it is invalid.
    """
    path = Path(path)
    content = read_object(path, _LARGEST_EXPERIMENTS)
    entries = content.get("experiments")
    if entries is None and "models" in content:
        raise UsageError(
            f"{str(path)!r} is a results file; pass it as --baseline or --improved; "
            "--experiments takes a file with a list 'experiments'"
        )
    if not isinstance(entries, list) or not entries:
        raise UsageError(
            f"{str(path)!r} has {'no' if entries is None else describe_json(entries) + ' as'} "
            "'experiments'; give a list of objects with name, achievements and instances"
        )
    subjects: dict[str, Subject] = {}
    for place, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise UsageError(
                f"experiment {place} of {str(path)!r} is {describe_json(entry)}; give an "
                "object with name, achievements and instances"
            )
        subject = parse_experiment(entry, f"experiment {place} of {str(path)!r}", str(path))
        if subject.name in subjects:
            raise UsageError(
                f"two experiments of {str(path)!r} are named {printable(subject.name)!r}; "
                "give each a different name"
            )
        subjects[subject.name] = subject
    return list(subjects.values())


def read_results_file(path: Path | str) -> list[Subject]:
    """Read one model of a results file, selected as in `run.json#MODEL`.

    The file is one that `assay run` writes, or one entry of its `models`: an object with
    `name`, `seeds` and `metrics`, which has a list with one value per seed for each metric.
    Trials with the same seed are paired. A trial whose values are all null has no result; if
    the file gives no reason, it counts as a failure. Without `#MODEL`, the only model that is
    not a baseline is used.

    Raises:
        UsageError: The file cannot be read, is invalid, or has several models.
    """
    place, wanted = _split_model(str(path))
    content = read_object(place, _LARGEST_RESULTS)
    if "experiments" in content and "models" not in content:
        raise UsageError(f"{str(place)!r} lists experiments; pass it as --experiments")
    if "models" not in content:
        if wanted is not None and wanted != content.get("name"):
            raise UsageError(
                f"{str(place)!r} has only one model; leave out '#' and what follows"
            )
        return [parse_results_subject(content, {}, place.stem, str(place))]
    models = content["models"]
    if not isinstance(models, dict) or not models:
        raise UsageError(f"{str(place)!r} has no results: 'models' is {describe_json(models)}")
    name = _choose_model(models, wanted, str(place))
    if not isinstance(models[name], dict):
        raise UsageError(f"model {printable(name)!r} of {str(place)!r} is not an object")
    return [parse_results_subject(models[name], content, name, str(place))]


def disambiguate(subjects: Sequence[Subject]) -> list[Subject]:
    """Make the names and ids of subjects unique.

    Subjects with equal names get the name of their file appended; if that is not enough, a
    number.
    """
    names = Counter(subject.name for subject in subjects)
    taken: Counter[str] = Counter()
    ids: Counter[str] = Counter()
    found: list[Subject] = []
    for subject in subjects:
        name = subject.name
        if names[name] > 1:
            name = f"{name} ({Path(subject.source).name})"
        taken[name] += 1
        ids[subject.id] += 1
        if taken[name] > 1:
            name = f"{name} #{taken[name]}"
        key = subject.id if ids[subject.id] == 1 else f"{subject.id} #{ids[subject.id]}"
        found.append(replace(subject, id=key, name=name))
    return found


def write_experiments_file(path: Path, subjects: Sequence[Subject]) -> int:
    """Write subjects as an experiments file and return the number of omitted trials.

    Trials without a result or without achievements are omitted; `without_result` of an
    experiment is their number.

    Raises:
        UsageError: No subjects were given, or one has no trials.
        OutputError: The file cannot be written.
    """
    if not subjects:
        raise UsageError("no experiments given; name one or more to write")
    entries = [make_experiment(subject) for subject in subjects]
    with atomic_file(path) as stream:
        stream.writelines(
            format_json({"format": EXPERIMENTS_FORMAT, "experiments": entries}, levels=3)
        )
    return sum(entry.get("without_result", 0) for entry in entries)


def _split_model(text: str) -> tuple[Path, str | None]:
    """Split FILE#MODEL; both names may contain a #."""
    if Path(text).exists():
        return Path(text), None
    for place in (found.start() for found in re.finditer("#", text)):
        if Path(text[:place]).is_file():
            return Path(text[:place]), text[place + 1 :]
    return Path(text.partition("#")[0]), None


def _choose_model(models: Mapping[str, Any], wanted: str | None, source: str) -> str:
    if wanted is None:
        subjects = [
            name
            for name, entry in models.items()
            if not (isinstance(entry, dict) and entry.get("baseline") is True)
        ]
        if len(subjects) == 1:
            return subjects[0]
        if len(models) == 1:
            return next(iter(models))
        names = ", ".join(map(printable, models))
        raise UsageError(
            f"{source!r} has {len(models)} models; select one with '#', as in "
            f"'{Path(source).name}#{printable(next(iter(models)))}': {names}"
        )
    if wanted in models:
        return wanted
    matches = [
        name
        for name, entry in models.items()
        if isinstance(entry, dict) and wanted in (entry.get("name"), entry.get("experiment"))
    ]
    if len(matches) == 1:
        return matches[0]
    raise UsageError(f"{source!r}: {unknown_name('model', wanted, map(printable, models))}")
