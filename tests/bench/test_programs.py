"""Real agents, offline: each solves a sample task with a scripted model, in a sandbox."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.bench.coders.installation import PROGRAMS, find_installed_agent, install_agent
from assay.bench.run import BenchResult, bench_run
from assay.errors import UsageError
from assay.types import ChatModel, ChatReply, ChatRequest, Message, Usage
from tests.crafter.service.calls import ask
from tests.sandboxes.boxes import usable
from tests.support import read_line, serve_apart

from .npm import fake_npm

BENCH = Path(__file__).parents[2] / "examples" / "bench"
TRIED = {"codex": "0.166.0", "claude-code": "2.1.197", "mini-swe-agent": "2.4.6"}
KEY = "sk-planted-0123456789abcdefghijkl"
ROWS = """
[providers.mine]
base_url = "{}"
key_variable = "SOLVER_API_KEY"

[models.solver]
provider = "mine"
remote_name = "scripted/solutions"
price = {{ input = 1, cached = 0.5, output = 10, dated = 2026-11-17 }}
"""


class Forever:
    """A model that solves the task for codex, and then keeps reading it."""

    name, provider = "forever", "me"

    def __init__(self) -> None:
        self.requests = list[ChatRequest]()

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        turn = sum(message.role == "tool" for message in request.messages)
        usage = Usage(1000 + turn, 50 + turn, 600 + turn, 3)
        said: dict[str, Any] = {"role": "assistant", "content": "It is mended."}
        if request.tools.value:
            solution = (BENCH / "tasks" / "fix-bookings" / "diff.patch").read_text("utf-8")
            line = f"git apply <<'EOF'\n{solution}EOF" if turn == 0 else "git diff --stat"
            function = {"name": "exec_command", "arguments": json.dumps({"cmd": line})}
            said["tool_calls"] = [
                {"id": f"call_{turn}", "type": "function", "function": function}
            ]
        reason = "tool_calls" if request.tools.value else "stop"
        return ChatReply(Message(said), reason, usage, cost_usd=0.001)

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def solver() -> Iterator[str]:
    """The address of a server that knows the solutions and requires a key."""
    script = str(BENCH / "solutions.toml")
    with serve_apart(
        "serve-models", "--quiet", "--script", script, ASSAY_SERVE_MODELS_KEY=KEY
    ) as program:
        yield read_line(program).removesuffix("/v1")


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of agents; `$ASSAY_TEST_AGENTS` names one that outlives the tests."""
    kept = os.environ.get("ASSAY_TEST_AGENTS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("cache")
    yield folder
    if not kept:
        shutil.rmtree(folder)  # one gigabyte


@pytest.fixture
def install(agents: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(agents))

    def installed(name: str) -> None:
        if name not in PROGRAMS or find_installed_agent(name) is not None:
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
    folder: Path,
    agent: str,
    model: ChatModel | str,
    task: str = "fix-bookings",
    **keys: Any,
) -> BenchResult:
    """Run a benchmark of one task; `model` is a model in this process, or a name."""
    name = model if isinstance(model, str) else model.name
    prepared = str(BENCH / "tasks" / task)
    told = {"prepared_dir": prepared, "agent": agent, "model": name, **keys}
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in told.items())
    config = folder / "bench.toml"
    config.write_text(f'name = "real"\n[[tasks]]\n{lines}\n', "utf-8")
    return bench_run(
        config,
        models={} if isinstance(model, str) else {name: model},
        data_dir=folder / "data",
        database=folder / "t.duckdb",
    )


@pytest.mark.parametrize("agent", [*PROGRAMS, "react-coder"])
@pytest.mark.parametrize(
    ("sandbox", "task"),
    [
        pytest.param("bubblewrap", "fix-bookings", marks=pytest.mark.bench),
        pytest.param("bubblewrap", "split-bill", marks=pytest.mark.bench),
        pytest.param("docker", "fix-bookings", marks=pytest.mark.docker),
        pytest.param("docker", "split-bill", marks=pytest.mark.docker),
        pytest.param("modal", "fix-bookings", marks=pytest.mark.docker),
    ],
)
def test_agent_solves_a_task_offline_with_a_scripted_model(
    task: str,
    agent: str,
    sandbox: str,
    install: Any,
    solver: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    usable(None if sandbox == "bubblewrap" else "docker")
    if sandbox == "modal":
        request.getfixturevalue("modal_service")
    install(agent)
    (tmp_path / "models.toml").write_text(ROWS.format(f"{solver}/v1"), "utf-8")
    monkeypatch.setenv("ASSAY_MODELS", str(tmp_path / "models.toml"))
    monkeypatch.setenv("SOLVER_API_KEY", KEY)
    allowed = {"Authorization": f"Bearer {KEY}"}
    assert ask(solver, "/stats/reset", {}, headers=allowed).status == 200
    ended = run(tmp_path, agent, "solver", task, timeout=120, sandbox=sandbox)
    served = ask(solver, "/stats", headers=allowed).json
    (trial,) = ended.manifest.results
    log = (Path(trial.run_dir) / "logs" / "agent.log").read_text("utf-8", errors="replace")
    assert (trial.outcome, trial.agent_stop, trial.score) == ("solved", "completed", 1.0), log
    # Proxy and server counts are equal: no call bypassed the proxy.
    assert trial.tokens == {kind: served[f"{kind}_tokens"] for kind in trial.tokens}
    assert trial.tokens["cached"] > 0
    assert trial.model_calls == served["calls"] == served["outcomes"]["answered"]
    fresh = served["prompt_tokens"] - served["cached_tokens"]
    dollars = fresh + 0.5 * served["cached_tokens"] + 10 * served["completion_tokens"]
    assert trial.cost_usd == pytest.approx(dollars / 1e6)
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
def test_limit_stops_a_real_agent(
    keys: dict[str, Any], outcome: str, install: Any, tmp_path: Path
) -> None:
    install("codex")
    model = Forever()
    (trial,) = run(tmp_path, "codex", model, timeout=60, **keys).manifest.results
    # Its files are graded, and the code was already fixed.
    assert (trial.agent_stop, trial.score) == (outcome, 1.0)
    assert len(model.requests) == 3
    assert trial.seconds["agent"] < 30


@pytest.mark.bench
@pytest.mark.parametrize("share", [1, 2], ids=["right", "wrong"])
def test_different_token_count_of_the_agent_is_a_finding(
    share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    (trial,) = run(tmp_path, "codex", Forever(), timeout=60).manifest.results
    findings = dict(trial.findings)
    if share == 1:
        assert "token_count_differs" not in findings
    else:
        detail = "codex counts prompt 2000 instead of 1000 tokens"
        assert findings["token_count_differs"] == detail
    assert trial.tokens["prompt"] == 1000
