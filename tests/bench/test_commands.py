"""Commands that read benchmarks: their output, files and exit codes."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from assay.cli.program import main
from tests.bench.rollouts import failed, lost, manifest, scored, trial, write

FIRST, SECOND = "20250824__12-34-56", "20250825__12-34-56"
TASKS = [f"task-{number}" for number in range(8)]
EVIL = "evil\x1b[31m<script>alert(1)</script>|`x`=1+1"


class Bench:
    """Runs the commands in a separate folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.data, self._capsys = folder, folder / "data", capsys
        self.complaints = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        self._capsys.readouterr()
        ended = main(["bench", *words, "--data-dir", str(self.data)])
        printed, self.complaints = self._capsys.readouterr()
        assert ended == code, self.complaints
        return printed

    def write(self, stamp: str, good: float, bad: float, name: str = "nightly") -> Path:
        """Write a rollout of two arms on eight tasks, with a small difference in each."""
        results = [
            *scored({t: [good, good - 0.01 * at] for at, t in enumerate(TASKS)}, "good"),
            *scored({t: [bad, bad - 0.005 * at] for at, t in enumerate(TASKS)}, "bad"),
        ]
        return write(manifest(results, name, stamp), self.data)


@pytest.fixture
def bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Bench:
    monkeypatch.setenv("COLUMNS", "80")
    return Bench(tmp_path, capsys)


def test_summary_starts_with_the_finding_and_fits_80_columns(bench: Bench) -> None:
    bench.write(FIRST, 0.9, 0.5)
    printed = bench("summarize", "nightly", "--latest")
    lines = printed.splitlines()
    assert lines[0] == f"nightly, {FIRST}"
    assert lines[2].startswith("good has the highest mean score: 0.88")
    assert "bad against good: worse" in printed
    assert max(map(len, lines)) <= 80
    assert max(map(len, bench("summarize", "nightly", "--detail").splitlines())) <= 80
    for text in ("Mean score by task", "pass@2", "pass^2", "16/16", "$4.00"):
        assert text in printed


def test_a_summary_is_written_into_the_folder_of_its_rollout(bench: Bench) -> None:
    folder = bench.write(FIRST, 0.9, 0.5)
    bench("summarize", "nightly", "--rollout", "20250824")
    text = (folder / "summary.md").read_text("utf-8")
    assert text.startswith(f"# nightly, {FIRST}".replace("_", r"\_"))
    assert "Mean score by task" in text


def test_a_summary_that_cannot_be_saved_is_printed_with_a_warning(bench: Bench) -> None:
    folder = bench.write(FIRST, 0.9, 0.5)
    (folder / "summary.md").mkdir()
    assert "good has the highest mean score" in bench("summarize", "nightly")
    assert bench.complaints.startswith("warning: ")


@pytest.mark.bench
def test_reports_are_written_in_every_format(bench: Bench) -> None:
    bench.write(FIRST, 0.9, 0.5)
    paths = [bench.folder / f"report.{ending}" for ending in ("html", "md", "json", "csv")]
    words = [word for path in paths for word in ("--output", str(path))]
    printed = bench("summarize", "nightly", *words)
    assert [line for line in printed.splitlines() if line.startswith("report: ")] == [
        f"report: {path}" for path in paths
    ]
    html, markdown, data, table = (path.read_text("utf-8") for path in paths)
    assert "<h1>nightly" in html
    assert "| Arm |" in markdown
    values = json.loads(data)
    assert values["format"] == "assay-bench-summary/1"
    assert [arm["arm"] for arm in values["arms"]] == ["good", "bad"]
    assert values["arms"][0]["score"]["point"] == pytest.approx(0.8825)
    assert values["comparison"]["format"] == "assay-comparison/1"
    rows = list(csv.DictReader(io.StringIO(table)))
    assert len(rows) == 2 + 16
    assert (rows[0]["arm"], rows[0]["task"], rows[0]["counted"]) == ("good", "", "16")


def test_json_is_one_object(bench: Bench) -> None:
    bench.write(FIRST, 0.9, 0.5)
    values = json.loads(bench("summarize", "nightly", "--json"))
    assert (values["name"], values["stamps"]) == ("nightly", [FIRST])


def test_bounds_for_lost_trials_have_a_fixed_denominator(bench: Bench) -> None:
    write(
        manifest([trial("a", 1.0), failed("a"), lost("b"), trial("b", 1.0)]),
        bench.data,
    )
    printed = bench("summarize", "my_benchmark")
    # Task a: 1 and a failure; task b: 1, and a lost trial between 0 and 1.
    assert re.search(r"^oracle +1/4 +0\.50 .*0\.75 .*0\.75", printed, re.MULTILINE)
    assert "3/4" in printed
    assert "ModelUnavailable (infrastructure)" in printed
    assert "excluded from every mean" in " ".join(printed.split())
    assert "agent failed" in printed


@pytest.mark.bench
def test_several_rollouts_are_summarized_together(bench: Bench) -> None:
    bench.write(FIRST, 0.9, 0.5)
    bench.write(SECOND, 0.9, 0.5)
    both = ("--rollout", FIRST, "--rollout", SECOND)
    assert "32/32" in bench("summarize", "nightly", *both)
    bench("summarize", "nightly", "--rollout", FIRST, "--rollout", "20250824", code=2)
    assert "given twice" in bench.complaints


