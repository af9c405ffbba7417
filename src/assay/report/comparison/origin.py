"""What made a comparison: versions, commit, configuration, generator, sources."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from assay._util.provenance import provenance
from assay.experiments.subjects import Subject
from assay.judge.facts import Setup
from assay.report.comparison.document import Fact

__all__ = ["configuration", "made_by", "versions"]


def configuration(setup: Setup) -> dict[str, Any]:
    """How subjects were compared, for a program to read."""
    chosen = {} if setup.tasks is None else {"tasks": setup.tasks.value}
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


def versions() -> dict[str, Any]:
    """The program that compares and the libraries its numbers come from."""
    made = provenance()
    return {
        "assay": made.assay,
        "commit": made.commit,
        "dirty": made.dirty,
        "python": made.python,
        **{name: version(name) for name in ("numpy", "scipy")},
    }


def made_by(setup: Setup, subjects: Sequence[Subject]) -> list[Fact]:
    """The same in lines, with where each subject comes from."""
    found = versions()
    commit = (found["commit"] or "none") + (", changed since" if found["dirty"] else "")
    libraries = ("python", "numpy", "scipy")
    facts = [
        Fact("assay", str(found["assay"])),
        Fact("commit", commit),
        Fact("libraries", ", ".join(f"{name} {found[name]}" for name in libraries)),
        Fact("generator seed", str(setup.seed)),
        Fact("configuration", json.dumps(configuration(setup), ensure_ascii=False)),
    ]
    for subject in subjects:
        parts = [subject.source, f"id {subject.id}"]
        parts += [f"run {subject.run_id}"] if subject.run_id else []
        parts += [f"commit {subject.commit}"] if subject.commit else []
        facts.append(Fact(f"source of {subject.name}", ", ".join(parts)))
    return facts
