from contextlib import suppress
from pathlib import Path

import pytest

from assay.crafter import DIFFICULTIES, Difficulty
from assay.episodes.config import SETTINGS, RunConfig
from assay.errors import UsageError
from assay.runs.configuration import Resolved, resolve

MANY_MODELS = """
[experiment]
episodes = 10
max_turns = 100
difficulty = "easy"

[services]
crafter_service_url = "http://localhost:8901"
database_path = "crafter_multi_model_traces.duckdb"
"""

ONE_MODEL = """
[eval]
model_name = "gpt-4o-mini"
episodes = 100
max_steps = 30
difficulty = "easy"
seed = 42

[service]
base_url = "http://localhost:8901"
timeout = 30.0

[output]
save_traces = true
save_detailed_results = true

[openai]
base_url = "https://api.openai.com/v1"
api_key = "your-api-key"
"""


def read(folder: Path, text: str) -> Resolved[RunConfig]:
    file = folder / "run.toml"
    file.write_text(text, "utf-8")
    return resolve(RunConfig, {}, file, environment={})


def error_of(folder: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(folder, text)
    message = str(caught.value)
    assert str(folder / "run.toml") in message
    return message


def test_the_file_for_many_models_is_read(tmp_path: Path) -> None:
    done = read(tmp_path, MANY_MODELS)
    assert done.config == RunConfig(service_url="http://localhost:8901")
    assert done.sources["service_url"].endswith("run.toml [services] crafter_service_url")
    assert done.sources["difficulty"].endswith("[experiment] difficulty")
    assert done.warnings == ()


def test_the_file_for_one_model_is_read(tmp_path: Path) -> None:
    done = read(tmp_path, ONE_MODEL)
    assert done.config == RunConfig(
        models=("gpt-4o-mini",),
        episodes=100,
        max_turns=30,
        difficulty=DIFFICULTIES["easy"],
        seed=42,
        service_url="http://localhost:8901",
        service_timeout=30.0,
        save_traces=True,
        save_detailed_results=True,
        openai_base_url="https://api.openai.com/v1",
        traces_dir=Path("traces_v2_synth"),
    )
    assert done.sources["max_turns"].endswith("[eval] max_steps")
    assert done.sources["openai_api_key"] == "default"
    assert len(done.warnings) == 1
    assert "placeholder" in done.warnings[0]


def test_a_key_in_a_file_is_used_and_warned_about_without_being_shown(tmp_path: Path) -> None:
    done = read(tmp_path, '[openai]\napi_key = "sk-very-secret"\n')
    assert done.config.openai_api_key is not None
    assert done.config.openai_api_key.reveal() == "sk-very-secret"
    assert "OPENAI_API_KEY" in done.warnings[0]
    assert "very-secret" not in f"{done}"


def test_a_key_of_the_wrong_type_is_not_shown_either(tmp_path: Path) -> None:
    assert "123456" not in error_of(tmp_path, "[openai]\napi_key = 123456\n")


def test_both_layouts_may_be_mixed(tmp_path: Path) -> None:
    text = '[experiment]\nepisodes = 3\n[eval]\nmax_steps = 7\nepisodes = 3\nmodel_name = "a"\n'
    config = read(tmp_path, text).config
    assert (config.episodes, config.max_turns, config.models) == (3, 7, ("a",))


def test_tables_of_assay_are_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        '[run]\nmodels = ["a", "b"]\nname = "mine"\nconcurrent_models = true\n'
        "max_concurrent_models = 2\nmax_concurrent_episodes = 5\nbaselines = false\n"
        '[agent]\nhistory = 3\ntemperature = 1\nview = "short"\nmax_tokens = 50\n'
        "actions_per_turn = 2\n[limits]\nstep_limit = 9\ntoken_limit = 8\ntime_limit = 7\n"
        "[difficulty]\ncow_chance = 0.5\n",
    ).config
    assert (config.models, config.name, config.baselines) == (("a", "b"), "mine", False)
    assert (config.max_concurrent_models, config.max_concurrent_episodes) == (2, 5)
    assert (config.agent.history, config.agent.temperature) == (3, 1.0)
    assert (config.agent.view, config.agent.max_tokens) == ("short", 50)
    assert (config.step_limit, config.token_limit, config.time_limit) == (9, 8, 7.0)
    assert config.difficulty == Difficulty(cow_chance=0.5)


def test_contradicting_keys_are_an_error(tmp_path: Path) -> None:
    message = error_of(tmp_path, "[experiment]\nepisodes = 3\n[eval]\nepisodes = 4\n")
    assert "[experiment] episodes and [eval] episodes" in message
    message = error_of(
        tmp_path, '[experiment]\ndifficulty = "easy"\n[difficulty]\ncow_chance = 0.5\n'
    )
    assert "[experiment] difficulty and [difficulty]" in message


