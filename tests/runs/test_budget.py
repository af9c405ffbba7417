"""A budget caps the whole run: never exceeded, shared, and raised by a resume."""

from pathlib import Path
from typing import Any

import pytest

from assay.api.servers import serve_models
from assay.models.serving.app import RunningModels
from assay.models.serving.faults import Faults
from tests.support import Finished, call_assay

from .remote import assert_same_run, money, play
from .tables import rows

pytestmark = pytest.mark.usefixtures("compiled_engine")

IN, OUT = 1.0, 2.0
PRICE = f"{IN:g}/{OUT:g}"
MODEL = ("--models", "builtin/forager", "--no-baselines", "--database", "traces.duckdb")
SMALL = ("--episodes", "4", "--max-turns", "6", "--no-save-traces", "--price", PRICE)


def billed(server: RunningModels) -> float:
    """Return the bill of the provider."""
    stats = server.stats()
    return float(IN * stats["prompt_tokens"] + OUT * stats["completion_tokens"]) / 1e6


def run(folder: Path, server: RunningModels, *more: str) -> Finished:
    return call_assay(
        folder, "run", *MODEL, *SMALL, "--openai-base-url", server.base_url, *more
    )


@pytest.mark.extras
@pytest.mark.parametrize("episodes", [40, pytest.param(1000, marks=pytest.mark.extras)])
def test_many_calls_at_once_never_spend_more_than_the_cap(
    tmp_path: Path, episodes: int
) -> None:
    cap = 0.005 * episodes
    with serve_models(port=0, faults=Faults(latency=0.05, jitter=0.1)) as server:
        result = play(
            tmp_path,
            server.base_url,
            **{"episodes": episodes, "max_concurrent_episodes": episodes},
            **{"max_turns": 20, "budget": cap, "price": PRICE},
        )
        assert billed(server) <= cap
        answered = server.stats()["outcomes"]["answered"]
        # Unfinished episodes were paid for, too.
        open_ones = result.open_spending["builtin/forager"]
        assert open_ones.trials == episodes
        assert open_ones.dollars == pytest.approx(billed(server))
    assert result.interrupted
    assert "--budget" in (result.stopped_by or "")
    assert "are spent" in (result.stopped_by or "")
    journals = list((tmp_path / "traces.duckdb.journal").glob("same/*.jsonl"))
    assert len(journals) == episodes
    # Every paid answer is kept.
    kept = sum(path.read_bytes().count(b'"kind":"call"') for path in journals)
    assert kept == answered
    # The run does not stop long before the cap: it makes the last call that fits.
    assert billed(server) > 0.5 * cap


def test_run_stops_at_the_cap_and_resumes_with_a_larger_one(tmp_path: Path) -> None:
    with serve_models(port=0) as server:
        play(tmp_path / "plain", server.base_url, price=PRICE)
        whole = billed(server)
        server.reset()

        stopped = run(tmp_path / "paid", server, "--run-id", "same", "--budget", f"{whole / 2}")
        assert stopped.code == 130, stopped.errors
        resume_with = f"assay run --resume same --budget {whole:g} --database traces.duckdb"
        assert resume_with in stopped.output
        before = billed(server)
        assert 0 < before <= whole / 2

        # A resume with the same cap has no money left.
        resume = ("run", "--resume", "same", "--database", "traces.duckdb")
        again = call_assay(tmp_path / "paid", *resume)
        assert again.code == 130, again.errors
        assert billed(server) <= whole / 2

        larger = call_assay(tmp_path / "paid", *resume, "--budget", f"{whole * 2}")
        assert larger.code == 0, larger.errors
        # No answer was paid for twice.
        assert billed(server) == pytest.approx(whole)
    assert money(tmp_path / "paid" / "traces.duckdb") == pytest.approx(whole)
    assert_same_run(tmp_path / "plain", tmp_path / "paid")


def test_earlier_spending_counts_in_a_resumed_run(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"price": PRICE, "max_turns": 12}
    cap = 0.05
    with serve_models(port=0) as server:
        for rise in (0, 0.01, 0.02):
            play(tmp_path, server.base_url, budget=cap + rise, **settings)
            assert billed(server) <= cap + rise
        assert billed(server) > cap


def test_models_share_the_cap(tmp_path: Path) -> None:
    names = ("builtin/forager", "builtin/random", "builtin/expert")
    cap = 0.08
    with serve_models(port=0, faults=Faults(latency=0.01)) as server:
        result = play(
            tmp_path,
            server.base_url,
            models=names,
            concurrent_models=True,
            max_turns=20,
            budget=cap,
            price=PRICE,
        )
        assert billed(server) <= cap
        assert set(server.stats()["models"]) == set(names)
    assert result.interrupted


@pytest.mark.extras
def test_failed_attempts_count_at_full_price(tmp_path: Path) -> None:
    cap = 0.1
    # Every call arrives and none is answered: the provider may charge for all of them.
    with serve_models(port=0, faults=Faults(cut_rate=1.0)) as server:
        result = play(tmp_path, server.base_url, budget=cap, price=PRICE)
        stats = server.stats()
    assert result.interrupted
    tokens = stats["request_bytes"] * IN + stats["calls"] * 1024 * OUT
    assert tokens / 1e6 <= cap
    assert stats["outcomes"]["answered"] == 0


def test_unpriced_model_is_rejected_with_a_budget(tmp_path: Path) -> None:
    with serve_models(port=0) as server:
        address = ("--openai-base-url", server.base_url)
        done = call_assay(tmp_path, "run", *MODEL, *address, "--budget", "1")
        assert done.code == 2
        assert "'builtin/forager' has no known price" in done.errors
        assert "--price IN/OUT" in done.errors
        assert server.stats()["calls"] == 0
    assert list(tmp_path.iterdir()) == []


def test_cost_of_a_call_follows_from_its_tokens(tmp_path: Path) -> None:
    with serve_models(port=0) as server:
        result = play(tmp_path, server.base_url, budget=100.0, price=PRICE)
        whole = billed(server)
    calls = [
        row for row in rows(tmp_path / "traces.duckdb", "events") if row["event_type"] == "cais"
    ]
    for row in calls:
        tokens = IN * row["prompt_tokens"] + OUT * row["completion_tokens"]
        assert row["cost"] == pytest.approx(tokens / 1e6)
    assert sum(row["cost"] for row in calls) == pytest.approx(whole)
    assert sum(row.cost_usd or 0.0 for row in result.episodes) == pytest.approx(whole)
