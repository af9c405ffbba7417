"""Statements on the source in CONTRIBUTING, README and the architecture page are true."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT, Finished, run_python
from tests.test_layers import BELOW, LAYERS

SOURCE = ROOT / "src" / "assay"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
ARCHITECTURE = (ROOT / "docs" / "design" / "architecture.md").read_text("utf-8")
PACKAGES = [layer for layer in LAYERS if layer not in {*BELOW, "__main__"}]
FILE = re.compile(r"`((?:\w+/)+\w+\.py)`")
WALKS = ("An episode", "A coding trial", "A comparison")
CHANGES = ("metric", "agent", "coding agent", "sandbox", "statistic", "setting")
NOT_WITH_THE_ORACLE = {"bench/coders/proxy.py"}
"""Files that the page names in addition to those of its example agent."""


def section(title: str) -> str:
    """Return the steps of a section of the architecture page."""
    return ARCHITECTURE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def change(name: str) -> str:
    """Return the files of a change, as listed in the table of CONTRIBUTING."""
    rows = re.findall(rf"^\| an? {name} \| (.*) \|$", CONTRIBUTING, re.MULTILINE)
    assert len(rows) == 1, name
    return str(rows[0])


def test_there_are_seventeen_packages() -> None:
    assert len(PACKAGES) == 17
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert folders == {*PACKAGES}


def test_readme_and_contributing_list_the_packages_in_order_with_a_file_to_read_first() -> None:
    table = re.findall(r"^\| `(\w+)` \| .+ \| `(\w+\.py)` \|$", README, re.MULTILINE)
    tree = re.findall(r"^  (\w+)/ +(\w+\.py): ", CONTRIBUTING, re.MULTILINE)
    assert [package for package, _ in table] == [package for package, _ in tree] == PACKAGES
    assert [pair for pair in {*table, *tree} if not SOURCE.joinpath(*pair).is_file()] == []


def test_the_architecture_page_has_the_import_order_of_the_test() -> None:
    picture = section("Import order").split("```")[1].removeprefix("text")
    assert [word.strip() for word in picture.split("<")] == PACKAGES


@pytest.mark.parametrize("title", WALKS)
def test_each_walkthrough_has_under_twelve_steps_with_existing_files(title: str) -> None:
    steps = re.findall(r"^(\d+)\. (.*)$", section(title), re.MULTILINE)
    assert [int(number) for number, _ in steps] == [*range(1, len(steps) + 1)]
    assert 3 < len(steps) < 12
    assert all(FILE.search(text) for _, text in steps)
    files = FILE.findall(section(title))
    assert [path for path in files if not (SOURCE / path).is_file()] == []


def files_crossed(folder: Path, *command: str) -> set[str]:
    """Return the files of assay that a command executes."""
    done = run_python(
        "-m", "prove.walk", *command, folder=folder, variables={"PYTHONPATH": str(ROOT)}
    )
    return {line.split()[0] for line in done.errors.splitlines() if ".py " in line}


@pytest.mark.extras
def test_an_episode_and_a_comparison_execute_the_files_of_the_page(
    tmp_path: Path, compiled_engine: None
) -> None:
    models = ("--models", "builtin/noop", "builtin/random", "--no-baselines")
    run = files_crossed(tmp_path, "run", *models, "--episodes", "2", "--max-turns", "3")
    assert {*FILE.findall(section("An episode"))} - run == set()
    compared = files_crossed(tmp_path, "compare", "latest")
    assert {*FILE.findall(section("A comparison"))} - compared == set()


@pytest.mark.bench
def test_a_coding_trial_executes_the_files_of_the_page(tmp_path: Path) -> None:
    task = ROOT / "examples" / "bench" / "tasks" / "fix-bookings"
    entry = f'[[tasks]]\nprepared_dir = "{task}"\nagent = "oracle"\n'
    (tmp_path / "one.toml").write_text(entry, "utf-8")
    crossed = files_crossed(tmp_path, "bench", "run", "one.toml", "--sandbox", "bubblewrap")
    named = {*FILE.findall(section("A coding trial"))} - NOT_WITH_THE_ORACLE
    assert named - crossed == set()


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_names_one_to_three_existing_files(name: str) -> None:
    files = FILE.findall(change(name))
    assert 1 <= len({*files} - {"sandboxes/base.py", "agents/options.py"}) <= 3
    assert [path for path in files if not (SOURCE / path).is_file()] == []


def changed(copy: Path, name: str) -> None:
    """Make a change of CONTRIBUTING in a copy of the source, in only the files it names."""
    shutil.copytree(
        SOURCE, copy / "src" / "assay", ignore=shutil.ignore_patterns("__pycache__")
    )
    diff = CONTRIBUTING.partition(f"```diff {name}\n")[2].partition("```")[0]
    files = re.findall(r"^\+\+\+ b/src/assay/(.*)$", diff, re.MULTILINE)
    assert {*files} == {*FILE.findall(change(name))}
    applied = subprocess.run(
        ["git", "apply", "-"], cwd=copy, input=diff, text=True, capture_output=True, check=False
    )
    assert applied.returncode == 0, f"the diff of a {name} does not apply: {applied.stderr}"


def run_changed(copy: Path, *arguments: str) -> Finished:
    """Run assay from a copy of the source."""
    variables = {"PYTHONPATH": str(copy / "src")}
    return run_python("-m", "assay", *arguments, folder=copy, variables=variables)


SMALL = ("--no-baselines", "--episodes", "2", "--max-turns", "3")


@pytest.mark.extras
def test_a_metric_can_be_added_as_documented(tmp_path: Path, compiled_engine: None) -> None:
    changed(tmp_path, "metric")
    run_changed(tmp_path, "run", "--models", "builtin/noop", "builtin/random", *SMALL)
    result = run_changed(
        tmp_path, "compare", "latest", "--metrics", "wakefulness", "--json"
    ).json
    assert [
        subject["metrics"]["wakefulness"]["mean"]["point"] for subject in result["subjects"]
    ]


@pytest.mark.extras
def test_an_agent_can_be_added_as_documented(tmp_path: Path, compiled_engine: None) -> None:
    changed(tmp_path, "agent")
    result = run_changed(tmp_path, "run", "--models", "builtin/left", *SMALL, "--json").json
    assert [(row["model"], row["results"]) for row in result["models"]] == [("builtin/left", 2)]
