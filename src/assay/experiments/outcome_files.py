"""Subjects of a comparison from files, and back into one.

Two layouts are read. An experiments file is written by hand or by `assay experiments export`:
a list of experiments, each with its achievements and instances. A results file is what
`assay run` writes, or one model of it. Whatever is wrong with a file is a UsageError that
names the place. Nothing here computes a statistic.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from assay._util.files import atomic_file
from assay._util.names import unknown_name
from assay._util.text import printable
from assay.errors import UsageError
from assay.exchange.formats.layout import laid_out
from assay.experiments.checked import read_object, shown
from assay.experiments.experiment_entries import entry_of_subject, subject_of_entry
from assay.experiments.result_entries import subject_of_results
from assay.judge.subjects import Subject

__all__ = [
    "EXPERIMENTS_FORMAT",
    "disambiguate",
    "read_experiments_file",
    "read_results_file",
    "write_experiments_file",
]

EXPERIMENTS_FORMAT: Final = "assay-experiments/1"
"""What the field `format` of a file says that `write_experiments_file` wrote."""

_LARGEST_EXPERIMENTS = 100_000_000
_LARGEST_RESULTS = 1_000_000_000


def read_experiments_file(path: Path | str) -> list[Subject]:
    """Read the experiments of a file, in their order.

    Each has a `name`, and `achievements` and `instances` of equal length: value i was earned
    on instance i. `success` (true or false), `durations` (seconds) and `seeds` may stand
    beside them, as long. They become the metrics `achievements`, `success` and `duration_s`.
    A trial is paired with those of other experiments on the same instance and seed; without
    seeds, the first trial on an instance with the first, the second with the second. What
    else the file says of an experiment is in its facts. A null among the achievements is a
    trial without a result.

    Raises:
        UsageError: The file cannot be read, or an experiment in it is not as it should be.
    """
    path = Path(path)
    content = read_object(path, _LARGEST_EXPERIMENTS)
    entries = content.get("experiments")
    if entries is None and "models" in content:
        raise UsageError(
            f"{str(path)!r} is a results file; give it as --baseline or --improved, and as "
            "--experiments a file with a list 'experiments'"
        )
    if not isinstance(entries, list) or not entries:
        raise UsageError(
            f"{str(path)!r} has {'no' if entries is None else shown(entries) + ' as'} "
            "'experiments'; give a list of objects with name, achievements and instances"
        )
    subjects: dict[str, Subject] = {}
    for place, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise UsageError(
                f"experiment {place} of {str(path)!r} is {shown(entry)}; give an object with "
                "name, achievements and instances"
            )
        subject = subject_of_entry(entry, f"experiment {place} of {str(path)!r}", str(path))
        if subject.name in subjects:
            raise UsageError(
                f"two experiments of {str(path)!r} are called {printable(subject.name)!r}; "
                "give each a name of its own"
            )
        subjects[subject.name] = subject
    return list(subjects.values())


def read_results_file(path: Path | str) -> list[Subject]:
    """Read one model of a results file; `run.json#MODEL` says which.

    The file is what `assay run` writes, or one entry of its `models`: an object with `name`,
    `seeds` and `metrics`, which has a list with one value per seed for each metric. Trials
    with the same seed are paired. A trial whose values are all null has no result; if the
    file does not say why, it counts as a failure. Without `#MODEL`, the only model that is no
    baseline is meant.

    Raises:
        UsageError: The file cannot be read, is not as it should be, or has several models.
    """
    place, wanted = _split(str(path))
    content = read_object(place, _LARGEST_RESULTS)
    if "experiments" in content and "models" not in content:
        raise UsageError(f"{str(place)!r} lists experiments; give it as --experiments")
    if "models" not in content:
        if wanted is not None and wanted != content.get("name"):
            raise UsageError(
                f"{str(place)!r} holds one model; name it without '#' and the rest"
            )
        return [subject_of_results(content, {}, place.stem, str(place))]
    models = content["models"]
    if not isinstance(models, dict) or not models:
        raise UsageError(f"{str(place)!r} has {shown(models)} as 'models'; it holds no results")
    name = _chosen(models, wanted, str(place))
    if not isinstance(models[name], dict):
        raise UsageError(f"model {printable(name)!r} of {str(place)!r} is no object")
    return [subject_of_results(models[name], content, name, str(place))]


def disambiguate(subjects: Sequence[Subject]) -> list[Subject]:
    """The same subjects, with names and ids that no two of them share.

    Where several files call a subject alike, the file is added; where that is not enough, a
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
    """Write subjects as an experiments file; returns how many trials were left out.

    Only trials with a result and a number of achievements can stand in such a file; an
    experiment says in `without_result` how many it lacks.

    Raises:
        UsageError: There is nothing to write of a subject.
        OutputError: The file cannot be written.
    """
    if not subjects:
        raise UsageError("no experiment is named that could be written; name one or more")
    entries = [entry_of_subject(subject) for subject in subjects]
    with atomic_file(path) as stream:
        stream.writelines(
            laid_out({"format": EXPERIMENTS_FORMAT, "experiments": entries}, levels=3)
        )
    return sum(entry.get("without_result", 0) for entry in entries)


def _split(text: str) -> tuple[Path, str | None]:
    """A file and the model that is meant; either may have a # in its name."""
    if Path(text).exists():
        return Path(text), None
    for place in (found.start() for found in re.finditer("#", text)):
        if Path(text[:place]).is_file():
            return Path(text[:place]), text[place + 1 :]
    return Path(text.partition("#")[0]), None


def _chosen(models: Mapping[str, Any], wanted: str | None, source: str) -> str:
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
            f"{source!r} has {len(models)} models; say which after a '#', such as "
            f"'{Path(source).name}#{printable(next(iter(models)))}': {names}"
        )
    if wanted in models:
        return wanted
    of_experiments = [
        name
        for name, entry in models.items()
        if isinstance(entry, dict) and wanted in (entry.get("name"), entry.get("experiment"))
    ]
    if len(of_experiments) == 1:
        return of_experiments[0]
    raise UsageError(f"{source!r}: {unknown_name('model', wanted, map(printable, models))}")
