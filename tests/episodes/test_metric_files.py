"""Metrics from a user's file."""

from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.metrics import Episode, MetricInput, load_metrics
from tests.store.sessions import make_run, make_session
from tests.support import run_python

GOOD = '''
from __future__ import annotations
import numpy as np
from assay.metrics import Episode, metric, rule_understanding

TABLE = np.arange(3)

def helper(episode):
    return len(episode.steps)

@metric
def steps_made(episode):
    """How many."""
    return helper(episode)

@metric(name="breaks/share", higher_is_better=False)
def breaks(each: Episode):
    return 1 - rule_understanding(each)

@metric
def spread(runs: list[Episode]):
    return float(np.ptp([run.reward for run in runs]))

same = spread
'''
HEAD = "from assay.metrics import metric\n\n@metric\n"


def write(tmp_path: Path, text: str | bytes, name: str = "mine.py") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_marked_functions_of_a_file_are_loaded_in_order(tmp_path: Path) -> None:
    found = load_metrics(write(tmp_path, GOOD))
    assert found.names == ("steps_made", "breaks/share", "spread")
    assert [metric.takes for metric in found.metrics] == [
        MetricInput.EPISODE,
        MetricInput.EPISODE,
        MetricInput.EPISODES,
    ]
    assert [metric.higher_is_better for metric in found.metrics] == [True, False, True]
    assert found.metrics[0].where == f"{tmp_path / 'mine.py'}:11"


def test_marked_function_can_still_be_called(tmp_path: Path) -> None:
    steps, breaks, _ = load_metrics(write(tmp_path, GOOD)).metrics
    episode = Episode.of(make_session(make_run()))
    assert steps.function(episode) == 9
    assert breaks.function(episode) == pytest.approx(0.2)


def test_sha_depends_only_on_the_text(tmp_path: Path) -> None:
    first = load_metrics(write(tmp_path, GOOD))
    second = load_metrics(write(tmp_path, GOOD, "copy.py"))
    third = load_metrics(write(tmp_path, GOOD + "\n# changed\n"))
    assert first.sha == second.sha != third.sha


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        pytest.param("x = 1\ndef f(:\n", 2, "not valid Python", id="syntax"),
        pytest.param("\n1/0\n", 2, "ZeroDivisionError while its metrics", id="raises"),
        pytest.param(
            f"{HEAD}def f(x): ...\n", 3, "'x' may be one episode or a list", id="unclear"
        ),
        pytest.param(f"{HEAD}def f(x: int): ...\n", 3, "call it 'episode'", id="annotation"),
        pytest.param(
            f"{HEAD}def f(episodes: 'Episode'): ...\n",
            3,
            "'episodes' is annotated as 'episode'",
            id="contradiction",
        ),
        pytest.param(f"{HEAD}def f(): ...\n", 3, "must take one argument", id="none"),
        pytest.param(f"{HEAD}def f(a, b): ...\n", 3, "must take one argument", id="two"),
        pytest.param(f"{HEAD}def f(*episodes): ...\n", 3, "without a star", id="star"),
        pytest.param(f"{HEAD}async def f(episode): ...\n", 3, "is async", id="async"),
        pytest.param(f"{HEAD}def f(episode): yield 1\n", 3, "is a generator", id="generator"),
        pytest.param(f"{HEAD}class f: ...\n", 3, "is not a function", id="class"),
        pytest.param(
            f"{HEAD}def reward(episode): ...\n",
            3,
            "already an outcome of every episode",
            id="taken",
        ),
        pytest.param(
            "import assay.metrics\n@assay.metrics.metric(name='a,b')\ndef f(episode): ...\n",
            2,
            "metric name 'a,b' is not allowed",
            id="name",
        ),
        pytest.param(
            f"{HEAD}def one(episode): ...\n\n@metric(name='one')\ndef two(episode): ...\n",
            6,
            "'one' is also defined at",
            id="twice",
        ),
    ],
)
def test_errors_in_a_file_are_reported_with_the_line(
    text: str, line: int, words: str, tmp_path: Path
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as error:
        load_metrics(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("x = 1\n", "has no metrics; put '@assay.metric'", id="no metrics"),
        pytest.param(
            "from assay.metrics import time_efficiency", "has no metrics", id="only shipped"
        ),
        pytest.param(b"\xff\xfe\x00", "not valid Python", id="not text"),
    ],
)
def test_error_for_a_file_without_metrics_shows_the_expected_form(
    text: str | bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        load_metrics(write(tmp_path, text))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read metrics from .*missing\.py"):
        load_metrics(tmp_path / "missing.py")


def test_documented_metrics_file_can_be_loaded(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
    text = page.split("```python\n")[1].split("```")[0]
    found = load_metrics(write(tmp_path, text))
    assert found.names == ("early_table", "habits", "worlds_without_wood")
    episode = Episode.of(make_session(make_run()))
    table, habits, woodless = (metric.function for metric in found.metrics)
    assert table(episode) is ("place_table" in episode.achievements)
    assert habits(episode)["careless"] == pytest.approx(0.36)
    assert woodless([episode]) == ("collect_wood" not in episode.achievements)


def test_marking_a_function_loads_neither_a_compiler_nor_a_database() -> None:
    code = (
        "import sys, assay.metrics as m; m.metric; print({'numba', 'duckdb'} & {*sys.modules})"
    )
    done = run_python("-c", code)
    assert done.output == "set()\n"


def test_ctrl_c_while_a_file_is_loaded_reports_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, "x = 1\nraise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_metrics(file)
    assert f"interrupted at {file}:2, while its metrics were loaded" in capsys.readouterr().err
