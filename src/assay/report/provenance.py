"""Provenance of a report: versions, commit, configuration, generator, sources."""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from assay.core.provenance import collect_provenance
from assay.judge.results import Setup
from assay.judge.subjects import Subject

_LIBRARIES = ("numpy", "scipy")


def configuration(setup: Setup) -> dict[str, Any]:
    """Return the settings of a comparison for programs."""
    chosen: dict[str, Any] = {} if setup.tasks is None else {"tasks": setup.tasks.value}
    if setup.allow_different:
        chosen["allow_different"] = sorted(setup.allow_different)
    if setup.seeds is not None:
        chosen["seeds"] = list(setup.seeds)
    return {
        "metrics": list(setup.metrics),
        "baseline": setup.baseline,
        "level": setup.level,
        "min_effect": setup.min_effect,
        "success_achievements": setup.success_achievements,
        "method": setup.method.value,
        "correction": setup.correction.value,
        "seed": setup.seed,
        "lower_is_better": sorted(setup.lower_is_better),
        **chosen,
    }


def made_columns(setup: Setup) -> dict[str, Any]:
    """Return the last columns of every row in a comparison's CSV."""
    made = versions()
    return {
        "assay": made["assay"],
        "assay_commit": made["commit"],
        "configuration": json.dumps(configuration(setup)),
    }


def versions() -> dict[str, Any]:
    """Return the versions of assay and of the libraries that computed the numbers."""
    made = collect_provenance()
    return {
        "assay": made.assay,
        "commit": made.commit,
        "dirty": made.dirty,
        **({} if made.project is None else {"project": made.project}),
        "python": made.python,
        **{name: version(name) for name in _LIBRARIES},
    }


def made_by(
    settings: Mapping[str, Any], sources: Iterable[tuple[str, str]], seed: int | None = None
) -> list[tuple[str, str]]:
    """Return the versions, the settings and the sources as lines of text."""
    made = versions()
    libraries = ", ".join(f"{name} {made[name]}" for name in ("python", *_LIBRARIES))
    return [
        ("assay", made["assay"]),
        ("commit", _commit(made)),
        *([("commit of the project", made["project"])] if "project" in made else []),
        ("libraries", libraries),
        *([("generator seed", str(seed))] if seed is not None else []),
        ("configuration", json.dumps(settings, ensure_ascii=False)),
        *((f"source of {name}", source) for name, source in sources),
    ]


def subject_sources(subjects: Sequence[Subject]) -> Iterable[tuple[str, str]]:
    """Yield the name and the source of each subject."""
    for subject in subjects:
        parts = [subject.source, f"id {subject.id}"]
        parts += [f"run {subject.run_id}"] if subject.run_id else []
        parts += [f"commit {subject.commit}"] if subject.commit else []
        parts += [f"project at commit {subject.project}"] if subject.project else []
        yield subject.name, ", ".join(parts)


def more_in_files(seed: int) -> str:
    """Return the closing lines of a comparison in a terminal."""
    made = versions()
    return (
        f"assay {made['assay']}, commit {_commit(made)}, generator seed {seed}."
        " --detail prints all tables; --output report.html writes them with figures too."
    )


def _commit(made: Mapping[str, Any]) -> str:
    return (made["commit"] or "none") + (", changed since" if made["dirty"] else "")
