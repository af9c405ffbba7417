"""Every kind of report in every format, and the imports of building one."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.judge.comparison import compare
from assay.judge.versions import over_time
from assay.report.comparison.document import comparison_document
from assay.report.document import Document, ReportTable, Section
from assay.report.files import REPORT_EXTENSIONS, write_document
from assay.report.over_time import over_time_document
from assay.report.run import run_document
from assay.report.run_summary import rank_models, summarize
from assay.report.terminal import TerminalReport, render_text
from assay.report.training_analysis import analysis_document
from assay.report.training_variance import variance_document
from assay.training.analysis import analyse
from assay.training.analysis_settings import make_settings, make_summary
from assay.training.design import Design
from assay.training.gather import LoadedRun, RunSet, SkippedRun
from assay.training.variance import VarianceSettings, analyse_variance
from tests.judge.subjects import NASTY, subject
from tests.report.rows import episode, failed
from tests.support import run_python
from tests.training.made import METRIC, level_of, make_run

ROOT = Path(__file__).parents[2]
NO_TEXT = ("<script", "\x1b", "\u202e")


def found(name: str, seed: int) -> LoadedRun:
    run = make_run(name, seed, level_of(seed))
    return LoadedRun(name, run, run.curves[METRIC])


def of_run() -> Document:
    rows = [*(episode(NASTY, n, 3 + n % 2) for n in range(4)), failed(NASTY, 5), episode("b")]
    return run_document(summarize(rows, {}), NASTY, rank_models(rows))


def of_comparison() -> Document:
    return comparison_document(compare([subject("a", [1, 2, 3]), subject(NASTY, [2, 4, 4])]))


def of_versions() -> Document:
    versions = [subject(f"s {v}", [1, 2, 3], series=NASTY, version=v) for v in ("v1", "v2")]
    return over_time_document(over_time(versions))


def of_variance() -> Document:
    runs = tuple(found(f"{NASTY}{seed}", seed) for seed in range(4))
    gathered = RunSet(METRIC, runs, (SkippedRun(NASTY, NASTY),))
    settings = VarianceSettings(auc=make_summary({}))
    return variance_document(gathered, analyse_variance(runs, settings), settings)


def of_analysis() -> Document:
    control, candidate = (
        tuple(found(f"{NASTY}{arm}{seed}", seed) for seed in range(3)) for arm in "ab"
    )
    left_out = (SkippedRun(NASTY, NASTY),)
    design = Design(False, control, candidate, unusable=left_out, warnings=(NASTY,))
    return analysis_document(analyse(design, make_settings({}, {})), [NASTY])


KINDS = [of_run, of_comparison, of_versions, of_variance, of_analysis]


@pytest.mark.parametrize("make", KINDS)
def test_every_report_is_written_in_every_format_with_escaped_names(
    make: Callable[[], Document], tmp_path: Path
) -> None:
    document = make()
    paths = [tmp_path / f"report{ending}" for ending in REPORT_EXTENSIONS]
    write_document(document, *paths)
    page, markdown, values, table = (path.read_text("utf-8") for path in paths)
    text = render_text(TerminalReport(document))
    for shown in (page, markdown, text):
        assert "alert(1)" in shown
    for hostile in NO_TEXT:
        assert hostile not in page
        assert hostile not in markdown
        assert hostile == "<script" or hostile not in text
    assert json.loads(values)
    rows = list(csv.DictReader(io.StringIO(table)))
    assert rows
    assert all(None not in row and None not in row.values() for row in rows)


def test_a_report_of_a_run_has_a_row_per_model_with_its_intervals() -> None:
    first = of_run().rows()[0]
    assert (first["model"], first["results"], first["failures"]) == (NASTY, 4, 1)
    assert first["reward_low"] < first["reward"] < first["reward_high"]


def test_long_words_are_folded_and_not_cut_in_a_terminal() -> None:
    words = "so many words that no column of a narrow terminal has room for them all"
    table = ReportTable("", ["name", "n", "note"], [["a", "1", words], ["b", "2", "few"]])
    text = render_text(
        TerminalReport(Document(title="t", sections=[Section("s", [table])])), 40
    )
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 40
    assert all(word in text for word in words.split())


@pytest.mark.extras
def test_building_a_report_imports_no_drawing_or_terminal_library() -> None:
    program = """
import sys
import assay.report.training_analysis, assay.report.over_time, assay.report.training_variance
from assay.judge.comparison import compare
from assay.report.comparison.document import comparison_document
from assay.report.files import render_csv, render_json
from assay.report.files import render_markdown
from tests.judge.subjects import subject

document = comparison_document(compare([subject("a", [1, 2]), subject("b", [2, 4])]))
for render in (render_markdown, render_csv, render_json):
    render(document)
print(sorted({"matplotlib", "rich"} & set(sys.modules)))
"""
    done = run_python("-c", program, folder=ROOT)
    assert (done.output, done.errors) == ("[]\n", "")
