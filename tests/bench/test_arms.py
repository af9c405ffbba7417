"""Arms of a comparison: every distinct agent, model and setting is an arm."""

from pathlib import Path
from typing import Any

import pytest

from assay.bench.config import BenchConfig, TaskEntry, make_arm_labels, make_arms
from assay.bench.kind import list_specs

from .tasks import make_task


def labels(*entries: TaskEntry) -> tuple[str, ...]:
    config = BenchConfig(tasks=entries)
    assert {arm.label for arm in make_arms(config)} == {*make_arm_labels(config)}
    return make_arm_labels(config)


def entry(
    prepared: str | Path = "task", model: str | None = "gpt-4", **more: object
) -> TaskEntry:
    return TaskEntry(prepared_dir=str(prepared), model=model, **more)  # type: ignore[arg-type]


def test_every_model_of_a_comparison_is_an_arm() -> None:
    models = ("gpt-4", "claude-3-sonnet", "gemini-pro")
    assert labels(*(entry(model=model, rollouts=5) for model in models)) == (
        "react-coder+gpt-4",
        "react-coder+claude-3-sonnet",
        "react-coder+gemini-pro",
    )


def test_every_value_of_a_sweep_is_an_arm_with_its_own_label() -> None:
    sweep = [
        entry(environment_variables={"TIMEOUT_SEC": seconds}, timeout=float(seconds))
        for seconds in ("1800", "3600")
    ]
    assert labels(*sweep) == (
        "react-coder+gpt-4 TIMEOUT_SEC=1800",
        "react-coder+gpt-4 TIMEOUT_SEC=3600",
    )


def test_one_arm_works_on_many_tasks() -> None:
    assert {*labels(entry("a"), entry("b"), entry("c"))} == {"react-coder+gpt-4"}


def test_explicit_overrides_make_an_arm_and_overrides_of_a_task_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = make_task(Path("plain"))
    own = make_task(Path("own"), {"overrides.json": "{}"})
    other = Path("other.json")
    other.write_text("{}")
    assert labels(entry(plain), entry(own)) == ("react-coder+gpt-4",) * 2
    named = str(own / "overrides.json")
    assert labels(entry(own), entry(own, overrides=named)) == ("react-coder+gpt-4",) * 2
    assert labels(entry(own), entry(own, overrides=str(other))) == (
        "react-coder+gpt-4",
        f"react-coder+gpt-4 overrides={other}",
    )
    assert labels(entry(own), entry(own, apply_overrides=False)) == (
        "react-coder+gpt-4",
        "react-coder+gpt-4 overrides=none",
    )


@pytest.mark.parametrize(
    "setting", [{"token_limit": 10}, {"cost_limit": 0.1}, {"memory_mb": 64}, {"max_turns": 3}]
)
def test_limits_make_arms(setting: dict[str, Any]) -> None:
    ((name, value),) = setting.items()
    assert labels(entry(), entry(**setting)) == (
        "react-coder+gpt-4",
        f"react-coder+gpt-4 {name}={value}",
    )


def test_equal_labels_of_two_models_or_agents_are_made_distinct() -> None:
    assert labels(entry(label="mine"), entry(label="mine", model="gemini-pro")) == (
        "mine model=gpt-4",
        "mine model=gemini-pro",
    )
    assert labels(
        entry(label="mine", model=None, agent="nop"),
        entry(label="mine", model=None, agent="oracle"),
    ) == ("mine agent=nop", "mine agent=oracle")


def test_long_commands_get_short_distinct_labels() -> None:
    start = "echo this is a command line that is long\n" * 3
    first, second = labels(
        entry(model=None, agent="command", command=f"{start} one"),
        entry(model=None, agent="command", command=f"{start} two"),
    )
    assert first != second
    assert all("\n" not in label and len(label) < 70 for label in (first, second))


def test_arms_with_equal_labels_are_not_merged() -> None:
    given = labels(
        entry(label="x timeout=5.0"),
        entry(label="x", timeout=5.0),
        entry(label="x", timeout=6.0),
    )
    assert len(set(given)) == 3


def test_trials_of_a_task_are_numbered_the_same_for_any_spelling_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_task(tmp_path / "task")
    monkeypatch.chdir(tmp_path)
    config = BenchConfig(tasks=(entry("task", rollouts=2), entry("./task", rollouts=1)))
    specs = list_specs(config, "run")
    assert [spec.rollout for spec in specs] == [0, 1, 2]
    assert len({spec.session_id for spec in specs}) == 3
    assert [spec.index for spec in specs] == [0, 1, 2]
