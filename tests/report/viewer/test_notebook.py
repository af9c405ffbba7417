"""Episodes and comparisons as output of a notebook."""

from pathlib import Path

import pytest

import assay
from assay.errors import UsageError
from assay.report.viewer.library import Library
from assay.report.viewer.modules import page_modules
from assay.report.viewer.player import player_module, player_values


def test_a_run_and_a_comparison_are_shown_as_a_report_in_a_frame(database: Path) -> None:
    shown = assay.show("latest", database=database)
    assert "compared with" in repr(shown)
    assert len(repr(shown)) < 200
    html = shown._repr_html_()
    assert html.startswith("<iframe sandbox srcdoc=")
    assert "<script" not in html
    found = assay.compare("latest", database=database)
    assert assay.show(found)._repr_html_() == html


def test_an_unknown_name_is_an_error(database: Path) -> None:
    with pytest.raises(UsageError, match="nothing"):
        assay.show("nothing", database=database)


def test_a_player_has_all_that_its_module_reads(database: Path) -> None:
    from assay.api.viewer import opened

    with opened(["best"], database) as (library, _):
        assert isinstance(library, Library)
        values = player_values(library, "best", 3)
    assert values["step"] == 3
    assert len(values["film"]) > 100
    assert values["episode"]["replay"]["finding"] == "same"
    assert values["messages"]


def test_an_episode_is_a_widget(database: Path) -> None:
    pytest.importorskip("anywidget")
    if "player.js" not in page_modules():
        pytest.skip("the page has no player")
    widget = assay.show("best", database=database)
    assert widget.step == 0
    assert widget.get_state()["episode"]["steps"] == widget.episode["steps"]
    assert player_module().rstrip().endswith("export default player;")
