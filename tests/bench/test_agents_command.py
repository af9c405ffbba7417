"""Third-party agents: installed once, listed, and required before a run starts."""

import json
from pathlib import Path

import pytest

from assay.bench.coders.installation import (
    choose_default_agent,
    find_installed_agent,
    install_agent,
)
from assay.bench.prepare import prepare_bench
from assay.cli.program import main
from assay.errors import UsageError

from .npm import fake_npm

TASK = Path(__file__).parents[2] / "examples" / "bench" / "tasks" / "fix-bookings"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


def config(folder: Path, *lines: str) -> Path:
    file = folder / "bench.toml"
    text = "\n".join((f'prepared_dir = "{TASK}"', 'model = "gpt-4o-mini"', *lines))
    file.write_text(f'name = "real"\n[[tasks]]\n{text}\n', "utf-8")
    return file


def test_an_agent_is_installed_with_its_version_and_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_npm(tmp_path / "bin", monkeypatch)
    assert find_installed_agent("codex") is None
    assert main(["bench", "agents", "install", "codex@1.2.3", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    agent = find_installed_agent("codex")
    assert agent
    assert (listed["version"], listed["sha256"]) == ("1.2.3", agent.sha256)
    assert (agent.folder / agent.binary).is_file()
    assert agent.folder.is_relative_to(tmp_path / "cache")
    again = install_agent("codex")
    assert (again.version, again.sha256 != agent.sha256) == ("1.0.0", True)
    assert [path.name for path in agent.folder.parent.iterdir()] == ["codex"]


def test_failed_install_of_another_version_keeps_the_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_npm(tmp_path / "bin", monkeypatch)
    install_agent("codex", "1.2.3")
    assert main(["bench", "agents", "install", "codex@9.9.9"]) != 0
    assert "No matching version" in capsys.readouterr().err
    agent = find_installed_agent("codex")
    assert agent
    assert agent.version == "1.2.3"
    assert [path.name for path in agent.folder.parent.iterdir()] == ["codex"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("codx", "did you mean 'codex'"),
        ("codex@1.2; rm", "is not allowed"),
        ("codex@--force", "is not allowed"),
    ],
)
def test_agent_that_cannot_be_installed_is_rejected(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "agents", "install", name]) == 2
    assert message in capsys.readouterr().err


def test_missing_npm_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"install Node\.js"):
        install_agent("codex")


def test_list_shows_installed_agents_and_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "agents"]) == 0
    printed = capsys.readouterr().out
    assert "not installed: assay bench agents install codex" in printed
    (default,) = (line for line in printed.splitlines() if line.endswith("; default"))
    assert default.startswith("react-coder")
    fake_npm(tmp_path / "bin", monkeypatch)
    install_agent("codex", "1.2.3")
    assert main(["bench", "agents", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["codex"]["version"], listed["codex"]["default"]) == ("1.2.3", True)
    assert not listed["react-coder"]["default"]


def test_missing_agent_is_reported_before_the_run_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="assay bench agents install codex"):
        prepare_bench(config(tmp_path, 'agent = "codex"'), {}, dry=True)


def test_codex_is_the_default_agent_if_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config(tmp_path)
    assert prepare_bench(file, {}, dry=True).config.tasks[0].agent == "react-coder"
    fake_npm(tmp_path / "bin", monkeypatch)
    install_agent("codex", "1.2.3")
    assert choose_default_agent() == "codex"
    database = str(tmp_path / "t.duckdb")
    assert main(["bench", "run", str(file), "--dry-run", "--database", database]) == 0
    printed = capsys.readouterr().out
    assert "codex+gpt-4o-mini" in printed
    assert "agent=codex version=1.2.3" in printed
    assert "default for tasks without an agent" in printed
    arm = prepare_bench(file, {}, dry=True).run.arms[0]
    assert arm.version["agent_version"] == "1.2.3"


def test_program_agent_needs_a_sandbox_with_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_npm(tmp_path / "bin", monkeypatch)
    install_agent("codex")
    own = config(tmp_path, 'sandbox = "none"')
    prepared = prepare_bench(own, {}, dry=True)
    assert prepared.config.tasks[0].agent == "react-coder"
    wrong = config(tmp_path, 'sandbox = "none"', 'agent = "codex"')
    with pytest.raises(UsageError, match="use bubblewrap"):
        prepare_bench(wrong, {}, dry=True)
