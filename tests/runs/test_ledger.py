"""The spending of a run is known after a kill, and without its journals."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.api.servers import serve_models
from assay.errors import UsageError
from assay.models.serving.app import RunningModels
from assay.models.serving.faults import Faults
from assay.runs.spending import PICO, Ledger
from tests.support import Finished, call_assay

from .programs import Program
from .test_budget import MODEL, PRICE, billed

pytestmark = pytest.mark.usefixtures("compiled_engine")

FOLDER = Path("traces.duckdb.journal/spending")
CAP = 0.06


@pytest.fixture(scope="module")
def server(compiled_engine: None) -> Iterator[RunningModels]:
    """A slow provider, so that some calls are always open."""
    with serve_models(port=0, faults=Faults(latency=0.15)) as serving:
        yield serving


def arguments(server: RunningModels, *more: str) -> list[str]:
    return [
        *("run", *MODEL, "--openai-base-url", server.base_url, "--price", PRICE),
        *("--episodes", "8", "--max-turns", "50", "--no-save-traces", "--run-id", "spending"),
        *("--budget", str(CAP), *more),
    ]


def killed(folder: Path, server: RunningModels, calls: int) -> Path:
    """Kill a run while calls are open; return its folder."""
    program = Program(folder, *arguments(server))
    before = server.stats()["calls"]
    program.until(lambda: server.stats()["calls"] >= before + calls, "some calls")
    program.kill()
    return folder / FOLDER


def test_calls_open_at_a_kill_count_at_their_maximum_cost(
    tmp_path: Path, server: RunningModels
) -> None:
    server.reset()
    kept = killed(tmp_path, server, 9)
    balance = Ledger(kept / "ledger").read()
    assert balance.open, "some were under way"
    assert balance.most_usd >= billed(server)
    again = call_assay(tmp_path, *arguments(server))
    assert again.code == 130, again.errors
    assert "were in flight when the run stopped" in again.errors
    assert "cost at most" in again.output
    assert billed(server) <= CAP


@pytest.mark.extras
def test_spending_is_known_without_the_journals(tmp_path: Path, server: RunningModels) -> None:
    server.reset()
    kept = killed(tmp_path, server, 30)
    for journal in kept.glob("*.jsonl"):
        journal.unlink()
    again = call_assay(tmp_path, *arguments(server))
    assert again.code == 130, again.errors
    assert billed(server) <= CAP


@pytest.mark.extras
def test_missing_ledger_needs_confirmation(tmp_path: Path, server: RunningModels) -> None:
    server.reset()
    kept = killed(tmp_path, server, 9)
    (kept / "ledger").unlink()
    calls = server.stats()["calls"]
    for more in ((), ("--dry-run",)):
        refused = call_assay(tmp_path, *arguments(server, *more))
        assert refused.code == 2
        assert "ledger is missing" in refused.errors
        assert "--allow-different ledger" in refused.errors
    assert server.stats()["calls"] == calls
    allowed = call_assay(tmp_path, *arguments(server, "--allow-different", "ledger"))
    assert allowed.code == 130, allowed.errors
    assert "of $0.06 are spent" in allowed.output + allowed.errors


@pytest.mark.extras
def test_ledger_is_made_when_a_run_without_one_is_resumed(
    tmp_path: Path, server: RunningModels
) -> None:
    server.reset()
    # As earlier versions left a run: without a ledger, and without a mention of one.
    kept = killed(tmp_path, server, 20)
    (kept / "ledger").unlink()
    record = json.loads((kept / "run.json").read_bytes())
    assert record.pop("ledger") is True
    (kept / "run.json").write_text(json.dumps(record), "utf-8")
    again: Finished = call_assay(tmp_path, *arguments(server))
    assert again.code == 130, again.errors
    assert json.loads((kept / "run.json").read_bytes())["ledger"] is True
    assert Ledger(kept / "ledger").read().most_usd <= CAP


def test_sum_of_a_ledger_survives_torn_lines(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.begin(5 * PICO)
    first, second = ledger.reserve(2 * PICO), ledger.reserve(3 * PICO)
    ledger.settle(first, PICO, lost=False)
    content = ledger.path.read_bytes()
    for cut in range(content.rindex(b"\n", 0, -1) + 1, len(content)):
        ledger.path.write_bytes(content[:cut])
        balance = Ledger(ledger.path).read()
        assert balance.most_usd == 10, "the settling was lost, so all of both counts"
        resumed = Ledger(ledger.path)
        assert resumed.resume().open == {first: 2 * PICO, second: 3 * PICO}
        assert resumed.read().lost_usd == 5
        assert resumed.reserve(1) == second + 1
    for place in range(len(content) - 1):
        flipped = bytearray(content)
        flipped[place] ^= 1
        ledger.path.write_bytes(flipped)
        with pytest.raises(UsageError, match="is damaged in line"):
            ledger.read()
