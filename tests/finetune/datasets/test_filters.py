"""The episodes that `assay sft filter` keeps, compared with handwritten SQL."""

import json
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import UsageError
from assay.finetune.datasets.build import BuiltDataset
from assay.store.store import Store
from tests.finetune.datasets.known import known_store

USUAL = (
    "state = 'result' AND NOT baseline AND session_id IN"
    " (SELECT session_id FROM events WHERE event_type = 'cais')"
)
"""The condition that every episode must meet, in addition to the filters."""
NAMED = USUAL.replace("AND NOT baseline ", "")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return known_store(tmp_path_factory.mktemp("known") / "known.duckdb")


def counted(store: Store, where: str) -> tuple[int, int, int]:
    """Count episodes, calls and tokens with handwritten SQL."""
    with store.reading() as connection:
        rows = connection.execute(
            f"""
            SELECT count(*), sum(calls), sum(prompt_tokens + completion_tokens)
            FROM episodes JOIN (
                SELECT session_id, count(*) FILTER (event_type = 'cais') AS calls
                FROM events GROUP BY session_id
            ) USING (session_id) WHERE {where}
            """
        ).fetchall()
    return tuple(int(value or 0) for value in rows[0])  # type: ignore[return-value]


def left(built: BuiltDataset) -> tuple[int, int, int]:
    return built.left.episodes, built.left.turns, built.left.tokens


FILTERS = {
    "nothing": ({}, USUAL),
    "models": ({"models": ["gpt-b"]}, f"{NAMED} AND model = 'gpt-b'"),
    "a baseline by name": (
        {"models": ["builtin/random", "gpt-b"]},
        f"{NAMED} AND model IN ('builtin/random', 'gpt-b')",
    ),
    "experiment": (
        {"experiment": ["gpt-b v1.0"]},
        f"{USUAL} AND experiment_name = 'gpt-b v1.0'",
    ),
    "a run": ({"experiment": ["run-2"]}, f"{USUAL} AND run_id = 'run-2'"),
    "seeds": ({"seeds": "42,44-45"}, f"{USUAL} AND seed IN (42, 44, 45)"),
    "difficulty": ({"difficulty": ["hard"]}, f"{USUAL} AND difficulty = 'hard'"),
    "min_achievements": ({"min_achievements": 3}, f"{USUAL} AND num_achievements >= 3"),
    "min_reward": (
        {"min_reward": 1.5},
        f"{USUAL} AND reward >= 1.5 AND NOT isnan(reward)",
    ),
    "a reward that is not a number": (
        {"min_reward": -1000},
        f"{USUAL} AND NOT isnan(reward)",
    ),
    "max_turns": ({"max_turns": 4}, f"{USUAL} AND turns <= 4"),
    "require_termination": (
        {"require_termination": True},
        f"{USUAL} AND regexp_matches(stop_reason, '^(died|length|terminate)')",
    ),
    "require_achievement": (
        {"require_achievement": ["collect_wood", "collect_sapling"]},
        f"{USUAL} AND session_id IN (SELECT session_id FROM achievements WHERE achievement IN"
        " ('collect_wood', 'collect_sapling') GROUP BY session_id HAVING count(*) = 2)",
    ),
    "max_invalid_rate": ({"max_invalid_rate": 0.2}, f"{USUAL} AND invalid_rate <= 0.2"),
    "max_cost": ({"max_cost": 0.004}, f"{USUAL} AND cost_usd <= 0.004"),
    "a price that is not known": ({"max_cost": 1e9}, f"{USUAL} AND cost_usd IS NOT NULL"),
    "hook": (
        {"hook": ["easy_achievement"]},
        f"{USUAL} AND session_id IN (SELECT session_id FROM hook_results"
        " WHERE hook_name = 'easy_achievement')",
    ),
    "sql": (
        {"sql": "reward > 1 AND steps BETWEEN 9 AND 14"},
        f"{USUAL} AND reward > 1 AND steps BETWEEN 9 AND 14",
    ),
    "sql that is null": ({"sql": "cost_usd > 0"}, f"{USUAL} AND cost_usd > 0"),
    "top": (
        {"top": "50%"},
        f"{USUAL} QUALIFY row_number() OVER (PARTITION BY task, seed ORDER BY"
        " num_achievements DESC, CASE WHEN isnan(reward) THEN 0 ELSE reward END DESC)"
        " <= ceil(0.5 * count(*) OVER (PARTITION BY task, seed))",
    ),
    "max_per_world": (
        {"max_per_world": 1},
        f"{USUAL} QUALIFY row_number() OVER (PARTITION BY task, seed ORDER BY"
        " num_achievements DESC, CASE WHEN isnan(reward) THEN 0 ELSE reward END DESC) <= 1",
    ),
    "several": (
        {
            "min_achievements": 1,
            "max_turns": 5,
            "require_termination": True,
            "models": ["gpt-a"],
        },
        f"{NAMED} AND model = 'gpt-a' AND num_achievements >= 1 AND turns <= 5"
        " AND regexp_matches(stop_reason, '^(died|length|terminate)')",
    ),
}


