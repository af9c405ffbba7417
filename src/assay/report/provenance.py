"""Provenance of a report: versions, commit, configuration, generator, sources."""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from assay.core.provenance import collect_provenance
from assay.judge.results import Setup
from assay.judge.subjects import Subject

_LIBRARIES = ("numpy", "scipy")


def comparison_configuration(setup: Setup) -> dict[str, Any]:
    """Return the settings of a comparison for programs."""
    optional: dict[str, Any] = {} if setup.tasks is None else {"tasks": setup.tasks.value}
    if setup.allow_different:
        optional["allow_different"] = sorted(setup.allow_different)
    if setup.seeds is not None:
        optional["seeds"] = list(setup.seeds)
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
        **optional,
    }


def provenance_columns(setup: Setup) -> dict[str, Any]:
    """Return the last columns of every row in a comparison's CSV."""
    software = software_versions()
    return {
        "assay": software["assay"],
        "assay_commit": software["commit"],
        "configuration": json.dumps(comparison_configuration(setup)),
    }


def software_versions() -> dict[str, Any]:
    """Return the versions of assay and of the libraries that computed the numbers."""
    source = collect_provenance()
    return {
        "assay": source.assay,
        "commit": source.commit,
        "dirty": source.dirty,
        **({} if source.project is None else {"project": source.project}),
        "python": source.python,
        **{name: version(name) for name in _LIBRARIES},
    }


def provenance_lines(
    settings: Mapping[str, Any], sources: Iterable[tuple[str, str]], seed: int | None = None
) -> list[tuple[str, str]]:
    """Return the versions, the settings and the sources as lines of text."""
    software = software_versions()
    libraries = ", ".join(f"{name} {software[name]}" for name in ("python", *_LIBRARIES))
    return [
        ("assay", software["assay"]),
        ("commit", _format_commit(software)),
        *([("commit of the project", software["project"])] if "project" in software else []),
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


def terminal_footer(seed: int) -> str:
    """Return the closing lines of a comparison in a terminal."""
    software = software_versions()
    return (
        f"assay {software['assay']}, commit {_format_commit(software)}, generator seed {seed}."
        " --detail prints all tables; --output report.html writes them with figures too."
    )


def _format_commit(software: Mapping[str, Any]) -> str:
    return (software["commit"] or "none") + (", changed since" if software["dirty"] else "")