@pytest.mark.bench
def test_control_characters_in_names_are_escaped(bench: Bench) -> None:
    results = [
        trial("a", 1.0, EVIL, findings=((EVIL, EVIL),), outcome=EVIL),
        trial("a", 0.0, "other"),
        trial(EVIL, 0.5, EVIL, answered_as=EVIL),
        trial(EVIL, 0.5, "other"),
    ]
    write(manifest(results, "nightly", FIRST), bench.data)
    write(manifest(results, "nightly", SECOND), bench.data)
    page = bench.folder / "page.html"
    for words in (
        ("summarize", "nightly", "--detail"),
        ("compare", f"nightly@{FIRST}", "nightly", "--detail"),
    ):
        assert "\x1b" not in bench(*words)
        bench(*words, "--output", str(page))
        text = page.read_text("utf-8")
        assert "<script>" not in text
        assert "&lt;script&gt;" in text
    markdown = (bench.data / "rollouts" / "nightly" / SECOND / "summary.md").read_text("utf-8")
    assert "<script>" not in markdown


@pytest.mark.bench
def test_compare_reports_regressions_and_exits_with_1_on_request(bench: Bench) -> None:
    bench.write(FIRST, 0.9, 0.5)
    bench.write(SECOND, 0.4, 0.5)
    printed = bench("compare", f"nightly@{FIRST}", "nightly")
    assert f"good {SECOND} against good {FIRST}: worse" in " ".join(printed.split())
    assert max(map(len, printed.splitlines())) <= 80
    bench("compare", FIRST, SECOND, "--fail-if-worse", code=1)
    assert f"error: good {SECOND} is worse than good {FIRST} in score" in bench.complaints
    bench("compare", SECOND, FIRST, "--fail-if-worse")


def test_compare_accepts_tags_and_lists_tasks_that_flipped(bench: Bench) -> None:
    for stamp, up, down in ((FIRST, 0.0, 1.0), (SECOND, 1.0, 0.0)):
        scores = {"up": [up] * 2, "down": [down] * 2, "odd": [1.0, 0.0]}
        write(manifest(scored(scores), "nightly", stamp), bench.data)
    bench("tag", f"nightly@{FIRST}", "v1")
    printed = bench("compare", "v1", "nightly")
    for line in (
        f"{SECOND} compared with v1",
        "Newly failing: down.",
        "Newly passing: up.",
        "Flaky: odd.",
        "  down (oracle): 2/2 -> 0/2",
    ):
        assert line in printed.splitlines()


def test_removed_arm_gets_no_verdict(bench: Bench) -> None:
    bench.write(FIRST, 0.9, 0.5)
    results = scored({task: [0.9, 0.8] for task in TASKS}, "good")
    write(manifest([*results, *scored({"x": [1.0]}, "new")], "nightly", SECOND), bench.data)
    bench("compare", FIRST, SECOND, "--fail-if-worse", code=1)
    assert f"cannot be compared: bad is only in {FIRST}." in bench.complaints
    bench("compare", FIRST, SECOND)


@pytest.mark.bench
def test_comparison_is_written_as_json(bench: Bench) -> None:
    bench.write(FIRST, 0.9, 0.5)
    bench.write(SECOND, 0.4, 0.5)
    values = json.loads(bench("compare", FIRST, SECOND, "--json"))
    assert values["format"] == "assay-bench-comparison/1"
    assert values["rollouts"] == [FIRST, SECOND]
    verdicts = [arm["comparison"]["contrasts"][0]["verdict"] for arm in values["arms"]]
    assert verdicts[0] == "worse"
    table = bench.folder / "table.csv"
    bench("compare", FIRST, SECOND, "--output", str(table))
    rows = list(csv.DictReader(io.StringIO(table.read_text("utf-8"))))
    assert len(rows) == 16
    assert rows[0]["rollout_1"] == FIRST


def test_comparing_a_rollout_with_itself_is_rejected(bench: Bench) -> None:
    bench.write(FIRST, 0.9, 0.5)
    bench("compare", FIRST, "nightly", code=2)
    assert "given twice" in bench.complaints


def test_tags_are_added_listed_and_removed(bench: Bench) -> None:
    bench.write(FIRST, 0.9, 0.5)
    assert bench("tag", "nightly", "v1") == f"nightly@{FIRST} has the tags v1\n"
    assert f"nightly, {FIRST} (v1)" in bench("summarize", "v1")
    values = json.loads(bench("tag", "nightly", "v1", "--remove", "--json"))
    assert values == {"rollout": f"nightly@{FIRST}", "tags": []}
    bench("summarize", "v1", code=2)
    assert "unknown benchmark 'v1'" in bench.complaints


def test_import_reports_copied_existing_and_rejected_rollouts(bench: Bench) -> None:
    other = bench.folder / "other"
    write(manifest(scored({"a": [1.0]})), other)
    assert f"imported as my_benchmark@{FIRST}" in bench("import", str(other))
    assert f"already imported as my_benchmark@{FIRST}" in bench("import", str(other))
    (other / "rollouts" / "my_benchmark" / FIRST / "manifest.json").write_text("{", "utf-8")
    bench("import", str(other), code=1)
    assert f"{FIRST}: " in bench.complaints
    assert "not valid JSON" in bench.complaints
    assert "oracle" in bench("summarize", "my_benchmark")
