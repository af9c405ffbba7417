"""A metric is better in one direction only if that direction is declared."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UsageError
from assay.judge.comparison import compare
from assay.judge.outcomes import Direction, outcome_of, parse_outcome
from assay.types import Verdict
from tests.training.made import METRIC, level_of, make_run, store_with

from .subjects import command, look, subject, trial

LOSS = [1.0, 1.1, 0.9, 1.2, 1.0, 1.1, 0.95, 1.05]


def losses(folder: Path, **entry: Any) -> list[str]:
    """Two results files, `main` and `branch`, whose own metric `loss` differs by 0.3."""
    files = []
    for name, gap in (("main", 0.0), ("branch", 0.3)):
        own = [value + gap + 0.01 * at % 3 for at, value in enumerate(LOSS)]
        file = folder / f"{name}.json"
        about = {"name": name, "seeds": [*range(len(own))], "metrics": {"loss": own}}
        file.write_text(json.dumps(about | entry))
        files.append(str(file))
    return ["--baseline", files[0], "--improved", files[1]]


def test_a_higher_loss_is_called_higher_and_never_better(tmp_path: Path) -> None:
    said = command("compare", *losses(tmp_path))
    assert "Does branch differ from main in loss?" in said
    assert "Yes, it has a higher loss (8 pairs)." in said
    assert "branch: higher. Difference in loss" in said
    assert ": better" not in said
    assert "Is branch better" not in said
    assert "lower loss is usually better: add --lower-is-better loss" in said


def test_fail_if_worse_refuses_a_metric_without_a_direction(tmp_path: Path) -> None:
    error = command("compare", *losses(tmp_path), "--fail-if-worse", code=2)
    assert "--fail-if-worse: 'loss' has no direction" in error
    assert "add --lower-is-better loss" in error
    steps = compare([subject(n, LOSS, extra={"steps": 3.0}) for n in "ab"], metrics=["steps"])
    assert steps.setup.direction("steps") is Direction.NEITHER


@pytest.mark.parametrize(
    ("options", "entry"),
    [
        (["--lower-is-better", "loss"], {}),
        ([], {"declared": {"loss": "lower"}}),
        ([], {"declared": {"loss": {"better": "lower", "low": 0, "unit": "s"}}}),
    ],
    ids=["option", "file", "file with a range"],
)
def test_a_declared_loss_that_rose_is_worse_and_fails(
    tmp_path: Path, options: Sequence[str], entry: dict[str, Any]
) -> None:
    files = losses(tmp_path, **entry)
    said = command("compare", *files, *options, "--fail-if-worse", code=1)
    assert "branch is worse than main in loss" in said
    assert "branch: worse. Difference in loss" in command("compare", *files, *options)


def test_directions_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    both = ["--lower-is-better", "loss", "--higher-is-better", "loss"]
    assert "named as higher and as lower" in command(
        "compare", *losses(tmp_path), *both, code=2
    )
    a = subject("a", LOSS, outcomes={"x": parse_outcome("x", "lower")}, extra={"x": 1.0})
    b = subject("b", LOSS, outcomes={"x": parse_outcome("x", "higher")}, extra={"x": 2.0})
    with pytest.raises(UsageError, match="declared higher for one and lower for another"):
        compare([a, b])
    assert compare([a, b], lower_is_better=["x"]).setup.direction("x") is Direction.LOWER


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ("smaller", "give higher, lower or neither"),
        ({"bettr": "lower"}, "did you mean 'better'"),
        ({"low": 2, "high": 1}, "low 2 is not below high 1"),
        ({"low": "zero"}, "give numbers"),
        ({"unit": "miles"}, "give \\$, s or %"),
        (3, "give higher or lower"),
    ],
)
def test_a_declaration_that_is_not_allowed_is_named(stated: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_outcome("loss", stated)


def test_steps_and_turns_are_neutral_in_every_comparison() -> None:
    both = [
        subject(n, trials=[trial(n, at, steps=value + up) for at, value in enumerate(LOSS)])
        for n, up in (("a", 0.0), ("b", 1.0))
    ]
    both[1] = subject(
        "b", trials=[trial("b", at, steps=v + 1 + at % 2) for at, v in enumerate(LOSS)]
    )
    [found] = compare(both).decisive
    assert found.verdict is Verdict.HIGHER
    assert compare(both, lower_is_better=["steps"]).decisive[0].verdict is Verdict.WORSE
    looked = look("a", "better")
    sides = [both[0], subject("b", trials=both[1].trials, looks=[looked])]
    object.__setattr__(sides[1].looks[0], "metric", "steps")
    assert compare(sides).decisive[0].verdict is Verdict.HIGHER


def test_the_names_of_the_documents_and_summaries_of_curves_have_their_direction() -> None:
    higher = ("reward", "overview/reward", "achievements", "success", "time_efficiency")
    for name in (*higher, "score", "overview/reward.auc", "reward.final"):
        assert outcome_of(name).direction is Direction.HIGHER
    assert outcome_of("loss.auc").direction is Direction.NEITHER
    declared = {"loss": parse_outcome("loss", "lower")}
    assert outcome_of("loss.auc", declared).direction is Direction.LOWER


def test_curves_declare_the_direction_of_their_metrics(tmp_path: Path) -> None:
    runs = [
        make_run(
            f"{series}{seed}",
            seed,
            level_of(seed, up + seed / 50),
            series=series,
            configuration=configuration,
        )
        for series, up in (("old", 0.0), ("new", 1.0))
        for seed in range(8)
        for configuration in [{"declared": {"overview/loss": "lower"}}]
    ]
    runs = [replace(run, curves={"overview/loss": run.curves[METRIC]}) for run in runs]
    store_with(tmp_path / "t.duckdb", runs)
    where = ["--database", str(tmp_path / "t.duckdb"), "--metric", "overview/loss.auc"]
    said = command("compare", "old", "new", *where, "--fail-if-worse", code=1)
    assert "new v1.0 is worse than old v1.0 in overview/loss.auc" in said
