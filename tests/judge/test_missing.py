"""Lost trials, however they were lost, never make a verdict that they could reverse."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.bench import rollouts

from .subjects import command

RNG = np.random.default_rng(2)
EASE = RNG.normal(5, 2, 60)
MAIN = (EASE + RNG.normal(0, 1, 60)).tolist()
BRANCH = (EASE - 0.7 + RNG.normal(0, 1, 60)).tolist()
BEST_HALF = set(np.argsort(-np.array(BRANCH))[:30].tolist())


def results(path: Path, values: Sequence[float | None], **more: object) -> str:
    seeds = [at for at, value in enumerate(values) if value is not None or "nulls" in more]
    kept = [values[at] for at in seeds]
    about = {"name": path.stem, "seeds": seeds, "metrics": {"myscore": kept}}
    path.write_text(
        json.dumps({**about, "declared": {"myscore": more.pop("better", "higher")}, **more})
    )
    return str(path)


def half(tmp_path: Path, **more: object) -> list[str]:
    """The files of two models, of which the second has lost its worse half."""
    kept = [value if at in BEST_HALF else None for at, value in enumerate(BRANCH)]
    main = results(tmp_path / "main.json", MAIN)
    return ["--baseline", main, "--improved", results(tmp_path / "branch.json", kept, **more)]


@pytest.mark.parametrize("more", [{}, {"nulls": True}], ids=["absent", "null"])
def test_the_worse_half_of_a_file_is_lost_whether_absent_or_null(
    tmp_path: Path, more: dict[str, object]
) -> None:
    files = half(tmp_path, **more)
    said = command("compare", *files)
    assert "Could not be judged: 30 of 60 trials of branch and 0 of 60 of main have no" in said
    assert "branch: could not be judged" in said
    assert "branch: better" not in said
    assert "cannot be compared: 30 of 60" in command(
        "compare", *files, "--fail-if-worse", code=1
    )


def test_a_file_that_planned_fewer_trials_has_lost_none(tmp_path: Path) -> None:
    assert "Could not be judged" not in command("compare", *half(tmp_path, planned=30))


def test_the_range_of_a_metric_bounds_what_is_lost(tmp_path: Path) -> None:
    low, high = (
        {"better": "higher", "low": 0, "high": 10},
        [8.5 + at * 0.7 % 1 for at in range(60)],
    )
    worse = [0.5 + at * 0.3 % 1.1 for at in range(60)]
    main = results(tmp_path / "main.json", worse, better=low)
    gone = [None if at < 6 else value for at, value in enumerate(high)]
    said = command(
        "compare",
        "--baseline",
        main,
        "--improved",
        results(tmp_path / "branch.json", gone, better=low),
    )
    assert (
        "6 of 60 trials of branch and 0 of 60 of main have no myscore; the answer holds" in said
    )
    assert "branch: better" in said


def test_a_metric_kept_only_where_it_is_good_is_not_judged(tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    a, b = rng.normal(5, 1, 60).tolist(), rng.normal(5, 1, 60).tolist()
    good = [value if value > 5 else None for value in b]
    files = [
        "--baseline",
        results(tmp_path / "a.json", a, nulls=True),
        "--improved",
        results(tmp_path / "b.json", good, nulls=True),
    ]
    said = command("compare", *files)
    assert "Could not be judged" in said


def test_ungraded_trials_of_a_benchmark_count_as_lost(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tasks = [f"t{at:02}" for at in range(40)]
    old, new = [], []
    for task in tasks:
        chance = float(rng.random())
        for _ in range(3):
            old.append(rollouts.trial(task, float(rng.random() < chance)))
            score = float(rng.random() < chance)
            lost = score == 0 and rng.random() < 0.8
            new.append(rollouts.trial(task, None if lost else score))
    for name, made in (("v1", old), ("v2", new)):
        rollouts.write(
            rollouts.manifest(made, name=name, stamp=f"2025082{name[1]}__12-34-56"), tmp_path
        )
    where = ["--data-dir", str(tmp_path)]
    said = command("bench", "compare", "v1", "v2", *where, "--fail-if-worse", code=1)
    assert ": could not be judged," in said
    assert "63 of 120 trials of oracle v2@20250822__12-34-56 and 0 of 120 of oracle v1" in said
    summed = command("bench", "summarize", "v2", *where)
    assert "Trials were lost, so that mean scores are not known exactly: oracle" in summed
    assert "highest mean score" not in summed.partition("Arms,")[0]


def test_what_never_started_is_not_lost(tmp_path: Path) -> None:
    tasks = [f"t{at:02}" for at in range(10)]
    old = [rollouts.trial(task, at % 2) for at, task in enumerate(tasks)]
    new = [rollouts.trial(task, at % 2) for at, task in enumerate(tasks[:6])]
    for name, made in (("v1", old), ("v2", [*new, *map(rollouts.pending, tasks[6:])])):
        rollouts.write(
            rollouts.manifest(made, name=name, stamp=f"2025082{name[1]}__12-34-56"), tmp_path
        )
    said = command("bench", "compare", "v1", "v2", "--data-dir", str(tmp_path))
    assert "could not be judged" not in said
