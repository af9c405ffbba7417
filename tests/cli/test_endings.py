"""The cause of an episode's end is shown with every episode; long sessions are paged."""

from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest

from tests.support import call_assay

from .test_live_view import Terminal

CAUSE = "died: zombie"
DATABASE = "crafter_multi_model_traces.duckdb"


class Assay(NamedTuple):
    """Runs the program in a separate folder."""

    folder: Path

    def __call__(self, *arguments: str) -> str:
        done = call_assay(self.folder, *arguments)
        assert done.code == 0, done.errors
        return done.output


@pytest.fixture(scope="module")
def assay(tmp_path_factory: pytest.TempPathFactory, compiled_engine: None) -> Assay:
    """A folder with two episodes in which the idle player died."""
    assay = Assay(tmp_path_factory.mktemp("deaths"))
    who = ("--models", "builtin/noop", "builtin/random", "--no-baselines")
    world = ("--difficulty", "hard", "--seed", "43", "--episodes", "2", "--max-turns", "60")
    tables = assay("run", *who, *world, "--detail")
    (assay.folder / "run.txt").write_text(tables, "utf-8")
    return assay


@pytest.mark.extras
def test_the_cause_of_death_is_stored_and_shown_everywhere(assay: Assay) -> None:
    folder = assay.folder
    with duckdb.connect(str(folder / DATABASE)) as connection:
        stored = connection.execute("SELECT DISTINCT stop_reason FROM episodes").fetchall()
    assert stored == [(CAUSE,)]
    tables = (folder / "run.txt").read_text("utf-8")
    assert ["Model", "died:", "zombie"] in [line.split() for line in tables.splitlines()]
    assert assay("traces", "list").count(CAUSE) == 4
    assert f"result, {CAUSE} after" in assay("traces", "show", "best")
    assert CAUSE in assay("compare", "latest", "--detail")
    for kind in ("html", "md", "json"):
        assay("compare", "latest", "--output", f"report.{kind}")
        assert CAUSE in (folder / f"report.{kind}").read_text("utf-8")


def test_long_session_is_paged_on_a_terminal(
    assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAGER", raising=False)
    whole = assay("traces", "show", "best")
    assert whole.count("\n") > 40
    last = whole.rstrip().rpartition("\n")[2].strip()
    database = str(assay.folder / DATABASE)
    terminal = Terminal("traces", "show", "best", "--database", database)
    terminal.read_until("turn 1")
    assert last not in terminal.text
    terminal.type("q")
    assert terminal.end() == 0
    assert last not in terminal.text, "q leaves the pager before the end"
