"""One experiment of an experiments file as a subject of a comparison, and back.

Whatever is wrong with an entry is a UsageError that names the experiment. Opens no file.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from assay._util.text import printable, shown
from assay.crafter.rules import TASK
from assay.errors import UsageError
from assay.experiments.checked import (
    checked_flags,
    checked_label,
    checked_list,
    checked_numbers,
    checked_seeds,
)
from assay.experiments.result_entries import values_at
from assay.judge.subjects import SUBJECT_METRICS, Subject, TrialOutcome
from assay.types import TrialState

__all__ = ["entry_of_subject", "subject_of_entry"]

_LONGEST = 10_000
_TEXTS = ("model", "version", "series", "note", "commit", "run_id")
"""Texts of an experiment that have a place of their own in a subject."""
_OWN_MACHINE = frozenset(
    {
        *("database", "traces_dir", "cache", "hooks", "metrics_from", "service_url"),
        SUBJECT_METRICS,
    }
)
"""Parts of a configuration that mean nothing in a file for others."""
_LISTS = ("achievements", "instances", "success", "durations", "seeds")


def subject_of_entry(entry: dict[str, Any], where: str, source: str) -> Subject:
    """Read one experiment; `where` says which it is until its name is known."""
    name = checked_label(entry.get("name"), where, "name")
    where = f"experiment {printable(name)!r} of {source!r}"
    lists = {
        key: checked_list(entry[key], where, key)
        for key in _LISTS
        if entry.get(key) is not None
    }
    for key in ("achievements", "instances"):
        if key not in lists:
            raise UsageError(f"{where} has no {key}; give a list with a value for each trial")
    count = len(lists["achievements"])
    for key, values in lists.items():
        if len(values) != count:
            raise UsageError(
                f"{where} has {count} achievements and {len(values)} {key}; value i of the one "
                "belongs to value i of the other, so give as many"
            )
    texts = {
        key: None if entry.get(key) is None else checked_label(entry[key], where, key, _LONGEST)
        for key in _TEXTS
    }
    known = {"name", "configuration", *_TEXTS, *_LISTS}
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
        trials=tuple(_trials_of_lists(name, lists, where)),
    )


def entry_of_subject(subject: Subject) -> dict[str, Any]:
    """The experiment that stands for a subject in a file: its trials with achievements."""
    trials = [
        trial
        for trial in subject.trials
        if trial.state is TrialState.RESULT and "achievements" in trial.values
    ]
    if not trials:
        raise UsageError(
            f"experiment {printable(subject.name)!r} has no result with achievements, which an "
            "experiments file needs; leave it out, or play it again"
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


def _trials_of_lists(
    name: str, lists: Mapping[str, list[Any]], where: str
) -> Iterator[TrialOutcome]:
    count = len(lists["achievements"])
    instances = [
        checked_label(
            str(value) if type(value) is int else value, where, f"value {place} of instances"
        )
        for place, value in enumerate(lists["instances"], start=1)
    ]
    metrics = {
        "achievements": checked_numbers(lists["achievements"], where, "achievements"),
    }
    if "success" in lists:
        metrics["success"] = checked_flags(lists["success"], where, "success")
    if "durations" in lists:
        metrics["duration_s"] = checked_numbers(
            lists["durations"], where, "durations", least=0.0
        )
    seeds = checked_seeds(lists["seeds"], where, "seeds") if "seeds" in lists else None
    met: Counter[str] = Counter()
    for at in range(count):
        seed = None if seeds is None else seeds[at]
        world = f"{instances[at]} {seed}"
        met[world] += 1
        has_result = metrics["achievements"][at] is not None
        pair = f"{instances[at]} #{met[world]}" if seeds is None else world
        yield TrialOutcome(
            trial_id=f"{name} #{at + 1}",
            pair=None if seeds is not None and seed is None else pair,
            task=instances[at],
            seed=seed,
            # Without seeds nothing says that a world was met before.
            replicate=met[world] - 1 if seed is not None else 0,
            state=TrialState.RESULT if has_result else TrialState.FAILURE,
            values=values_at(metrics, at) if has_result else {},
        )
