"""A model server that is off or keeps failing is reported at once, without long waits."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.api.models import try_model
from assay.api.run_preparation import prepare
from assay.api.runs import run_prepared
from assay.api.servers import serve_models
from assay.errors import UsageError
from assay.models.serving.app import RunningModels
from assay.models.serving.faults import Faults
from assay.runs.control import Stop
from assay.runs.events import CallbackObserver, CallRetried, Event
from tests.support import call_assay, run_python

from .remote import play

pytestmark = pytest.mark.usefixtures("compiled_engine")


@pytest.fixture
def closed_url() -> Iterator[str]:
    """An address that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


@pytest.fixture(scope="module")
def failing(compiled_engine: None) -> Iterator[RunningModels]:
    with serve_models(port=0, faults=Faults(error_rate=1.0)) as server:
        yield server


def test_unreachable_models_are_named_before_the_run_starts(
    tmp_path: Path, closed_url: str
) -> None:
    done = call_assay(
        tmp_path,
        *("run", "--models", "one", "two", "--openai-base-url", closed_url, "--episodes", "1"),
    )
    assert done.code == 2
    assert f"connection refused at {closed_url} (for one, two); start the server" in done.errors
    assert not done.output
    assert not list(tmp_path.glob("*.journal/*")), "nothing has started"


@pytest.mark.extras
def test_unreachable_server_is_reported_before_heavy_imports(closed_url: str) -> None:
    program = (
        "import sys; from assay.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "print(code, *(name for name in ('numba', 'scipy', 'openai') if name in sys.modules))"
    )
    done = run_python("-c", program, "run", "--models", "x", "--openai-base-url", closed_url)
    assert done.output == "2\n"
    assert "connection refused" in done.errors


def test_trying_a_model_fails_at_once_if_its_server_is_unreachable(
    closed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", closed_url)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with pytest.raises(UsageError, match=r"connection refused at .* \(for gpt-4o-mini\)"):
        try_model("gpt-4o-mini")


def test_rejected_key_is_reported_before_the_first_episode(tmp_path: Path) -> None:
    with serve_models(port=0, api_key="right") as server:
        done = call_assay(
            tmp_path,
            *("run", "--models", "one", "--openai-base-url", server.base_url),
        )
    assert done.code == 2
    assert "the key is refused (status 401)" in done.errors
    assert not list(tmp_path.iterdir()), "nothing has started"


def test_missing_model_is_reported_in_the_last_line_without_empty_tables(
    tmp_path: Path,
) -> None:
    with serve_models(port=0) as server:
        done = call_assay(
            tmp_path,
            *("run", "--models", "not-there", "--openai-base-url", server.base_url),
            *("--episodes", "2", "--no-baselines"),
        )
    assert done.code == 2
    assert "PERFORMANCE" not in done.output
    assert "404" in done.errors.splitlines()[-1]


def test_baselines_need_no_model_server(tmp_path: Path, closed_url: str) -> None:
    result = play(tmp_path, None, models=("builtin/noop",), openai_base_url=None)
    assert result.status == "finished"


def test_stop_does_not_wait_for_a_retry(tmp_path: Path, failing: RunningModels) -> None:
    stop, events = Stop(), list[Event]()
    prepared = prepare(
        {
            "models": ["builtin/noop"],
            "openai_base_url": failing.base_url,
            "baselines": False,
            "episodes": 2,
            "database": tmp_path / "traces.duckdb",
            "traces_dir": tmp_path / "files",
            "call_patience": 3_600.0,
        }
    )

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, CallRetried) and not stop.is_requested:
            stop.request()

    result = run_prepared(prepared, stop=stop, observer=CallbackObserver(listen))
    assert result.interrupted
    assert not stop.is_forced
    assert result.last_trouble is not None
    assert "answered 50" in result.last_trouble
    retried = [event for event in events if isinstance(event, CallRetried)]
    assert {event.model for event in retried} == {"builtin/noop"}
    assert all(event.wait > 0 and "answered 50" in event.reason for event in retried)
