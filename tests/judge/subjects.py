"""Subjects made up for tests of comparisons."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.judge.subjects import Look, Subject, TrialOutcome
from assay.types import TrialState
from tests.support import call_assay

NASTY = "<script>alert(1)</script> =1+1 |`*_$x$ \x1b[2J[bold]b[/] \u202e @all"


def trial(
    name: str,
    seed: int | None,
    *,
    task: str = "crafter/easy",
    replicate: int = 0,
    state: TrialState = TrialState.RESULT,
    also: Mapping[str, float] | None = None,
    **values: float,
) -> TrialOutcome:
    return TrialOutcome(
        trial_id=f"{name} {task} {seed} {replicate}",
        pair=None if seed is None else f"{task} {seed}",
        task=task,
        seed=seed,
        replicate=replicate,
        state=state,
        values={**values, **(also or {})} if state is TrialState.RESULT else {},
    )


def subject(
    name: str,
    achievements: Sequence[float] = (),
    *,
    first_seed: int = 1,
    trials: Sequence[TrialOutcome] = (),
    extra: Mapping[str, float] | None = None,
    looks: Sequence[Look] = (),
    **about: Any,
) -> Subject:
    """A subject with one trial per value, on the seeds from `first_seed` on."""
    made = [
        trial(name, seed, achievements=value, also=extra)
        for seed, value in enumerate(achievements, first_seed)
    ]
    about.setdefault("id", name)
    return Subject(name=name, trials=(*made, *trials), looks=tuple(looks), **about)


def look(baseline: str, decision: str | None, number: int = 3, **but: Any) -> Look:
    numbers: dict[str, Any] = {"estimate": 2.0, "low": 0.4, "high": 3.6, "pairs": 7}
    return Look(
        experiment_id="candidate",
        baseline_id=baseline,
        metric="achievements",
        look=number,
        decision=decision,
        design={"kind": "obrien-fleming"},
        **(numbers | but),
    )


def command(*words: str, code: int = 0) -> str:
    """Run a command and return what it prints, errors included, in one line."""
    done = call_assay(Path(), *words)
    assert done.code == code, (done.output, done.errors)
    return " ".join(f"{done.output} {done.errors}".split())
