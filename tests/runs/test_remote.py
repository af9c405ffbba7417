"""Models behind HTTP play as in this process, within the rate limits of the provider."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.api.servers import serve_models
from assay.models.serving.app import RunningModels
from assay.models.serving.faults import Faults, ServingLimits
from tests.support import call_assay

from .remote import assert_same_run, play, transcripts
from .tables import rows

pytestmark = pytest.mark.usefixtures("compiled_engine")

TWO = ("builtin/forager", "builtin/random")


@pytest.fixture(scope="module")
def server(compiled_engine: None) -> Iterator[RunningModels]:
    with serve_models(port=0) as server:
        yield server


@pytest.fixture
def counted_server(server: RunningModels) -> RunningModels:
    server.reset()
    return server


def calls(server: RunningModels) -> int:
    return int(server.stats()["calls"])


@pytest.mark.extras
def test_models_over_http_give_the_same_episodes(
    counted_server: RunningModels, tmp_path: Path
) -> None:
    play(tmp_path / "here", None, models=TWO)
    assert calls(counted_server) == 0
    play(tmp_path / "there", counted_server.base_url, models=TWO, concurrent_models=True)
    assert calls(counted_server) == 48
    assert_same_run(tmp_path / "here", tmp_path / "there")
    events = rows(tmp_path / "there" / "traces.duckdb", "events")
    assert {row["provider"] for row in events if row["event_type"] == "cais"} == {"custom"}


@pytest.mark.extras
def test_provider_given_by_name_gives_the_same_episodes(
    counted_server: RunningModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_MODELS_URL", counted_server.address)
    play(tmp_path / "here", None)
    play(tmp_path / "there", None, models=("assay/builtin/forager",))
    assert calls(counted_server) == 24
    assert set(counted_server.stats()["models"]) == {"builtin/forager"}
    there = tmp_path / "there" / "traces.duckdb"
    assert transcripts(tmp_path / "here" / "traces.duckdb") == transcripts(there)


def test_baselines_run_in_this_process_and_cost_nothing(
    counted_server: RunningModels, tmp_path: Path
) -> None:
    result = play(tmp_path, counted_server.base_url, baselines=True, price="1/2", episodes=1)
    assert set(counted_server.stats()["models"]) == {"builtin/forager"}
    paid = {row.model: row.cost_usd for row in result.episodes}
    assert paid.pop("builtin/forager")
    assert set(paid.values()) <= {None, 0.0}


@pytest.mark.extras
def test_rerun_with_a_cache_makes_no_calls(
    counted_server: RunningModels, tmp_path: Path
) -> None:
    cache = tmp_path / "replies.sqlite"
    play(tmp_path / "first", counted_server.base_url, cache=cache, price="1/2")
    assert calls(counted_server) == 24
    again = play(tmp_path / "second", counted_server.base_url, cache=cache, price="1/2")
    assert calls(counted_server) == 24
    assert_same_run(tmp_path / "first", tmp_path / "second")
    assert sum(row.cost_usd or 0 for row in again.episodes) == 0
    # Another temperature is another request.
    play(tmp_path / "third", counted_server.base_url, cache=cache, temperature=0.5, episodes=1)
    assert calls(counted_server) == 30


@pytest.mark.extras
@pytest.mark.parametrize("most", [1, 3])
def test_open_connections_stay_within_the_limit(tmp_path: Path, most: int) -> None:
    with serve_models(port=0, faults=Faults(latency=0.01)) as server:
        url = server.base_url
        play(tmp_path, url, episodes=8, max_turns=4, max_connections=most)
        assert server.stats()["max_in_flight"] == most


def test_connections_are_shared_by_the_models_of_a_provider(tmp_path: Path) -> None:
    with serve_models(port=0, faults=Faults(latency=0.01)) as server:
        more = {"models": TWO, "concurrent_models": True, "max_connections": 2}
        play(tmp_path, server.base_url, max_turns=4, **more)
        assert server.stats()["max_in_flight"] == 2


@pytest.mark.extras
def test_rate_limits_and_waits_are_recorded(tmp_path: Path) -> None:
    with serve_models(port=0, limits=ServingLimits(per_minute=1200, burst=4)) as server:
        result = play(tmp_path, server.base_url, episodes=6, max_turns=5)
        assert server.stats()["outcomes"]["rate_limited"] > 0
    assert all(tally.results == 6 for tally in result.tallies.values())
    limits = rows(tmp_path / "traces.duckdb", "provider_limits")
    assert {row["provider"] for row in limits} == {"custom"}
    reasons = [row["reason"] for row in limits]
    assert reasons[0] == "start"
    assert {"rate_limit", "headers"} & set(reasons)
    slowed = rows(tmp_path / "traces.duckdb", "throttling")
    assert {row["session_id"] for row in slowed} == {row.session_id for row in result.episodes}
    rejected = sum(row["retries"] for row in slowed)
    assert rejected == server.stats()["outcomes"]["rate_limited"]
    assert all(row["waited_s"] > 0 for row in slowed)
    assert any(row["rejections"] for row in slowed)


@pytest.mark.extras
def test_waiting_for_a_connection_is_not_model_latency(tmp_path: Path) -> None:
    with serve_models(port=0, faults=Faults(latency=0.05)) as server:
        play(tmp_path, server.base_url, episodes=6, max_turns=3, max_connections=1)
    events = rows(tmp_path / "traces.duckdb", "events")
    calls_made = [row for row in events if row["event_type"] == "cais"]
    # Six episodes share one connection: five of six calls wait.
    assert sum(row["waited_ms"] for row in calls_made) > 2 * sum(
        row["latency_ms"] for row in calls_made
    )


def test_a_dry_run_leaves_no_file(counted_server: RunningModels, tmp_path: Path) -> None:
    where = ("--openai-base-url", counted_server.base_url, "--cache", "replies.sqlite")
    done = call_assay(tmp_path, "run", "--models", "any", *where, "--dry-run")
    assert done.code == 0, done.errors
    assert list(tmp_path.iterdir()) == []
    assert calls(counted_server) == 0


def test_unknown_model_is_rejected_before_the_run_starts(tmp_path: Path) -> None:
    done = call_assay(tmp_path, "run", "--models", "gpt-4o-mimi")
    assert done.code == 2
    assert "gpt-4o-mini" in done.errors
    assert list(tmp_path.iterdir()) == []


def test_model_missing_on_the_server_is_named(
    counted_server: RunningModels, tmp_path: Path
) -> None:
    arguments = ("--models", "builtin/forage", "--no-baselines", "--episodes", "2")
    done = call_assay(tmp_path, "run", *arguments, "--openai-base-url", counted_server.base_url)
    assert done.code == 2
    assert "builtin/forage" in done.errors
    assert "answered 404" in done.errors + done.output
