"""The address of a model is recorded, and a resume with another address is rejected."""

import json
from pathlib import Path

import pytest

from assay.runs.resume import strip_secrets
from tests.models.bad_http import raw_serving
from tests.support import call_assay

from .tables import rows

pytestmark = pytest.mark.usefixtures("compiled_engine")

RUN = (
    *(
        "run",
        "--models",
        "gpt-4o-mini",
        "--no-baselines",
        "--episodes",
        "1",
        "--run-id",
        "moved",
    ),
    *("--max-turns", "6", "--database", "traces.duckdb", "--no-save-traces"),
)


def recorded(folder: Path) -> str:
    (row,) = rows(folder / "traces.duckdb", "experiments")
    return str(json.loads(row["tags"])["address"])


def test_resume_uses_the_same_address_unless_overridden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-any-0123456789")
    with raw_serving() as first, raw_serving() as second:
        monkeypatch.setenv("OPENAI_BASE_URL", first.url)
        stopped = call_assay(tmp_path, *RUN, "--budget", "0.002")
        assert stopped.code == 130, stopped.errors
        assert first.asked > 0
        assert recorded(tmp_path) == first.url

        monkeypatch.setenv("OPENAI_BASE_URL", second.url)
        refused = call_assay(tmp_path, *RUN, "--budget", "1")
        assert refused.code == 2
        assert f"gpt-4o-mini: {first.url} -> {second.url}" in refused.errors
        assert "--allow-different address" in refused.errors
        assert second.asked == 0

        again = call_assay(tmp_path, *RUN, "--budget", "1", "--allow-different", "address")
        assert again.code == 0, again.errors
        assert second.asked > 0
        assert recorded(tmp_path) == f"{first.url}, then {second.url}"


def test_an_address_is_recorded_without_secrets() -> None:
    address = "https://me:secret@host.example:8443/v1?key=secret#secret"
    assert strip_secrets(address) == "https://host.example:8443/v1"


def test_unknown_allowed_difference_gets_a_suggestion(tmp_path: Path) -> None:
    done = call_assay(tmp_path, *RUN, "--allow-different", "adress")
    assert done.code == 2
    assert "address" in done.errors
