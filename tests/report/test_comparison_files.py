"""Comparisons as files: HTML, Markdown, JSON, CSV. Names are always escaped."""

import csv
import html
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from assay.core.text import escape_markdown
from assay.errors import OutputError, UsageError
from assay.judge.comparison import compare
from assay.judge.results import Comparison
from assay.judge.versions import over_time
from assay.report.comparison.document import comparison_document
from assay.report.document import Document, Figures, Section
from assay.report.files import (
    REPORT_EXTENSIONS,
    format_csv_cell,
    render_csv,
    render_markdown,
    write_document,
)
from assay.report.html import render_html
from assay.report.over_time import over_time_document
from tests.judge.subjects import NASTY, subject

BASE = [2.0, 3, 1, 4, 2, 3, 5, 2, 3, 4]
MORE = [4.0, 5, 4, 6, 3, 6, 7, 5, 5, 6]
CURVES = {"curves": {"reward": [{"steps": [0, 10, 20], "values": [0, 1, 2]}, {"steps": 3}]}}
EXTRA = {"cost_usd": 0.01, "duration_s": 3.0, "reward": 1.0}


@pytest.fixture(scope="module")
def compared() -> Comparison:
    return compare(
        [
            subject("a", BASE, extra=EXTRA, facts=CURVES, version="v1.0", source="runs.json"),
            subject(NASTY, MORE, extra=EXTRA, note="=HYPERLINK()", commit="abc123"),
        ],
        seed=11,
    )


@pytest.fixture(scope="module")
def found(compared: Comparison) -> Document:
    return comparison_document(compared)


@pytest.fixture(scope="module")
def page(found: Document, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_document(found, path)
    return path.read_text("utf-8")


def without_figures(document: Document) -> Document:
    return replace(
        document,
        sections=[
            Section(
                section.title,
                [block for block in section.blocks if not isinstance(block, Figures)],
            )
            for section in document.sections
        ],
    )


class Outline(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)


@pytest.mark.extras
def test_the_page_has_one_title_every_section_and_every_figure(page: str) -> None:
    tags = Outline(page).tags
    assert tags.count("h1") == 1
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert headings == [
        *("Leaderboard", "Answers", "Differences", "Values", "Instances", "Versions"),
        *(
            "Pair by pair",
            "Cost and quality",
            "Learning curves",
            "Other metrics",
            "Provenance",
        ),
    ]
    assert tags.count("svg") == tags.count("figure") == 10
    assert len(re.findall(r"<svg[^>]* aria-label=|<svg[^>]* aria-labelledby=", page)) == 10
    assert tags.count("caption") == tags.count("table")


@pytest.mark.extras
def test_page_is_standalone_and_escapes_names(page: str) -> None:
    assert "script" not in Outline(page).tags
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert not re.search(r"""(?:src|href)=["']?https?:""", page)


@pytest.mark.extras
def test_page_contains_its_provenance(page: str) -> None:
    for word in ("generator seed", "11", "abc123", "runs.json", "scipy", "&quot;holm&quot;"):
        assert word in page


def test_page_text_is_escaped_and_tables_have_captions(
    found: Document,
) -> None:
    text = render_html(without_figures(found))
    tags = Outline(text).tags
    assert tags.count("h1") == 1
    assert tags.count("caption") == tags.count("table") > 5
    assert "script" not in tags
    assert "&lt;script&gt;alert(1)" in text
    assert "\x1b" not in text


def test_markdown_escapes_names(found: Document) -> None:
    text = render_markdown(found)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    for line in rows:
        assert not re.search(r"(?<!\\)`|<script|(?<!\\)\$", line)
    table = next(line for line in rows if "script" in line and "| 10 | " in line)
    heads = next(line for line in rows if line.startswith("| Name | Trials"))
    assert len(re.findall(r"(?<!\\)\|", table)) == len(re.findall(r"(?<!\\)\|", heads))
    assert text.startswith("# ")
    assert "1. **Is " in text
    assert "generator seed: 11" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("`x`", r"\`x\`"),
        ("*b* _i_ [l](u)", r"\*b\* \_i\_ \[l\](u)"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("@all", "&#64;all"),
        ("two\nlines", r"two\\nlines"),
    ],
)
def test_markdown_syntax_in_text_is_escaped(text: str, shown: str) -> None:
    assert escape_markdown(text) == shown


def test_csv_has_a_row_per_candidate_and_metric_with_provenance(
    found: Document, compared: Comparison
) -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(found))))
    assert [row["metric"] for row in rows] == list(compared.setup.metrics)
    first = rows[0]
    assert first["decides"] == "true"
    assert first["verdict"] == "better"
    assert float(first["difference"]) == pytest.approx(2.2)
    assert float(first["difference_low"]) == pytest.approx(compared.contrasts[0].difference.low)
    assert first["generator_seed"] == "11"
    assert first["baseline_source"] == "runs.json"
    assert first["candidate_commit"] == "abc123"
    assert json.loads(first["configuration"])["level"] == 0.95
    assert first["p_equivalence"] == ""


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_text_is_a_formula_in_a_spreadsheet(start: str) -> None:
    assert format_csv_cell(f"{start}1+1") == f"'{start}1+1"
    assert format_csv_cell(-1.5) == "-1.5"
    assert format_csv_cell(float("nan")) == ""


