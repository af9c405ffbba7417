import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from cyclopts import App

from assay.cli.run import init
from assay.crafter import Difficulty
from assay.episodes.config import SETTINGS, RunConfig, format_run_template
from assay.errors import UsageError
from assay.runs.configuration import list_tables, resolve

KEY_LINE = re.compile(r"^#(\w+ = .*)$")
TABLES = list_tables(RunConfig)
LINES = format_run_template().splitlines()
KEY_LINES = [number for number, line in enumerate(LINES) if KEY_LINE.match(line)]
WITHOUT_DEFAULT = ("environment", "name")


def table_of(number: int) -> str:
    headings = [line for line in LINES[:number] if line.startswith("[")]
    return headings[-1].strip("[]")


def uncommented(numbers: list[int]) -> str:
    return "\n".join(
        line.removeprefix("#") if number in numbers else line
        for number, line in enumerate(LINES)
    )


def configuration(folder: Path, text: str) -> RunConfig:
    file = folder / "written.toml"
    file.write_text(text, "utf-8")
    return resolve(RunConfig, {}, file, environment={}).config


def run(*arguments: str) -> int:
    app = App(result_action="return_value", exit_on_error=False, print_error=False)
    app.default(init)
    return int(app(list(arguments)))


def test_written_file_keeps_all_defaults(tmp_path: Path) -> None:
    file = tmp_path / "assay.toml"
    assert run(str(file)) == 0
    assert file.read_text("utf-8") == format_run_template()
    done = resolve(RunConfig, {}, file, environment={})
    assert done.config == RunConfig()
    assert set(done.sources.values()) == {"default"}
    assert done.warnings == ()


def test_the_file_has_every_setting_once() -> None:
    keys = [(table_of(n), LINES[n][1:].split(" = ")[0]) for n in KEY_LINES]
    own = [TABLES[table][key].name for table, key in keys if table != "difficulty"]
    assert sorted([*own, "arms", "forks"]) == sorted(SETTINGS)
    assert "# [[arms]]" in LINES
    numbers = [key for table, key in keys if table == "difficulty"]
    assert numbers == [field.name for field in fields(Difficulty)]


def test_every_key_is_the_preferred_key_of_its_setting() -> None:
    for number in KEY_LINES:
        table, key = table_of(number), LINES[number][1:].split(" = ")[0]
        if table != "difficulty":
            assert TABLES[table][key].places[0] == (table, key)


@pytest.mark.parametrize("number", KEY_LINES, ids=lambda number: LINES[number][1:])
def test_each_line_can_be_uncommented_alone(tmp_path: Path, number: int) -> None:
    config = configuration(tmp_path, uncommented([number]))
    key = LINES[number][1:].split(" = ")[0]
    if table_of(number) == "difficulty":
        assert config.difficulty == Difficulty()
    elif key in WITHOUT_DEFAULT:
        assert config != RunConfig()
    else:
        assert config == RunConfig()


def test_all_lines_but_those_of_the_difficulty_can_be_uncommented_at_once(
    tmp_path: Path,
) -> None:
    numbers = [
        number
        for number in KEY_LINES
        if table_of(number) != "difficulty"
        and LINES[number][1:].split(" = ")[0] not in WITHOUT_DEFAULT
    ]
    assert configuration(tmp_path, uncommented(numbers)) == RunConfig()


def test_lines_are_short_enough_to_read() -> None:
    assert [line for line in LINES if len(line) > 96] == []


def test_existing_file_is_kept_without_force(tmp_path: Path) -> None:
    file = tmp_path / "assay.toml"
    file.write_text("mine")
    with pytest.raises(UsageError, match="use --force to replace it"):
        run(str(file))
    assert file.read_text() == "mine"
    assert run(str(file), "--force") == 0
    assert file.read_text("utf-8") == format_run_template()


def test_without_a_name_the_file_is_assay_toml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run() == 0
    assert (tmp_path / "assay.toml").exists()
    assert "assay run --config assay.toml" in capsys.readouterr().out


def test_path_of_the_file_is_printed_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.toml"
    run(str(file), "--json")
    assert json.loads(capsys.readouterr().out) == {"file": str(file)}


def test_unwritable_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        run(str(tmp_path), "--force")
    with pytest.raises(UsageError, match="does not exist; create it"):
        run(str(tmp_path / "none" / "a.toml"))