def test_an_unknown_table_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    message = error_of(tmp_path, "[experimnt]\nepisodes = 3\n")
    assert "did you mean 'experiment'?" in message
    assert "services" in message


def test_an_unknown_key_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    message = error_of(tmp_path, "[experiment]\nepisode = 3\n")
    assert "unknown key in [experiment] 'episode'; did you mean 'episodes'?" in message
    assert "max_turns" in message


def test_error_for_a_key_in_the_wrong_table_names_the_right_one(tmp_path: Path) -> None:
    message = error_of(tmp_path, "[run]\nmax_turns = 3\n")
    assert "'max_turns' belongs below [experiment]" in message
    message = error_of(tmp_path, '[run]\nservice_url = "http://localhost:1"\n')
    assert "'service_url' belongs below [services] as 'crafter_service_url'" in message


def test_error_for_a_key_outside_of_tables_names_its_table(tmp_path: Path) -> None:
    message = error_of(tmp_path, "episodes = 3\n")
    assert "'episodes' is outside a table; write it below [experiment] or [eval]" in message


def test_a_value_in_place_of_a_table_is_an_error(tmp_path: Path) -> None:
    assert "write it as a table: [run]" in error_of(tmp_path, "run = 3\n")
    assert "write it as a table: [run]" in error_of(tmp_path, "[[run]]\nname = ''\n")
    assert "'difficulty' is outside a table" in error_of(tmp_path, "difficulty = 3\n")


@pytest.mark.parametrize(
    "text", ["episodes = '3'", "episodes = 3.0", "episodes = true", "episodes = [3]"]
)
def test_value_of_the_wrong_type_is_reported_with_key_and_allowed_type(
    tmp_path: Path, text: str
) -> None:
    message = error_of(tmp_path, f"[experiment]\n{text}\n")
    value = text.partition(" = ")[2].replace("true", "True")
    assert f"[experiment] episodes: {value} is not allowed; give a whole number" in message


def test_a_wrong_number_of_a_difficulty_names_the_table(tmp_path: Path) -> None:
    message = error_of(tmp_path, "[difficulty]\ncow_chnce = 0.5\n")
    assert "[difficulty]: difficulty: unknown parameter 'cow_chnce'" in message
    assert "did you mean 'cow_chance'?" in message


def test_invalid_toml_is_reported_with_line_and_reason(tmp_path: Path) -> None:
    assert "run.toml, line 2, column 10: not valid TOML: " in error_of(
        tmp_path, "[experiment]\nepisodes 3\n"
    )
    assert "run.toml, at its end: not valid TOML: " in error_of(tmp_path, "[experiment]\na = '")
    assert "not valid TOML" in error_of(tmp_path, f"a = {'1' * 5000}\n")
    assert "nested too deeply" in error_of(tmp_path, f"a = {'[' * 20_000}\n")


def test_a_missing_file_names_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'assay init' writes one"):
        resolve(RunConfig, {}, tmp_path / "none.toml")
    with pytest.raises(UsageError, match="'assay init' writes one"):
        resolve(RunConfig, {}, tmp_path / ("x" * 300))


def test_binary_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        resolve(RunConfig, {}, tmp_path)
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xff\xfe[\x00r\x00")
    with pytest.raises(UsageError, match="not text in UTF-8"):
        resolve(RunConfig, {}, file)


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff[experiment]\nepisodes = 3\n").config.episodes == 3


NASTY = (
    *("1979-05-27", "07:32:00", "nan", "-inf", "-1", "1e400", "[[]]", "[{}]", "{}", "{a=1}"),
    *("[1979-05-27]", "['']", "'~nobody-at-all/x'", "'http://[::1'", '"\\u0000"', "'a b'"),
    f"'{'x' * 5000}'",
)


@pytest.mark.parametrize(
    "place",
    [f"{table}.{key or 'x'}" for setting in SETTINGS.values() for table, key in setting.places],
)
def test_unusual_value_is_accepted_or_rejected_with_a_usage_error(
    tmp_path: Path, place: str
) -> None:
    table, key = place.split(".")
    refused = 0
    for value in NASTY:
        with suppress(UsageError):
            read(tmp_path, f"[{table}]\n{key} = {value}\n")
            continue
        refused += 1
    assert refused >= len(NASTY) - 5


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "").config == RunConfig()
    assert read(tmp_path, "[difficulty]\n[run]\n").config == RunConfig()
