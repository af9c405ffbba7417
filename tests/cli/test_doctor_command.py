import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cyclopts import App

from assay import __version__
from assay.api.checks import (
    CheckState,
    check_assay,
    check_backends,
    check_database,
    check_disk,
    check_engine,
    check_extras,
    check_journals,
    check_models,
    check_providers,
    check_python,
    check_sandbox,
    check_service,
)
from assay.api.servers import serve_models
from assay.cli.doctor import doctor
from assay.crafter.service.app import ServiceSettings, running
from assay.models.registry_file import load_registry
from assay.store.records import RunRecord
from assay.store.run_folder import RunFolder, journal_root
from assay.store.schema import VERSION
from assay.store.store import Store

NAMES = [
    *("python", "assay", "extras", "engine", "service", "models", "provider"),
    *("finetune", "sandbox", "docker", "modal", "agents", "database", "journals", "disk"),
]
HOLD = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def run(*arguments: str) -> int:
    app = App(result_action="return_value", exit_on_error=False, print_error=False)
    app.default(doctor)
    return int(app(list(arguments)))


def unfinished(database: Path, name: str = "abc") -> RunFolder:
    record = RunRecord(
        id=name,
        command="assay run",
        configuration={},
        provenance={},
        created_at=time.time(),
        experiments=(),
    )
    return RunFolder.create(database, record)


@contextmanager
def open_elsewhere(database: Path) -> Iterator[int]:
    """Open the database in another process; yield its id."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
        assert holder.stdin is not None
        holder.stdin.close()


@pytest.fixture(autouse=True)
def _no_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables of providers and of the models file."""
    for provider in load_registry().providers.values():
        for name in (provider.key_variable, provider.base_url_variable):
            if name is not None:
                monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("ASSAY_MODELS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "traces.duckdb"
    with Store(path).writing():
        pass
    return path


def test_versions_are_reported() -> None:
    assert sys.version.split()[0] in check_python().detail
    assert __version__ in check_assay().detail


def test_extras_are_reported_as_optional() -> None:
    check = check_extras()
    assert check.state is CheckState.OK
    assert "dev" in check.detail


@pytest.mark.usefixtures("compiled_engine")
def test_compiled_engine_is_reported() -> None:
    assert check_engine().state is CheckState.OK


def test_empty_engine_cache_is_reported_and_stays_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    check = check_engine()
    assert check.state is CheckState.WARN
    assert "assay warmup" in (check.next_step or "")
    assert not (tmp_path / "cache").exists()


def test_read_only_cache_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "file" / "cache"))
    check = check_engine()
    assert check.state is CheckState.WARN
    assert "ASSAY_CACHE_DIR" in (check.next_step or "")


def test_limits_that_the_sandbox_enforces_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDBOX_BACKEND", raising=False)
    check = check_sandbox()
    if check.state is CheckState.OK:
        assert "bubblewrap (memory: " in check.detail
        assert "network: network namespace without a way out" in check.detail
    else:
        assert check.next_step
    monkeypatch.setenv("SANDBOX_BACKEND", "none")
    assert "without limits" in check_sandbox().detail
    monkeypatch.setenv("SANDBOX_BACKEND", "hope")
    assert check_sandbox().state is CheckState.WARN
    monkeypatch.delenv("SANDBOX_BACKEND")
    monkeypatch.setenv("PATH", "/nowhere")
    check = check_sandbox()
    assert check.state is CheckState.WARN
    assert "apt install bubblewrap" in (check.next_step or "")


def test_reachable_service_is_ok() -> None:
    with running(ServiceSettings(port=0)) as service:
        check = check_service(service.address)
    assert check.state is CheckState.OK
    assert service.address in check.detail


def test_unreachable_configured_service_fails() -> None:
    with running(ServiceSettings(port=0)) as service:
        address = service.address
    check = check_service(address)
    assert check.state is CheckState.FAIL
    assert address in check.detail
    assert "assay serve" in (check.next_step or "")


def test_missing_database_is_ok(tmp_path: Path) -> None:
    check = check_database(tmp_path / "none.duckdb")
    assert check.state is CheckState.OK
    assert "assay run creates it" in check.detail
    assert not (tmp_path / "none.duckdb").exists()


def test_database_that_cannot_be_created_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check = check_database(tmp_path / "file" / "a.duckdb")
    assert check.state is CheckState.FAIL
    assert "--database" in (check.next_step or "")


def test_database_is_reported_with_its_schema_and_size(database: Path) -> None:
    check = check_database(database)
    assert check.state is CheckState.OK
    assert f"schema version {VERSION}, 0 episodes" in check.detail


def test_file_that_is_not_a_database_fails(tmp_path: Path) -> None:
    file = tmp_path / "a.duckdb"
    file.write_text("no database, " * 1000)
    check = check_database(file)
    assert check.state is CheckState.FAIL
    assert str(file) in check.detail


def test_process_with_an_open_database_is_named(database: Path) -> None:
    with open_elsewhere(database) as pid:
        check = check_database(database, patience=0.1)
    assert check.state is CheckState.WARN
    assert str(pid) in check.detail


