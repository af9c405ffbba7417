"""`assay analyze` on stored episodes: its output, files and errors."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.analyses.episodes import analysis_document
from assay.cli import main
from assay.errors import UsageError
from assay.report.comparison.document import comparison_document
from assay.report.document import Figures
from assay.report.html import render_html
from tests.analyses.conftest import played as played
from tests.store.test_import_balrog import episode as balrog_episode

COMMANDS = ["achievements", "actions", "costs", "deaths", "hooks", "quality", "seeds"]


@pytest.mark.parametrize("command", COMMANDS)
def test_finding_is_printed_first_and_the_output_fits_a_terminal(
    command: str, played: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", command, "--database", str(played)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "episodes" in lines[0] or "traces" in lines[0] or "worlds" in lines[0]
    assert lines[2].strip()
    assert len(lines) <= 60
    assert "6 episodes in 3 worlds" in "\n".join(lines)


@pytest.mark.extras
@pytest.mark.parametrize("command", COMMANDS)
def test_every_output_format_has_the_same_content(
    command: str, played: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"report.{ending}" for ending in ("html", "json", "csv")]
    options = [part for file in files for part in ("--output", str(file))]
    assert main(["analyze", command, str(played), *options]) == 0
    capsys.readouterr()
    page, data, rows = (file.read_bytes() for file in files)
    values = json.loads(data)
    assert values["format"] == "assay-analysis/1"
    assert values["basis"]["episodes"] == 6
    assert b"aria-label" in page
    assert rows.count(b"\n") > 2
    assert main(["analyze", command, str(played), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["finding"] == values["finding"]


@pytest.mark.extras
def test_first_figure_is_written_as_an_image(played: Path, tmp_path: Path) -> None:
    png, svg = tmp_path / "hooks.png", tmp_path / "hooks.svg"
    assert main(["analyze", "hooks", str(played), "--output", str(png)]) == 0
    assert main(["analyze", "hooks", str(played), "--output", str(svg)]) == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    picture = svg.read_text("utf-8")
    assert picture.startswith("<svg")
    assert "How often hooks fire, by turn" in picture


@pytest.mark.extras
def test_trace_files_give_the_same_result_as_their_store(played: Path) -> None:
    folder = next(path for path in (played.parent / "traces").iterdir() if path.is_dir())
    from_store = assay.analyze.achievements(database=played)
    from_folder = assay.analyze.achievements(folder)
    assert from_folder.models == from_store.models
    assert from_folder.basis.source == str(folder)


def test_counts_equal_those_of_sql(played: Path) -> None:
    store = assay.open(played)
    hooks = assay.analyze.hooks(database=played)
    counted = store.sql("SELECT hook_name, count(*) AS n FROM hook_results GROUP BY ALL")
    assert {hook.name: hook.firings for hook in hooks.hooks} == dict(
        zip(counted["hook_name"], counted["n"], strict=True)
    )
    rates = store.sql(
        "SELECT model, count(DISTINCT session_id) / 3 AS rate FROM achievements"
        " WHERE achievement = 'collect_sapling' GROUP BY model"
    )
    found = assay.analyze.achievements(database=played)
    assert {
        model.group: model.rates["collect_sapling"].point
        for model in found.models
        if model.rates["collect_sapling"].point
    } == pytest.approx(dict(zip(rates["model"], rates["rate"], strict=True)))
    steps = store.sql(
        "SELECT subject, count(*) AS n FROM session_timesteps JOIN session_traces"
        " USING (session_id) GROUP BY subject"
    )
    actions = assay.analyze.actions(database=played)
    assert {model.group: model.steps for model in actions.models} == dict(
        zip(steps["subject"], steps["n"], strict=True)
    )
    died = store.sql(
        "SELECT model, avg((stop_reason LIKE 'died%')::INT) AS share FROM episodes"
        " GROUP BY model"
    )
    deaths = assay.analyze.deaths(database=played)
    assert {model.group: model.died.point for model in deaths.models} == pytest.approx(
        dict(zip(died["model"], died["share"], strict=True))
    )
    assert deaths.endings == deaths.deaths


def test_filters_choose_episodes(played: Path) -> None:
    one = assay.analyze.quality(database=played, seeds=[42], model="builtin/forager")
    assert [trace.session_id for trace in one.traces] == list(
        assay.open(played).sql(
            "SELECT session_id FROM episodes WHERE seed = 42 AND model = 'builtin/forager'"
        )["session_id"]
    )
    assert assay.analyze.quality(database=played, difficulty="easy").basis.episodes == 6
    named = assay.analyze.quality(database=played, by="experiment").models
    assert [model.group for model in named] == [
        "builtin/random v1.0",
        "builtin/forager v1.0",
    ]


def test_comparison_page_shows_achievements_and_deaths(played: Path) -> None:
    document = comparison_document(assay.compare("latest", database=played))
    drawn = {
        section.title: [drawing.title for drawing in block.draw()]
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Figures) and section.title in ("Crafter score", "Endings")
    }
    assert drawn["Crafter score"] == ["Success rate of each achievement"]
    died = assay.open(played).sql(
        "SELECT count(*) n FROM episodes WHERE stop_reason ~ 'died.*'"
    )
    assert drawn["Endings"] == ["Causes of death"] * bool(died["n"][0])


def test_messages_are_not_loaded(played: Path, tmp_path: Path) -> None:
    import duckdb

    bare = tmp_path / "bare.duckdb"
    shutil.copy(played, bare)
    with duckdb.connect(str(bare)) as connection:
        connection.execute("DELETE FROM message_rows")
        connection.execute("DELETE FROM message_bodies")
    found = assay.analyze.achievements(database=bare)
    assert found.models == assay.analyze.achievements(database=played).models
    assert found.endings == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--model", "nobody"], "none of the 6 episodes", id="a filter"),
        pytest.param(["--seeds", "4x"], "--seeds '4x' is not allowed", id="seeds"),
        pytest.param(["--by", "world"], "choose from: model, experiment", id="by"),
        pytest.param(["--output", "x.pdf"], "choose from: .png, .svg, .html", id="ending"),
        pytest.param(
            ["--traces", "nowhere"], "file or folder 'nowhere' not found", id="folder"
        ),
    ],
)
def test_invalid_options_are_reported(
    arguments: list[str], said: str, played: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", "quality", "--database", str(played), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_empty_folder_and_empty_store_suggest_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UsageError, match=r"no traces in .*empty.*give a folder written by 'assay run'"
    ):
        assay.analyze.quality(tmp_path / "empty")
    with assay.SessionTracer(tmp_path / "own.duckdb", name="mine", task="guess") as tracer:
        tracer.step("up", reward=1.0)
    assay.delete_sessions("latest", database=tmp_path / "own.duckdb")
    with pytest.raises(UsageError, match=r"no episodes in .*'assay run --episodes 5'"):
        assay.analyze.quality(database=tmp_path / "own.duckdb")


def test_other_environment_gets_the_analyses_its_data_allow(tmp_path: Path) -> None:
    database = tmp_path / "own.duckdb"
    for _ in range(2):
        with assay.SessionTracer(database, name="mine", task="guess") as tracer:
            for action in ("up", "down", "up"):
                tracer.step(action, reward=1.0)
    actions = assay.analyze.actions(database=database)
    assert actions.models[0].shares["up"].point == pytest.approx(2 / 3)
    assert assay.analyze.quality(database=database).models[0].progress is None
    with pytest.raises(UsageError, match="no achievements: their task is guess"):
        assay.analyze.achievements(database=database)
    with pytest.raises(UsageError, match="no hook fired"):
        assay.analyze.hooks(database=database)


@pytest.mark.extras
def test_logs_of_another_program_are_analyzed_as_far_as_possible(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for number in range(3):
        balrog_episode(folder, number)
    actions = assay.analyze.actions(folder)
    assert actions.basis.episodes == 3
    quality = assay.analyze.quality(folder)
    assert any("Imported logs" in note for note in quality.basis.notes)
    costs = assay.analyze.costs(folder)
    assert costs.models[0].all_tokens.point > 0
    hooks = tmp_path / "hooks.json"
    hooks.write_text('{"hooks": [{"name": "x", "when": {"item": "wood", "at_least": 1}}]}')
    with pytest.raises(UsageError, match="needs episodes of Crafter that assay played"):
        assay.analyze.enhanced_hooks(folder, enhancements=hooks)
    with pytest.raises(UsageError, match="no hook fired"):
        assay.analyze.hooks(folder)


@pytest.mark.extras
def test_analyses_of_one_episode_work(played: Path) -> None:
    (session,) = assay.open(played).sql(
        "SELECT session_id FROM episodes WHERE seed = 42 AND model = 'builtin/forager'"
    )["session_id"]
    one: dict[str, Any] = {"database": played, "seeds": [42], "model": "builtin/forager"}
    for analysis in ("achievements", "actions", "deaths", "quality", "costs", "hooks"):
        found = getattr(assay.analyze, analysis)(**one)
        assert found.basis.episodes == 1
        assert render_html(analysis_document(found)).startswith("<!doctype html>")
    assert assay.analyze.quality(**one).traces[0].session_id == session
    with pytest.raises(UsageError, match="fewer than two worlds"):
        assay.analyze.seeds(**one)
