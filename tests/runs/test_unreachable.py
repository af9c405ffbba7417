"""A model server that is off, or that keeps failing: said at once, and left at once."""

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
def nobody() -> Iterator[str]:
    """An address where connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


@pytest.fixture(scope="module")
def failing(compiled_engine: None) -> Iterator[RunningModels]:
    with serve_models(port=0, faults=Faults(error_rate=1.0)) as server:
        yield server


def test_a_run_names_all_models_that_nobody_answers_for_before_it_starts(
    tmp_path: Path, nobody: str
) -> None:
    done = call_assay(
        tmp_path,
        *("run", "--models", "one", "two", "--openai-base-url", nobody, "--episodes", "1"),
    )
    assert done.code == 2
    assert f"connection refused at {nobody} (for one, two); start the server" in done.errors
    assert not done.output
    assert not list(tmp_path.glob("*.journal/*")), "nothing has started"


@pytest.mark.extras
def test_nothing_heavy_is_loaded_before_a_server_that_is_off_is_told(nobody: str) -> None:
    program = (
        "import sys; from assay.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "print(code, *(name for name in ('numba', 'scipy', 'openai') if name in sys.modules))"
    )
    done = run_python("-c", program, "run", "--models", "x", "--openai-base-url", nobody)
    assert done.output == "2\n"
    assert "connection refused" in done.errors


def test_a_question_to_a_server_that_is_off_is_answered_at_once(
    nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", nobody)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with pytest.raises(UsageError, match=r"connection refused at .* \(for gpt-4o-mini\)"):
        try_model("gpt-4o-mini")


def test_a_key_that_is_refused_is_found_out_before_the_first_episode(tmp_path: Path) -> None:
    with serve_models(port=0, api_key="right") as server:
        done = call_assay(
            tmp_path,
            *("run", "--models", "one", "--openai-base-url", server.base_url),
        )
    assert done.code == 2
    assert "the key is refused (status 401)" in done.errors
    assert not list(tmp_path.iterdir()), "nothing has started"


def test_a_model_that_is_not_there_is_the_last_line_and_not_below_empty_tables(
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


def test_baselines_alone_need_nobody(tmp_path: Path, nobody: str) -> None:
    result = play(tmp_path, None, models=("builtin/noop",), openai_base_url=None)
    assert result.status == "finished"


def test_a_stop_does_not_wait_until_a_call_may_be_asked_again(
    tmp_path: Path, failing: RunningModels
) -> None:
    stop, heard = Stop(), list[Event]()
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
        heard.append(event)
        if isinstance(event, CallRetried) and not stop.is_requested:
            stop.request()

    result = run_prepared(prepared, stop=stop, observer=CallbackObserver(listen))
    assert result.interrupted
    assert not stop.is_forced
    assert result.last_trouble is not None
    assert "answered 50" in result.last_trouble
    retried = [event for event in heard if isinstance(event, CallRetried)]
    assert {event.model for event in retried} == {"builtin/noop"}
    assert all(event.wait > 0 and "answered 50" in event.reason for event in retried)
