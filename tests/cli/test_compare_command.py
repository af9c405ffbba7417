"""`assay compare` from the command line."""

import json
import shlex
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from assay.cli import app
from assay.types import TrialState
from tests.store.experiments_file import SEED_FILE
from tests.store.sessions import START, make_run, make_session, make_sessions
from tests.store.stores import fill
from tests.support import Finished, call_assay

Assay = Callable[[str], Finished]


@pytest.fixture
def assay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Assay:
    """Run the program in a directory with the example files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_DATABASE", raising=False)
    Path("experiments.json").write_text(json.dumps(SEED_FILE))
    Path("baseline_results.json").write_text(json.dumps(results(0.0)))
    Path("improved_results.json").write_text(json.dumps(results(0.2)))

    return lambda line: call_assay(tmp_path, *shlex.split(line))


def results(up: float) -> dict:
    """Format one model of a results file; both files use the same model name."""
    rates = [0.5, 0.4, 0.6, 0.55, 0.45, 0.52]
    return {
        "name": "model",
        "seeds": [42, 43, 44, 45, 46, 47],
        "metrics": {
            "achievements": [3 + 10 * up + at % 2 for at in range(6)],
            "time_efficiency": [rate + up + at / 100 for at, rate in enumerate(rates)],
            "rule_understanding": [rate - up for rate in rates],
        },
    }


def test_command_of_the_specification_writes_a_page(assay: Assay) -> None:
    done = assay("compare --experiments experiments.json --output comparison_report.html")
    assert done.code == 0
    assert done.output == (
        "improved-7b: too few pairs. Difference in achievements +1.13 [+0.99, +1.28],"
        " 3 pairs.\n"
        "report: comparison_report.html\n"
    )
    assert "Too few pairs for a verdict (3; at least 6)" in Path(
        "comparison_report.html"
    ).read_text("utf-8")


@pytest.mark.extras
@pytest.mark.parametrize("kind", ["terminal", "html", "md", "csv", "json"])
def test_extra_keys_of_an_experiments_file_are_in_every_report(assay: Assay, kind: str) -> None:
    file = deepcopy(SEED_FILE)
    first, second = file["experiments"]
    first["seed_model"] = second["seed_model"] = "alike"
    second["rank"] = {"lora": 16}
    Path("experiments.json").write_text(json.dumps(file))
    line = "compare --experiments experiments.json"
    if kind == "terminal":
        text = assay(line).output
    else:
        assay(f"{line} --output report.{kind}")
        text = Path(f"report.{kind}").read_text("utf-8").replace("\\", "")
    for said in ("training_data", "crafter_improved.jsonl", "epochs", "seed_model", "alike"):
        assert said in text
    assert "lora" in text, "what only one of them has"


def test_tasks_can_be_fixed_or_a_sample(assay: Assay) -> None:
    names, instances, seeds = "ab", ["easy", "hard", "odd"], [1, 2, 3, 4]
    entries = [
        {
            "name": name,
            "achievements": [
                at + place * seed % 3 + at * place
                for place in range(len(instances))
                for seed in seeds
            ],
            "instances": [instance for instance in instances for _ in seeds],
            "seeds": seeds * len(instances),
        }
        for at, name in enumerate(names)
    ]
    Path("tasks.json").write_text(json.dumps({"experiments": entries}))
    fixed = assay("compare --experiments tasks.json --quiet")
    assert "on these tasks" in fixed.output
    assert "12 pairs of 3 tasks" in fixed.output
    done = assay("compare --experiments tasks.json --tasks sample --json")
    [units] = [contrast["units"] for contrast in json.loads(done.output)["contrasts"]]
    assert units == {
        "rule": "sample",
        "tasks": 3,
        "worlds": 12,
        "replicates": 1,
        "partly_shared": 0,
    }
    wrong = assay("compare --experiments tasks.json --tasks some")
    assert wrong.code == 2
    assert "unknown rule of tasks 'some'" in wrong.errors


def test_two_results_files_are_compared_by_the_given_metrics(assay: Assay) -> None:
    done = assay(
        "compare --baseline baseline_results.json --improved improved_results.json"
        " --metrics achievements,time_efficiency,rule_understanding"
        " --output comparison_summary.md"
    )
    assert (done.code, done.errors) == (0, "")
    text = Path("comparison_summary.md").read_text("utf-8")
    assert text.index("| achievements |") < text.index("| time\\_efficiency |")
    assert "| rule\\_understanding |" in text
    assert "baseline\\_results.json" in text


def test_missing_metric_is_an_error_that_lists_the_available_ones(assay: Assay) -> None:
    done = assay(
        "compare --baseline baseline_results.json --improved improved_results.json"
        " --metrics achievements,honesty"
    )
    assert done.code == 2
    assert "unknown metric 'honesty'" in done.errors
    assert "achievements, time_efficiency, rule_understanding" in done.errors
    assert done.errors.count("\n") == 1


def test_without_output_the_report_is_printed(assay: Assay) -> None:
    done = assay("compare --experiments experiments.json")
    assert done.code == 0
    assert "Is improved-7b better than baseline-7b?\n  Too few" in done.output
    assert "medium #1" not in done.output
    assert "medium #1" in assay("compare --experiments experiments.json --detail").output


def test_quiet_prints_only_the_verdicts(assay: Assay) -> None:
    done = assay("compare --experiments experiments.json --quiet --output r.csv")
    assert done.output.count("\n") == 1
    assert done.output.startswith("improved-7b: too few pairs.")


def test_json_is_one_object(assay: Assay) -> None:
    done = assay("compare --experiments experiments.json --json")
    values = json.loads(done.output)
    assert values["format"] == "assay-comparison/1"
    assert values["contrasts"][0]["verdict"] == "undecided"


def test_output_may_be_given_more_than_once(assay: Assay) -> None:
    assay("compare --experiments experiments.json --output a.md --output b/c.json")
    assert Path("a.md").exists()
    assert json.loads(Path("b/c.json").read_text())["configuration"]["seed"] == 0


def test_baseline_can_be_chosen(assay: Assay) -> None:
    line = "compare --experiments experiments.json --baseline improved-7b --quiet"
    assert assay(line).output.startswith("baseline-7b: too few pairs.")


def test_fail_if_worse_sets_the_exit_code(assay: Assay) -> None:
    files = ["baseline_results.json", "improved_results.json"]
    line = (
        "compare --baseline {} --improved {} --metric time_efficiency --quiet --fail-if-worse"
    )
    assert assay(line.format(*files)).code == 0
    done = assay(line.format(*reversed(files)))
    assert done.code == 1
    assert "is worse than" in done.errors


def test_fail_if_worse_fails_without_a_verdict(assay: Assay) -> None:
    empty = {**results(0.1), "name": "broken"}
    empty["metrics"] = {"achievements": [None] * 6}
    Path("broken.json").write_text(json.dumps(empty))
    line = (
        "compare --baseline baseline_results.json --improved improved_results.json"
        " --improved broken.json --metric achievements --quiet"
    )
    assert assay(line).code == 0
    done = assay(f"{line} --fail-if-worse")
    assert done.code == 1
    assert "cannot be compared: 'broken'" in done.errors


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compare", "nothing to compare"),
        ("compare --baseline baseline_results.json", "--improved FILE is missing"),
        ("compare --improved improved_results.json", "--baseline FILE"),
        ("compare a --experiments experiments.json", "give only one source"),
        ("compare --experiments missing.json", "missing.json"),
        (
            "compare --experiments experiments.json --output report.pdf",
            ".html, .md, .json, .csv",
        ),
        ("compare --experiments experiments.json --metrics ,", "separated by commas"),
        ("compare --experiments experiments.json --level 95", "0.95 is usual"),
        ("compare --experiments experiments.json --min-effect -1", "above 0"),
        ("compare --experiments experiments.json --over-time", "the name of a series"),
        ("compare --experiments experiments.json --seeds 9-3", "such as 54-93"),
        ("compare --experiments experiments.json --seeds 1-3", "it has no seeds"),
        (
            "compare --experiments experiments.json --allow-different turns",
            "unknown setting of the task 'turns'",
        ),
        ("compare --register", "give --plan FILE"),
        ("compare --experiments experiments.json --plan none.toml", "none.toml"),
        ("compare a b", "assay run"),
    ],
    ids=lambda value: value if value.startswith("compare") else "",
)
def test_usage_error_is_one_line_with_the_remedy(assay: Assay, line: str, said: str) -> None:
    done = assay(line)
    assert done.code in (1, 2)
    assert said in done.errors
    assert done.errors.count("\n") == 1
    assert done.output == ""


NASTY = "\x1b[2J[bold]red[/] <script>"
FIRST = make_run("run-1", ("model-a", "model-b", NASTY), created_at=START)
SECOND = make_run("run-2", ("model-a",), fingerprint="f2", created_at=START + 3600)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "t.duckdb"
    failed = make_session(FIRST, "model-b", 5, state=TrialState.FAILURE)
    fill(path, FIRST, [*make_sessions(FIRST, 5), failed])
    fill(path, SECOND, make_sessions(SECOND, 5, turns=6))
    return path


def test_stored_experiments_are_compared_by_name_or_run(assay: Assay, store: Path) -> None:
    done = assay(f"compare model-a model-b --json --database {store}")
    assert done.code == 2
    assert "ambiguous" in done.errors
    done = assay(f"compare 'model-a v1.0' 'model-b v1.0' --json --database {store}")
    values = json.loads(done.output)
    assert [subject["name"] for subject in values["subjects"]] == [
        "model-a v1.0",
        "model-b v1.0",
    ]
    [contrast] = [
        contrast for contrast in values["contrasts"] if contrast["metric"] == "achievements"
    ]
    assert contrast["paired"]
    assert contrast["n_baseline"] == 5
    assert contrast["left_out_candidate"]["failures"] == 1
    done = assay(f"compare run-1 --json --database {store}")
    assert len(json.loads(done.output)["standings"]["pairs"]) == 3


def test_history_of_one_series_excludes_baselines_of_its_run(assay: Assay) -> None:
    run = make_run(baselines=["builtin/expert"])
    fill(Path("t.duckdb"), run, make_sessions(run))
    done = assay(
        "compare builtin/forager --over-time --metric steps --database t.duckdb --json"
    )
    [version] = json.loads(done.output)["versions"]
    assert version["trials"] == len(make_sessions(run)) / 2


def test_control_characters_in_stored_names_are_escaped(assay: Assay, store: Path) -> None:
    done = assay(f"compare run-1 --database {store} --output r.md")
    assert "\x1b" not in done.output
    assert "<script>" not in Path("r.md").read_text("utf-8")


def test_run_with_one_experiment_cannot_be_compared(assay: Assay, store: Path) -> None:
    done = assay(f"compare latest --database {store}")
    assert done.code == 2
    assert "'model-a v1.1' alone cannot be compared" in done.errors


def test_versions_of_a_series_are_compared_over_time(assay: Assay, store: Path) -> None:
    done = assay(f"compare model-a --over-time --metric reward --database {store}")
    assert done.code == 0
    assert "v1.0" in done.output
    assert "v1.1" in done.output
    line = f"compare model-a --over-time --database {store}"
    assert assay(f"{line} --output h.md --output h.csv").output.endswith("report: h.csv\n")
    assert "| v1.1 |" in Path("h.md").read_text("utf-8")
    assert len(json.loads(assay(f"{line} --json").output)["versions"]) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compare --over-time", "needs one series"),
        ("compare model-a --over-time --metrics a,b", "one metric"),
        ("compare modle-a --over-time", "unknown series 'modle-a'; did you mean 'model-a'?"),
        ("compare nobody 'model-b v1.0'", "unknown experiment or run 'nobody'"),
        ("compare run-1 --metric rewards", "did you mean 'reward'?"),
    ],
)
def test_unknown_names_get_a_clear_error(
    assay: Assay, store: Path, line: str, said: str
) -> None:
    done = assay(f"{line} --database {store}")
    assert (done.code, done.output) == (2, "")
    assert said in done.errors
    assert done.errors.count("\n") == 1


def test_the_help_has_examples_that_parse(assay: Assay) -> None:
    shown = assay("compare --help").output
    examples = [line.strip() for line in shown.splitlines() if line.startswith("    assay ")]
    assert len(examples) == 5
    for example in examples:
        app.parse_args(shlex.split(example)[1:], exit_on_error=False, print_error=False)


def test_chosen_seeds_alone_are_compared(assay: Assay) -> None:
    line = "compare --baseline baseline_results.json --improved improved_results.json"
    done = assay(f"{line} --metric achievements --seeds 44-47 --json")
    values = json.loads(done.output)
    assert values["configuration"]["seeds"] == [44, 47]
    assert [row["pair"] for row in values["contrasts"][0]["pairs"]] == ["44", "45", "46", "47"]


def test_different_limits_fail_a_pipeline_and_are_reported(assay: Assay) -> None:
    for name, turns in (("short", 20), ("long", 60)):
        entry = {**results(0.1 * turns), "name": name, "max_turns": turns}
        Path(f"{name}.json").write_text(json.dumps(entry))
    line = "compare --baseline short.json --improved long.json --metric achievements --quiet"
    done = assay(f"{line} --fail-if-worse")
    assert done.code == 1
    assert done.output.startswith("long: not comparable.")
    assert "'long' had a different task: max_turns 60, baseline 20" in done.errors
    allowed = assay(f"{line} --fail-if-worse --allow-different max_turns")
    assert (allowed.code, allowed.output[:12]) == (0, "long: better")


def test_plan_is_registered_and_deviations_are_reported(assay: Assay, store: Path) -> None:
    Path("plan.toml").write_text('metric = "reward"\nn = 5\nlevel = 0.9\n')
    database = Path("t.duckdb")
    database.write_bytes(store.read_bytes())
    done = assay(f"compare --plan plan.toml --register --database {database}")
    assert done.code == 0
    assert "4 experiments already had trials in the database" in done.output
    line = f"compare 'model-a v1.0' 'model-b v1.0' --plan plan.toml --database {database}"
    values = json.loads(assay(f"{line} --json").output)
    assert values["configuration"]["level"] == 0.9
    assert "2 of the experiments were in the store when the plan was registered" in str(values)
    assert "never registered" not in str(values)


@pytest.mark.extras
def test_page_collapses_everything_but_the_verdicts(assay: Assay) -> None:
    assay("compare --experiments experiments.json --output page.html")
    text = Path("page.html").read_text("utf-8")
    assert '<section>\n<h2 id="answers">Answers</h2>' in text
    assert '<section>\n<details><summary><h2 id="values">Values</h2></summary>' in text
    assert text.count("<details>") == text.count("</details>")
