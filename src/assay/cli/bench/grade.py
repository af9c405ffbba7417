"""`assay bench eval` and `regrade`: what each trial came to, test by test."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from assay.cli.bench.options import DEFAULT_DATA_DIR, AllowedOptions, DataDir, Flag
from assay.cli.output import Show, note, say, say_json

if TYPE_CHECKING:
    from assay.api import GradedTrial

__all__ = ["eval_", "regrade"]

INFRASTRUCTURE = 3
Stamp = Annotated[str | None, Parameter(show_default=False)]
JudgeModel = Annotated[str | None, Parameter(show_default="that of the run")]


def eval_(
    name: str,
    /,
    *,
    latest: Flag = False,
    rollout: Stamp = None,
    judge: JudgeModel = None,
    budget: float | None = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    allow: AllowedOptions = AllowedOptions(),
    show: Show = Show(),
) -> int:
    """Grade the trials that have no grade, and print every rubric and test of all of them.

    For example:

        assay bench eval my_benchmark --latest

    Args:
        name: A benchmark, name@stamp, the start of a stamp, a tag, or a path.
        latest: Take the latest rollout, as a name alone does.
        rollout: The stamp of a rollout, or the start of it.
        judge: The model that scores rubrics without tests.
        budget: The most dollars that the judge may cost.
        data_dir: Where benchmarks are.
        allow: What tasks may read outside of their folders.
        show: What to print.
    """
    from assay import api

    def told(trial: "GradedTrial") -> None:
        if trial.is_new and not (show.json or show.quiet):
            note(f"graded {trial.result.run_id}")

    trials = api.bench_eval(
        name,
        data_dir=data_dir,
        latest=latest,
        stamp=rollout,
        judge=judge,
        budget=budget,
        allowed=allow.allowed,
        done=told,
    )
    return _print(trials, show)


def regrade(
    name: str,
    /,
    *,
    latest: Flag = False,
    rollout: Stamp = None,
    judge: JudgeModel = None,
    budget: float | None = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    allow: AllowedOptions = AllowedOptions(),
    show: Show = Show(),
) -> int:
    """Grade all trials again, from their patches; the old grades are kept beside the new.

    For example:

        assay bench regrade my_benchmark --rollout 20250824__12-34-56

    Args:
        name: A benchmark, name@stamp, the start of a stamp, a tag, or a path.
        latest: Take the latest rollout, as a name alone does.
        rollout: The stamp of a rollout, or the start of it.
        judge: The model that scores rubrics without tests.
        budget: The most dollars that the judge may cost.
        data_dir: Where benchmarks are.
        allow: What tasks may read outside of their folders.
        show: What to print.
    """
    from assay import api

    before: dict[str, float | None] = {}
    changed: list[str] = []

    def told(trial: "GradedTrial") -> None:
        old = before.get(trial.result.run_id)
        if trial.is_new and old is not None and old != trial.result.score:
            changed.append(f"{trial.result.run_id}: {old:.2f} -> {trial.result.score:.2f}")

    for trial in api.bench_trials(name, data_dir=data_dir, latest=latest, stamp=rollout):
        before[trial.run_id] = trial.score
    trials = api.bench_eval(
        name,
        data_dir=data_dir,
        latest=latest,
        stamp=rollout,
        again=True,
        judge=judge,
        budget=budget,
        allowed=allow.allowed,
        done=told,
    )
    code = _print(trials, show)
    if not (show.json or show.quiet):
        graded = sum(trial.is_new for trial in trials)
        say(f"graded {graded} of {len(trials)} again; {len(changed)} have another score")
        for line in changed:
            say(f"  {line}")
    return code


def _print(trials: "tuple[GradedTrial, ...]", show: Show) -> int:
    if show.json:
        say_json({"trials": [_as_json(trial) for trial in trials]})
    else:
        for trial in trials:
            for line in _lines(trial):
                say(line)
    return 0 if all(trial.grade is not None for trial in trials) else INFRASTRUCTURE


def _as_json(trial: "GradedTrial") -> dict[str, object]:
    grade = trial.grade
    tests = [] if grade is None else [report._asdict() for report in grade.tests]
    return {**trial.result.as_json(), "graded_now": trial.is_new, "tests": tests}


def _lines(trial: "GradedTrial") -> list[str]:
    result, grade = trial.result, trial.grade
    head = f"{result.run_id}  {result.task_id}  {result.arm}"
    if grade is None:
        why = result.error or "its agent has not ended"
        return [f"{head}: no grade; {why}"]
    lines = [f"{head}: {result.outcome}, score {grade.total_score:.2f}"]
    for scored in grade.rubrics:
        value = "not scored" if scored.score is None else f"{scored.score:.2f}"
        tests = (
            f", {scored.tests_passed} of {scored.test_count} tests" if scored.test_count else ""
        )
        agreed = "" if scored.agreement is None else f", votes agree {scored.agreement:.0%}"
        lines.append(
            f"  {scored.rubric.id} (weight {scored.rubric.weight:g}): {value}{tests}{agreed}"
        )
    for report in grade.tests:
        if report.status != "passed":
            lines.append(f"    {report.status}: {report.name} {report.message}".rstrip())
    lines += [f"  ! {name}: {detail}" for name, detail in result.findings]
    return lines
