"""`react-coder`: a model with a shell and two ways to edit, in a real sandbox."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import assay
from assay.bench.manifest import TrialResult
from assay.types import ChatReply, ChatRequest, Message, Usage

from .coding_server import CodingServer, call, delay_answers, serving, steps
from .runs import HALF, calc_task, entry, here, toml

pytestmark = pytest.mark.bench

MEND_ADD = call("edit", {"path": "calc.py", "old": "a - b", "new": "a + b"}, "add takes away")
SOLVES = (
    call("bash", {"command": "ls; cat calc.py"}, "I look first."),
    call("bash", "{not json"),
    call("fly", {"to": "Rome"}),
    call("bash", '["a list"]'),
    call("bash", {}),
    call("bash", {"command": "sleep 30", "timeout": 0.3}),
    call("edit", {"path": "calc.py", "old": "not in it", "new": "x"}),
    call("edit", {"path": "missing.py", "old": "a", "new": "b"}),
    MEND_ADD,
    call("write", {"path": "notes/why.md", "content": "It was wrong.\n"}),
    call("edit", {"path": "calc.py", "old": "    return a\n", "new": "    return 2 * a\n"}),
    call("bash", {"command": "python3 -c 'import calc; print(calc.double(4))'"}),
    call("submit", {"notes": "Both are mended."}),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    calc_task(tmp_path / "task")
    return tmp_path


@pytest.fixture
def server() -> Iterator[CodingServer]:
    looping = steps(MEND_ADD, then=call("bash", {"command": "true"}))
    with serving(
        solver=steps(*SOLVES), looper=looping, sleeper=delay_answers(looping, 1, 6)
    ) as coding:
        yield coding


def test_model_solves_a_task_and_receives_tool_errors(
    folder: Path, server: CodingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    file = toml(folder / "bench.toml", entry(model="solver"))
    ended = assay.bench_run(file, openai_base_url=server.url, price="1/10")
    (result,) = ended.manifest.results
    assert (result.outcome, result.score, result.agent_stop) == ("solved", 1, "completed")
    assert result.answered_as == "solver-2026-11-01"
    n = len(SOLVES)
    assert (result.model_calls, result.tokens["prompt"]) == (n, 100 * n)
    assert result.cost_usd == pytest.approx(n * (100 * 1 + 10 * 10) / 1e6)

    outputs = [
        message["content"]
        for message in server.asked[-1]["messages"]
        if message["role"] == "tool"
    ]
    assert "def add(a, b)" in outputs[0]
    assert "[exit code 0]" in outputs[0]
    assert outputs[1].startswith("error: the arguments are not valid JSON")
    assert outputs[2].startswith(
        "error: there is no tool 'fly'; call bash, write, edit or submit"
    )
    assert outputs[3] == "error: the arguments are not an object"
    assert outputs[4] == "error: bash needs the argument 'command'"
    assert outputs[5] == "[timed out]"
    assert "the text stands in calc.py 0 times" in outputs[6]
    assert outputs[7].startswith("error: ")
    assert outputs[8:11] == ["wrote calc.py", "wrote notes/why.md", "wrote calc.py"]
    assert outputs[11].startswith("8\n")

    run = folder / result.run_dir
    assert (run / "artifacts" / "notes.md").read_text() == "Both are mended.\n"
    assert "notes/why.md" in (run / "artifacts" / "diff.patch").read_text()
    assert b"$ sleep 30" in (run / "logs" / "agent.log").read_bytes()

    shown = here(capsys, "traces", "show", result.session_id, "--full")
    assert shown.code == 0, shown.errors
    for words in ("I look first.", "python3 -c", "there is no tool 'fly'", "graded: solved"):
        assert words in shown.output, words


def test_each_limit_has_an_outcome_and_finished_work_is_graded(
    folder: Path, server: CodingServer
) -> None:
    file = toml(
        folder / "bench.toml",
        entry(model="looper", token_limit=300)
        + entry(model="looper", cost_limit=0.0005)
        + entry(model="looper", max_turns=2)
        + entry(model="sleeper", timeout=3)
        + entry(agent="command", command=f"{HALF}; echo done so far; sleep 60", timeout=2),
        parallel=5,
    )
    ended = assay.bench_run(file, openai_base_url=server.url, price="1/10")
    found = {result.outcome: result for result in ended.manifest.results}
    limits = ["token_limit", "cost_limit", "turn_limit", "agent_timeout", "agent_timeout"]
    assert [result.outcome for result in ended.manifest.results] == limits
    assert [result.agent_stop for result in ended.manifest.results] == limits
    assert {result.score for result in ended.manifest.results} == {0.75}
    assert {result.tests_total for result in ended.manifest.results} == {3}
    assert found["token_limit"].model_calls == 3, "110 tokens each"
    assert found["cost_limit"].model_calls == 3, "$0.0002 each"
    assert found["turn_limit"].model_calls == 2
    sleeper, command = ended.manifest.results[3:]
    assert b"calc.py" in log_of(sleeper), "what it did before it ran out of time"
    assert sleeper.seconds["agent"] < 5
    assert b"done so far" in log_of(command)


def log_of(result: TrialResult) -> bytes:
    return (Path(result.run_dir) / "logs" / "agent.log").read_bytes()


class InProcess:
    """A model in this process."""

    name, provider = "own", "mine"

    def __init__(self, answers: Sequence[object]) -> None:
        self._answers = [*answers]

    async def reply(self, request: ChatRequest) -> ChatReply:
        assert request.tools is not None
        said = self._answers[sum(message.role == "assistant" for message in request.messages)]
        return ChatReply(message=Message(said), usage=Usage(prompt=7, completion=1))

    async def close(self) -> None:
        pass


def test_model_in_process_needs_no_server_and_may_stop_without_submitting(folder: Path) -> None:
    said = {"role": "assistant", "content": "I think that is all."}
    file = toml(folder / "bench.toml", entry(model="own"))
    model = InProcess([MEND_ADD, said, said, said])
    (result,) = assay.bench_run(file, models={"own": model}).manifest.results
    assert (result.outcome, result.score) == ("partly_solved", 0.75)
    assert (result.agent_stop, result.model_calls, result.cost_usd) == ("completed", 4, None)
    notes = (folder / result.run_dir / "artifacts" / "notes.md").read_text()
    assert notes == "I think that is all.\n"
