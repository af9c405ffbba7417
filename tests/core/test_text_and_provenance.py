import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay import __version__
from assay.core.provenance import collect_provenance
from assay.core.text import natural_key, printable, unknown_name
from assay.core.user_code import parse_object_spec

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("plain, ünïcode, 世界", "plain, ünïcode, 世界", id="printable"),
        pytest.param("\x1b[31mred\x07", r"\x1b[31mred\x07", id="terminal escapes"),
        pytest.param("a\nb\tc\r", r"a\nb\tc\r", id="line ends"),
        pytest.param("a\u202eb", r"a\u202eb", id="direction of writing"),
        pytest.param("\udcff", r"\udcff", id="bytes that are not text"),
        pytest.param("[bold]a[/]", "[bold]a[/]", id="markup is the printer's business"),
    ],
)
def test_control_characters_are_escaped_in_displayed_text(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_an_unknown_name_is_reported_with_the_nearest_and_all_names() -> None:
    assert unknown_name("model", "gtp", ["gpt", "noop"]) == (
        "unknown model 'gtp'; did you mean 'gpt'? choose from: gpt, noop"
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        pytest.param("mine.py:Maze", ("mine.py", "Maze"), id="relative"),
        pytest.param("/a:b/mine.py:act", ("/a:b/mine.py", "act"), id="colon in the path"),
        pytest.param("gymnasium:CartPole-v1", None, id="another prefix"),
        pytest.param("mine.py", None, id="no name"),
        pytest.param("mine.py:a.b", None, id="no identifier"),
        pytest.param("mine.txt:act", None, id="no Python file"),
    ],
)
def test_file_and_name_of_a_user_object_are_parsed(
    text: str, meant: tuple[str, str] | None
) -> None:
    assert parse_object_spec(text) == (meant and (Path(meant[0]), meant[1]))


def test_provenance_is_one_line_with_all_versions() -> None:
    line = str(collect_provenance())
    assert re.fullmatch(
        rf"assay {re.escape(__version__)}( \(commit [0-9a-f]{{12}}(, changed since)?\))?,"
        r"( in a project at commit [0-9a-f]{12}(, changed since)?,)?"
        r" python \S+, numpy \S+, numba \S+",
        line,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Create a repository with a copy of assay and one commit."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE, tmp_path / "src", ignore=ignore)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def git(where: Path, *arguments: str) -> str:
    person = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(where), *person, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def provenance_from(source: Path, folder: Path = Path("/")) -> str:
    """Return the provenance that the copy in `source` reports when it runs in a folder."""
    program = (
        f"import sys; sys.path.insert(0, {str(source)!r}); sys.dont_write_bytecode = True\n"
        "from assay.core.provenance import collect_provenance\n"
        "print(collect_provenance())"
    )
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder
    ).stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_provenance_names_the_commit_of_a_checkout_and_whether_it_was_changed(
    checkout: Path,
) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert f"(commit {commit[:12]})," in provenance_from(checkout / "src")
    (checkout / "src" / "assay" / "__main__.py").write_text("# changed\n")
    assert f"(commit {commit[:12]}, changed since)," in provenance_from(checkout / "src")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_provenance_ignores_the_commit_of_an_unrelated_repository(
    checkout: Path,
) -> None:
    installed = checkout / "some" / "environment"
    shutil.copytree(checkout / "src", installed / "src")
    assert "commit" not in provenance_from(installed / "src")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_provenance_names_the_commit_of_the_users_project(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = tmp_path_factory.mktemp("project")
    git(project, "init", "--quiet")
    assert "project" not in provenance_from(checkout / "src", project)
    (project / "agent.py").write_text("")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "all")
    commit = git(project, "rev-parse", "HEAD")[:12]
    (project / "traces.duckdb").write_text("what a run leaves is no change")
    reported = provenance_from(checkout / "src", project)
    assert f" in a project at commit {commit}, python" in reported
    assert git(checkout, "rev-parse", "HEAD")[:12] in reported
    (project / "agent.py").write_text("# changed")
    reported = provenance_from(checkout / "src", project)
    assert f"commit {commit}, changed since, python" in reported
    assert "project" not in provenance_from(checkout / "src", checkout / "src")


def test_names_with_numbers_sort_numerically() -> None:
    names = [
        "run10",
        "run2",
        "run1",
        "a.seed02",
        "a.seed2",
        "a",
        "run2b",
        "7",
        "run" + "9" * 5000,
    ]
    assert sorted(names, key=natural_key) == [
        *("7", "a", "a.seed02", "a.seed2", "run1", "run2", "run2b", "run10", names[-1])
    ]