@pytest.mark.parametrize(("given", "where"), FILTERS.values(), ids=FILTERS.keys())
def test_a_filter_keeps_the_same_episodes_as_handwritten_sql(
    store: Store, given: dict[str, Any], where: str
) -> None:
    built = assay.sft_filter(None, database=store, **given)
    if "QUALIFY" in where:
        with store.reading() as connection:
            connection.execute(
                f"CREATE TEMP TABLE best AS SELECT * FROM episodes WHERE {where}"
            )
            ids = connection.execute("SELECT session_id FROM best").fetchall()
        where = f"session_id IN ({', '.join(repr(name) for (name,) in ids)})"
    assert left(built) == counted(store, where)


def test_the_minimum_quality_uses_the_score_of_the_quality_analysis(store: Store) -> None:
    analysis = assay.analyze.quality(database=store)
    scores = {trace.session_id: trace.score for trace in analysis.traces}
    least = sorted(scores.values())[len(scores) // 2]
    good = [name for name, score in scores.items() if score >= least]
    built = assay.sft_filter(None, database=store, min_quality=least)
    chosen = ", ".join(map(repr, good))
    assert left(built) == counted(store, f"{USUAL} AND session_id IN ({chosen})")
    assert 0 < built.left.episodes < len(scores)


def test_the_funnel_adds_up_and_counts_missing_values_separately(store: Store) -> None:
    built = assay.sft_filter(None, database=store, max_cost=1e9, min_reward=-1000)
    assert (built.found.episodes, built.found.turns, built.found.tokens) == counted(
        store, "true"
    )
    for name in ("episodes", "turns", "tokens"):
        removed = sum(getattr(step.removed, name) for step in built.funnel)
        assert getattr(built.found, name) - removed == getattr(built.left, name)
    missing = {step.name: step.missing for step in built.funnel if step.missing}
    assert missing == {"--min-reward": 1, "--max-cost": 1}


def test_combined_filters_write_exactly_the_counted_episodes(
    store: Store, tmp_path: Path
) -> None:
    filters: dict[str, Any] = {"min_achievements": 1, "max_turns": 5}
    counts = assay.sft_filter(None, database=store, **filters)
    built = assay.sft_filter(tmp_path / "data.jsonl", database=store, **filters)
    assert left(built) == left(counts)
    assert built.rows == built.left.turns == len(lines(tmp_path / "data.jsonl"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        pytest.param("rewrd > 3", "did you mean 'reward'", id="an unknown column"),
        pytest.param("reward", "DOUBLE", id="no condition"),
        pytest.param(
            "true) FROM episodes; DROP TABLE runs; --", "one expression", id="a second"
        ),
        pytest.param("1 = 1) FROM runs WHERE (true", "one expression", id="out of the bracket"),
        pytest.param("reward >", "syntax error", id="no SQL"),
        pytest.param("(SELECT count(*) FROM read_csv('/etc/passwd')) > 0", "", id="a file"),
        pytest.param("CAST(model AS INTEGER) > 1", "convert", id="an error while it runs"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_condition_that_is_not_an_expression_is_rejected(
    store: Store, condition: str, message: str
) -> None:
    with pytest.raises(UsageError, match="--sql") as caught:
        assay.sft_filter(None, database=store, sql=condition)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"require_achievement": ["collect_wod"]}, "collect_wood"),
        ({"hook": ["easy_achievment"]}, "easy_achievement"),
        ({"experiment": ["gpt-z"]}, "assay experiments list"),
        ({"seeds": "42,x"}, "'x' is not a seed"),
        ({"top": "0%"}, "20%"),
        ({"mode": "calls"}, "'call'"),
        ({"format": "open-ai"}, "'openai'"),
        ({"mode": "episode", "drop_waste": True}, "--mask-waste"),
        ({"mask_waste": True}, "--drop-waste"),
        ({"format": "trl", "train_history": True}, "openai"),
        ({"prompt_completion": True}, "trl"),
        ({"mode": "window", "turns": 0}, "1 or more"),
        ({"mode": "window", "balance_actions": True}, "--mode call"),
    ],
    ids=str,
)
def test_invalid_value_is_reported_with_the_allowed_values(
    store: Store, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        assay.sft_filter(None, database=store, **given)
    assert message in str(caught.value)


def test_filters_that_match_nothing_write_no_file_and_name_the_deciding_filter(
    store: Store, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="'--min-achievements' removed the last"):
        assay.sft_filter(tmp_path / "data.jsonl", database=store, min_achievements=99)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_reported_with_the_existing_folders_and_databases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no trace folders or databases"):
        assay.sft_filter(None, input_dir="traces_v2_synth")
    known_store(tmp_path / "known.duckdb")
    (tmp_path / "traces_other").mkdir()
    (tmp_path / "traces_other" / "index.json").write_text("{}")
    with pytest.raises(UsageError, match=r"traces_other.*known\.duckdb"):
        assay.sft_filter(None, input_dir="traces_v2_synth")