def test_json_contains_every_number_and_no_nan(found: Document) -> None:
    text = json.dumps(found.values(), allow_nan=False)
    values = json.loads(text)
    assert values["format"] == "assay-comparison/1"
    assert values["configuration"]["seed"] == 11
    assert values["made"]["assay"]
    first = values["contrasts"][0]
    assert first["difference"]["point"] == pytest.approx(2.2)
    assert first["pairs"][0] == {
        "pair": "crafter/easy 1",
        "baseline": 2.0,
        "candidate": 4.0,
        "difference": 2.0,
    }
    assert values["answers"][0]["verdict"] == "better"
    assert values["subjects"][1]["name"] == NASTY


def test_single_pair_writes_null_instead_of_nan() -> None:
    one = compare([subject("a", [1]), subject("b", [2])])
    text = json.dumps(comparison_document(one).values(), allow_nan=False)
    assert json.loads(text)["contrasts"][0]["difference"] == {
        "point": 1.0,
        "low": None,
        "high": None,
    }


@pytest.mark.extras
def test_the_same_data_gives_the_same_page(found: Document, page: str, tmp_path: Path) -> None:
    write_document(found, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text("utf-8") == page


def test_the_same_data_gives_the_same_bytes(found: Document, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_document(
            found, *(tmp_path / folder / f"r{ending}" for ending in REPORT_EXTENSIONS[1:])
        )
    for ending in REPORT_EXTENSIONS[1:]:
        one, two = ((tmp_path / folder / f"r{ending}") for folder in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_file_extension_selects_the_format(found: Document, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.html, \.md, \.json, \.csv"):
        write_document(found, tmp_path / "a.json", tmp_path / "report.pdf")
    with pytest.raises(UsageError, match="given twice"):
        write_document(found, tmp_path / "a.json", tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError, match="cannot write"):
        write_document(found, Path("/dev/null/report.md"))


def versions() -> list:
    return [
        subject("s v1.0", BASE, series="s", version="v1.0"),
        subject("s v1.0 #2", BASE[::-1], first_seed=30, series="s", version="v1.0"),
        subject("s v1.1", MORE, series="s", version="v1.1", note="=a | b", commit="c0ffee"),
        subject("s v1.2", series="s", version="v1.2"),
    ]


def test_over_time_pools_the_experiments_of_a_version() -> None:
    followed = over_time(versions())
    first, second = followed.rows
    assert (first.version, first.trials, second.trials) == ("v1.0", 20, 10)
    assert first.change is None
    assert second.change is not None
    assert (second.change.paired, second.change.n_baseline) == (True, 10)
    assert second.change.verdict == "better"
    assert "'s v1.2' has no trials" in followed.notes[0]
    assert over_time_document(followed).summary == [
        "achievements from 2.90 (v1.0) to 5.10 (v1.1) over 2 versions."
    ]
    assert over_time_document(followed).values()["versions"][1]["version"] == "v1.1"


def test_over_time_is_written_in_every_format(tmp_path: Path) -> None:
    paths = [tmp_path / f"r{ending}" for ending in REPORT_EXTENSIONS]
    write_document(over_time_document(over_time(versions())), *paths)
    html, markdown, values, table = (path.read_text("utf-8") for path in paths)
    assert html.count("<svg") == 1
    assert r"=a \| b" in markdown
    assert json.loads(values)["series"] == "s"
    assert "'=a | b" in table


def test_over_time_without_trials_suggests_the_next_step() -> None:
    with pytest.raises(UsageError, match="nothing to follow over time: 's' has no trials"):
        over_time([subject("s")])


def test_each_pair_links_to_its_episodes_and_commands() -> None:
    both = [
        subject(name, own, database="my store.duckdb")
        for name, own in (("a", BASE), ("b", MORE))
    ]
    text = render_html(without_figures(comparison_document(compare(both))))
    links = re.findall(r'<th scope="row"><a href="#(pair-[0-9a-f]+)">', text)
    assert len(set(links)) == len(BASE)
    assert [text.count(f'<tr id="{link}">') for link in links] == [1] * len(BASE)
    _, _, first = text.partition(f'<tr id="{links[0]}">')
    for name in ("a", "b"):
        assert f"'{name} crafter/ea' --database 'my store.duckdb'" in html.unescape(first)
    files = [replace(subject, source="runs.json", database=None) for subject in both]
    assert '<th scope="row"><a href' not in render_html(
        without_figures(comparison_document(compare(files)))
    )


def test_pass_at_k_is_shown_for_repeated_worlds() -> None:
    again = [
        replace(play, replicate=place, trial_id=f"{play.trial_id} again {place}")
        for place in (1, 2)
        for play in subject("a", BASE).trials
    ]
    both = [subject("a", BASE, trials=again), subject("b", MORE)]
    found = comparison_document(compare(both))
    text = render_markdown(without_figures(found))
    assert "| a | 3 | 60% \\[" in text
    assert "about 95 % intervals over worlds" in text
    assert [row["k"] for row in found.values()["passes"]] == [1, 2, 3]
