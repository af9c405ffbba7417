"""The docs page about traces is correct."""

import re
from pathlib import Path

import pytest

from assay.store.schema import TABLES
from assay.store.store import Store
from assay.store.views import VIEWS, StoreView
from assay.types import TrialState

from .sessions import make_run, make_session, make_sessions
from .stores import fill

PAGE = (Path(__file__).parents[2] / "docs" / "traces.md").read_text("utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
RUN = make_run()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    failed = make_session(RUN, episode=9, state=TrialState.FAILURE)
    path = tmp_path_factory.mktemp("page") / "t.duckdb"
    return fill(path, RUN, [*make_sessions(RUN, 3, turns=8), failed])


def test_docs_page_has_ten_queries() -> None:
    assert len(QUERIES) == 10


@pytest.mark.parametrize("query", QUERIES, ids=range(1, len(QUERIES) + 1))
def test_every_query_on_the_page_returns_rows(query: str, store: Store) -> None:
    with store.reading() as connection:
        assert connection.execute(query).fetchall()


def test_model_query_gives_correct_numbers(store: Store) -> None:
    with store.reading() as connection:
        rows = connection.execute(QUERIES[0]).fetchall()
    for model, episodes, achievements, reward, steps in rows:
        ends = [make_session(RUN, model, episode, turns=8).end for episode in range(3)]
        outcomes = [end.outcomes for end in ends if end]
        assert episodes == 3
        for name, value in (
            *(("achievements", achievements), ("reward", reward), ("steps", steps)),
        ):
            assert value == pytest.approx(sum(row[name] for row in outcomes) / 3)


def test_waste_query_gives_correct_numbers(store: Store) -> None:
    with store.reading() as connection:
        waste = {row[0]: row[1:] for row in connection.execute(QUERIES[1]).fetchall()}
    # Every session wastes one action of each kind and has one malformed reply.
    asked = 3 * (7 * 3 + 1)
    assert waste["builtin/expert"] == (asked, 3, 3, 3, 3, pytest.approx(6 / asked))


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_view_columns_match_the_docs_page(view: StoreView) -> None:
    section = PAGE.split(f"### `{view.name}`")[1].split("\n#")[0]
    listed = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)
    assert tuple(listed) == view.columns


def test_every_table_is_in_the_diagram() -> None:
    assert [table.name for table in TABLES if table.name not in PAGE] == []