def test_no_unfinished_run_is_ok(database: Path) -> None:
    (check,) = check_journals(database)
    assert check.state is CheckState.OK


def test_unfinished_run_is_reported_with_the_resume_command(database: Path) -> None:
    unfinished(database)
    (check,) = check_journals(database)
    assert check.state is CheckState.WARN
    assert check.next_step is not None
    assert f"assay run --resume abc --database {database}" in check.next_step


def test_run_in_progress_is_ok(database: Path) -> None:
    with unfinished(database).hold():
        (check,) = check_journals(database)
    assert check.state is CheckState.OK
    assert "is running it" in check.detail


def test_damaged_journals_are_reported(database: Path) -> None:
    folder = unfinished(database)
    (folder.folder / "x.jsonl.damaged").touch()
    checks = check_journals(database)
    assert [check.state for check in checks] == [CheckState.WARN, CheckState.WARN]
    assert "x.jsonl.damaged" in checks[1].detail


def test_unreadable_journal_folder_is_reported(database: Path) -> None:
    folder = journal_root(database) / "abc"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{")
    (check,) = check_journals(database)
    assert check.state is CheckState.WARN
    assert "run.json" in check.detail


def test_free_space_of_the_database_disk_is_checked_before_its_folder_exists(
    tmp_path: Path,
) -> None:
    check = check_disk(tmp_path / "none" / "deeper" / "a.duckdb")
    assert "GiB free" in check.detail
    assert str(tmp_path.resolve()) in check.detail


def test_models_are_ok_without_a_user_file() -> None:
    check = check_models()
    assert check.state is CheckState.OK
    assert "no user file" in check.detail


def test_models_file_is_named_and_an_unreadable_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models.toml"
    monkeypatch.setenv("ASSAY_MODELS", str(file))
    assert check_models().state is CheckState.FAIL
    assert check_providers() == []
    file.write_text("[models.gpt-4o-mini]\ncontext = 5\n")
    check = check_models()
    assert check.state is CheckState.OK
    assert str(file) in check.detail
    file.write_text("[models.gpt-4o-mini]\ncontxt = 5\n")
    check = check_models()
    assert check.state is CheckState.FAIL
    assert "context" in check.detail


def test_fine_tuning_backends_are_reported_with_missing_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MODAL_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789abcdef")
    check = check_backends()
    assert check.state is CheckState.OK
    assert "openai: at https://api.openai.com/v1" in check.detail
    assert "set the variable MODAL_BASE_URL" in check.detail
    assert "local: at http://127.0.0.1:8904/v1" in check.detail
    assert "planted" not in check.detail


def test_unconfigured_providers_are_one_line_with_their_variables() -> None:
    (check,) = check_providers()
    assert check.state is CheckState.OK
    assert "openai (OPENAI_API_KEY)" in check.detail
    assert "no key needed for vllm, ollama, local, assay" in check.detail


def test_reachable_provider_is_ok_and_its_key_stays_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    with serve_models(port=0) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        check, _ = check_providers()
        stats = server.stats()
    assert check.state is CheckState.OK
    assert check.detail == f"openai: key in OPENAI_API_KEY, responds at {server.base_url}"
    assert "sk-secret-of-mine" not in json.dumps(stats)


def test_unreachable_provider_is_not_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_models(port=0) as server:
        address = server.base_url
    monkeypatch.setenv("VLLM_BASE_URL", address)
    check, _ = check_providers()
    assert check.state is CheckState.WARN
    assert f"vllm: called without a key, cannot be reached at {address}" in check.detail


def test_provider_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        check, _ = check_providers(timeout=0.2)
    assert check.state is CheckState.WARN
    assert "no answer within 0.2 s" in check.detail


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("MODAL_BASE_URL", "http://127.0.0.1:1", "SYNTH_API_KEY"),
        ("SYNTH_API_KEY", "sk-secret-of-mine", "MODAL_BASE_URL"),
        ("GROQ_API_KEY", "sk-secret of-mine", "GROQ_API_KEY does not contain a valid key"),
    ],
    ids=["no-key", "no-address", "no-real-key"],
)
def test_missing_settings_of_a_provider_are_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    check, _ = check_providers()
    assert check.state is CheckState.WARN
    assert words in check.detail
    assert "of-mine" not in check.detail


def test_every_check_is_a_line_and_the_last_line_is_a_summary(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished(database)
    assert run("--database", str(database)) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line.split()[:2] for line in lines if line.startswith(("ok ", "warn ", "fail "))]
    assert [name for _, name in heads] == NAMES
    assert ["warn", "journals"] in heads
    assert "warning" in lines[-1]


def test_json_output_and_exit_code_of_a_failed_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.duckdb"
    file.mkdir()
    assert run("--database", str(file), "--json") == 1
    result = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in result["checks"]] == NAMES
    assert result["failed"] == 1
    assert {check["state"] for check in result["checks"]} <= {"ok", "warn", "fail"}


def test_quiet_prints_only_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_DATABASE", str(tmp_path / "none.duckdb"))
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    assert run("--quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("warn  engine") for line in lines)
    assert not any(line.startswith("ok ") for line in lines)
