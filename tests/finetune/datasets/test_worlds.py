"""Worlds used for training are recorded, and the quick start produces valid data."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import assay
from assay.api.run_preparation import prepare
from assay.store.location import DATABASE_VARIABLE
from assay.store.store import Store
from tests.finetune.datasets.known import known_store

CONFIG = """
[eval]
model_name = "builtin/forager"
episodes = 2
max_steps = 30
difficulty = "easy"
seed = 42

[output]
save_traces = true
save_detailed_results = true
"""


def noted(store: Store) -> set[tuple[str, str, int, str]]:
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT name, task, seed, split FROM dataset_worlds"
        ).fetchall()
    return {(name, task, seed, split) for name, task, seed, split in rows}


@pytest.mark.extras
def test_a_data_set_records_its_worlds_in_the_database_by_split(tmp_path: Path) -> None:
    store = known_store(tmp_path / "known.duckdb")
    data = tmp_path / "data.jsonl"
    built = assay.sft_filter(data, database=store, holdout_seeds="42,44")
    assert built.noted_in == store.path
    wanted = {
        ("data.jsonl", task, seed, split)
        for split, worlds in built.worlds.items()
        for task, seed in worlds
    }
    assert noted(store) == wanted
    assert {split for *_, split in wanted} == {"train", "holdout"}
    assay.sft_filter(data, database=store, holdout_seeds="42,44")
    assert noted(store) == wanted
    copy = tmp_path / "copy.duckdb"
    assay.merge(store, database=copy)
    assert noted(Store(copy)) == wanted


@pytest.mark.extras
def test_compare_reports_worlds_used_for_training(tmp_path: Path) -> None:
    store = known_store(tmp_path / "known.duckdb")
    assert not any("training data" in note for note in compared(store))
    assay.sft_filter(
        tmp_path / "data.jsonl", database=store, seeds="43,44", difficulty=["easy"]
    )
    (note,) = [note for note in compared(store) if "training data" in note]
    assert "2 worlds of the training data data.jsonl (seed 43, 44)" in note


def compared(store: Store) -> tuple[str, ...]:
    return tuple(assay.compare("gpt-a v1.0", "gpt-b v1.0", database=store).notes)


def test_a_run_warns_of_worlds_used_for_training(tmp_path: Path) -> None:
    store = known_store(tmp_path / "known.duckdb")
    assay.sft_filter(tmp_path / "data.jsonl", database=store, seeds="43", difficulty=["easy"])

    def warnings(**given: object) -> tuple[str, ...]:
        settings = {"models": ["builtin/noop"], "baselines": False, "database": store.path}
        return prepare({**settings, **given}, fresh=True).warnings

    (warning,) = warnings(episodes=3)
    assert "1 world of the training data data.jsonl (seed 43)" in warning
    assert warnings(episodes=1) == ()
    assert warnings(episodes=3, difficulty="hard") == ()


def test_an_eval_file_writes_its_traces_where_the_filter_finds_them(
    tmp_path: Path,
) -> None:
    file = tmp_path / "crafter_config.toml"
    file.write_text(CONFIG)
    assert prepare({}, file, dry=True).config.traces_dir == Path("traces_v2_synth")
    other = prepare({"traces_dir": "mine"}, file, dry=True)
    assert other.config.traces_dir == Path("mine")
    file.write_text(CONFIG.replace("[output]", '[output]\ntraces_dir = "own"'))
    assert prepare({}, file, dry=True).config.traces_dir == Path("own")
    assert prepare({}, dry=True).config.traces_dir == Path("traces_multi_model")


@pytest.mark.extras
@pytest.mark.usefixtures("compiled_engine")
def test_the_quick_start_leads_from_a_run_to_valid_data(tmp_path: Path) -> None:
    (tmp_path / "crafter_config.toml").write_text(CONFIG)
    tool = Path(sys.executable).parent / "assay"
    for line in (
        "run --model builtin/forager --episodes 2 --max-turns 12 --config crafter_config.toml",
        "sft filter --input-dir traces_v2_synth --output crafter_quality_sft.jsonl"
        " --min-achievements 1",
        "sft filter --input-dir traces_v2_synth --output crafter_quality_sft.jsonl"
        " --min-achievements 3 --min-reward 10 --max-turns 25 --stats-only",
        "sft validate crafter_quality_sft.jsonl",
        "sft trace crafter_quality_sft.jsonl 1",
    ):
        done = subprocess.run(
            [tool, *line.split()],
            cwd=tmp_path,
            env={
                name: value for name, value in os.environ.items() if name != DATABASE_VARIABLE
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert (tmp_path / "crafter_quality_sft.jsonl").stat().st_size
    assert noted(Store(tmp_path / "crafter_multi_model_traces.duckdb"))
