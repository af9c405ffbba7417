"""Real agents, offline: each solves a sample task with a scripted model, in a sandbox."""

import base64
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.api import BenchResult, bench_run
from assay.bench.coders import PROGRAMS, install_agent, installed_agent
from assay.errors import UsageError
from assay.types import ChatReply, ChatRequest, Message, Usage

from .boxes import usable
from .npm import fake_npm

TASKS = Path(__file__).parents[2] / "examples" / "bench" / "tasks"
FIX = """\
sed -i 's/in bookings:/in sorted(bookings):/; s/start < taken/start <= taken/; \
s/taken\\[-1\\]\\[0\\], end/taken[-1][0], max(taken[-1][1], end)/' bookings.py"""
_PATCH = base64.b64encode((TASKS / "split-bill" / "diff.patch").read_bytes()).decode()
FIXES = {"fix-bookings": FIX, "split-bill": f"echo {_PATCH} | base64 -d | git apply"}
DONE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
TRIED = {"codex": "0.166.0", "claude-code": "2.1.197", "mini-swe-agent": "2.4.6"}
COMMANDS = {"exec_command": "cmd", "Bash": "command", "bash": "command"}
"""The tool of each agent that runs a command line, and its argument."""


class Scripted:
    """A model that knows the solution: it looks, mends, looks again, and says so."""

    name, provider = "scripted", "me"

    def __init__(self, *, fix: str = FIX, forever: bool = False, reasoning: int = 3) -> None:
        self.usage, self.requests = Usage(), list[ChatRequest]()
        self._fix = fix
        self._forever, self._reasoning = forever, reasoning

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        turn = sum(message.role == "tool" for message in request.messages)
        usage = Usage(1000 + turn, 50 + turn, 600 + turn, self._reasoning)
        self.usage += usage
        tools = [tool["function"]["name"] for tool in request.tools.value]
        tool = next((name for name in tools if name in COMMANDS), None)
        lines = ["cat *.py", self._fix, "git diff --stat"]
        if tool == "bash":
            lines.append(DONE)
        if tool is None or (turn >= len(lines) and not self._forever):
            said = {"role": "assistant", "content": "It is mended."}
            return ChatReply(Message(said), "stop", usage, cost_usd=0.001)
        line = lines[min(turn, 2)] if self._forever else lines[turn]
        function = {"name": tool, "arguments": json.dumps({COMMANDS[tool]: line})}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        return ChatReply(Message(asked), "tool_calls", usage, cost_usd=0.001)

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of agents; `$ASSAY_TEST_AGENTS` names one that outlives the tests."""
    kept = os.environ.get("ASSAY_TEST_AGENTS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("cache")
    yield folder
    if not kept:
        shutil.rmtree(folder)  # a gigabyte


@pytest.fixture
def install(agents: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(agents))

    def installed(name: str) -> None:
        if installed_agent(name) is not None:
            return
        if name != "codex" and "ASSAY_TEST_AGENTS" not in os.environ:
            pytest.skip(f"{name} is large; 'make prove-agents' installs and runs it")
        if PROGRAMS[name].installer == "npm" and shutil.which("npm") is None:
            pytest.skip(f"{name} needs npm to be installed")
        try:
            install_agent(name, TRIED[name])
        except UsageError as error:
            pytest.skip(f"{name} cannot be installed here: {error}")

    return installed


def run(
    folder: Path, agent: str, model: Scripted, task: str = "fix-bookings", **keys: Any
) -> BenchResult:
    told = {"prepared_dir": str(TASKS / task), "agent": agent, "model": "scripted", **keys}
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in told.items())
    config = folder / "bench.toml"
    config.write_text(f'name = "real"\n[[tasks]]\n{lines}\n', "utf-8")
    return bench_run(
        config,
        models={"scripted": model},
        data_dir=folder / "data",
        database=folder / "t.duckdb",
    )


@pytest.mark.parametrize("task", FIXES)
@pytest.mark.parametrize("agent", PROGRAMS)
@pytest.mark.parametrize(
    "sandbox",
    [
        pytest.param("bubblewrap", marks=pytest.mark.bench),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def test_a_real_agent_solves_a_task_offline(
    task: str,
    agent: str,
    sandbox: str,
    install: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usable("docker" if sandbox == "docker" else None)
    install(agent)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789abcdefghijkl")
    # Messages have no place for what was thought, so claude-code cannot count it.
    model = Scripted(fix=FIXES[task], reasoning=0 if agent == "claude-code" else 3)
    ended = run(tmp_path, agent, model, task, timeout=120, sandbox=sandbox)
    (trial,) = ended.manifest.results
    log = (Path(trial.run_dir) / "logs" / "agent.log").read_text("utf-8", errors="replace")
    assert (trial.outcome, trial.agent_stop, trial.score) == ("solved", "completed", 1.0), log
    told = {"prompt": model.usage.prompt, "completion": model.usage.completion}
    assert told.items() <= trial.tokens.items()
    assert trial.model_calls == len(model.requests)
    assert trial.cost_usd == pytest.approx(0.001 * len(model.requests))
    assert [name for name, _ in trial.findings if name != "left_processes"] == []
    assert "planted" not in log


@pytest.mark.bench
@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        ({"token_limit": 3000}, "token_limit"),
        ({"cost_limit": 0.0025}, "cost_limit"),
        ({"max_turns": 3}, "turn_limit"),
    ],
    ids=["tokens", "dollars", "turns"],
)
def test_a_limit_ends_a_real_agent(
    keys: dict[str, Any], outcome: str, install: Any, tmp_path: Path
) -> None:
    install("codex")
    model = Scripted(forever=True)
    (trial,) = run(tmp_path, "codex", model, timeout=60, **keys).manifest.results
    # What it left is graded, and it had mended the code by then.
    assert (trial.agent_stop, trial.score) == (outcome, 1.0)
    assert len(model.requests) == 3
    assert trial.seconds["agent"] < 30


@pytest.mark.bench
@pytest.mark.parametrize("share", [1, 2], ids=["right", "wrong"])
def test_a_count_of_tokens_that_is_not_ours_is_a_finding(
    share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Scripted()
    told = {"input_tokens": 1000 * share, "cached_input_tokens": 600, "output_tokens": 50}
    told["reasoning_output_tokens"] = 3
    agent = (
        f"#!{sys.executable}\n"
        "import json, os, re, urllib.request\n"
        "config = open(os.environ['CODEX_HOME'] + '/config.toml').read()\n"
        "base = re.search('base_url = \"(.*)\"', config)[1]\n"
        "body = json.dumps({'model': 'm', 'input': 'hi'}).encode()\n"
        "urllib.request.urlopen(urllib.request.Request(base + '/responses', body)).read()\n"
        f"print(json.dumps({{'type': 'turn.completed', 'usage': {told!r}}}))\n"
    )
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    fake_npm(tmp_path / "bin", monkeypatch, agent)
    install_agent("codex", "1.2.3")
    (trial,) = run(tmp_path, "codex", model, timeout=60).manifest.results
    findings = dict(trial.findings)
    if share == 1:
        assert "token_count_differs" not in findings
    else:
        detail = "codex counts prompt 2000 instead of 1000 tokens"
        assert findings["token_count_differs"] == detail
    assert trial.tokens["prompt"] == 1000
