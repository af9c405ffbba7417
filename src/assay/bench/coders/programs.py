"""Coding agents that are programs: they run in the sandbox and call a model through a proxy.

claude-code uses the Messages protocol and prints JSON lines. codex uses the Responses protocol
and prints JSON lines. mini-swe-agent uses the Chat Completions protocol and writes its
trajectory to a file.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from assay.bench.base import Coder, CoderEnd, CoderStop, CodingJob
from assay.bench.coders.installation import InstalledAgent
from assay.bench.coders.scripted import ended_by
from assay.bench.proxy.server import AgentProgram, ModelProxy, forwarded
from assay.sandboxes.base import PROGRAM, Command, TrialFinding
from assay.types import Usage

_LAST: Final = 4000
"""Number of final characters of the output that replace a missing last message."""


class AgentReport(NamedTuple):
    """Notes and token counts that a program reports."""

    notes: str = ""
    """Its last message, or the reason why it failed."""
    usage: Usage | None = None
    """Its own token counts, if any; some programs do not report `reasoning` and `cached`."""


class ProgramKind(Protocol):
    """Interface of the supported programs."""

    def program(self, job: CodingJob, binary: str) -> AgentProgram:
        """Return how it is started; `binary` is its path in the sandbox, if it is installed."""
        ...

    async def report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Return its report after it has ended; the sandbox is still open."""
        ...


class ProgramCoder(Coder):
    """Runs a program until it ends, and counts its model calls."""

    needs_model = True
    runs_inside = True

    def __init__(
        self, name: str, kind: ProgramKind, installed: InstalledAgent | None = None
    ) -> None:
        self.name, self._kind, self._binary = name, kind, ""
        if installed is not None:
            self.program = installed.folder
            self._binary = f"{PROGRAM}/{installed.binary}"

    async def work(self, job: CodingJob) -> CoderEnd:
        """Start the program, and wait until it ends or a limit is used up."""
        proxy = ModelProxy(job)
        started = self._kind.program(job, self._binary)
        end = await forwarded(job, proxy, started)
        if end is None:
            return CoderEnd(stop=proxy.stop or CoderStop.FAILED)
        report = await self._kind.report(job, end.output)
        output = end.output.decode(errors="replace")
        coded = ended_by(end, notes=report.notes or output[-_LAST:])
        findings = [*end.findings, *_differences(self.name, report.usage, proxy)]
        return replace(coded, stop=proxy.stop or coded.stop, findings=tuple(findings))


def _differences(name: str, told: Usage | None, proxy: ModelProxy) -> list[TrialFinding]:
    """Report differences between the agent's token counts and the proxy's."""
    if told is None:
        return []
    ours = proxy.usage
    apart = [
        f"{kind} {getattr(told, kind)} instead of {getattr(ours, kind)}"
        for kind in ("prompt", "completion", "cached", "reasoning")
        if getattr(told, kind) != getattr(ours, kind)
    ]
    if not apart:
        return []
    return [TrialFinding("token_count_differs", f"{name} counts {', '.join(apart)} tokens")]


_CODEX_HOME: Final = "/tmp/home/.codex"
_MODEL: Final = "assay-model"
"""A name that the programs do not know, so that every model is offered the same tools."""
_CONFIG: Final = """\
model_provider = "assay"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false

[model_providers.assay]
name = "assay"
base_url = "http://127.0.0.1:@PORT@/v1"
env_key = "ASSAY_PROXY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


class Codex:
    """OpenAI's Codex."""

    def program(self, job: CodingJob, binary: str) -> AgentProgram:
        """Return the command; the sandbox replaces Codex' own sandbox and approvals."""
        return AgentProgram(
            argv=(
                binary,
                *("exec", "--json", "--skip-git-repo-check", "--ephemeral"),
                *("--dangerously-bypass-approvals-and-sandbox", "-m", _MODEL, "-"),
            ),
            # It requires a key; the proxy ignores it.
            environment={"CODEX_HOME": _CODEX_HOME, "ASSAY_PROXY": "none"},
            files={f"{_CODEX_HOME}/config.toml": _CONFIG},
            stdin=job.task.instructions,
        )

    async def report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Return its last message or its error, and the tokens of all turns."""
        notes, usage = "", None
        for event in json_lines(output):
            match event:
                case {
                    "type": "item.completed",
                    "item": {"type": "agent_message", "text": text},
                }:
                    notes = str(text)
                case {"type": "turn.failed", "error": {"message": message}}:
                    notes = str(message)
                case {"type": "turn.completed", "usage": dict(told)}:
                    usage = (usage or Usage()) + _usage(told)
        return AgentReport(notes, usage)


def _usage(told: dict[str, Any]) -> Usage:
    return Usage(
        prompt=int(told.get("input_tokens", 0)),
        completion=int(told.get("output_tokens", 0)),
        cached=int(told.get("cached_input_tokens", 0)),
        reasoning=int(told.get("reasoning_output_tokens", 0)),
    )


def json_lines(output: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in an output, one per line; skip other lines."""
    for line in output.splitlines():
        if not line.startswith(b"{"):
            continue
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


_CLAUDE_HOME: Final = "/tmp/home/.claude"


class ClaudeCode:
    """Anthropic's Claude Code."""

    def program(self, job: CodingJob, binary: str) -> AgentProgram:
        """Return the command; permissions are skipped, because the sandbox restricts it."""
        return AgentProgram(
            argv=(
                *(binary, "-p", "--output-format", "stream-json", "--verbose"),
                *("--dangerously-skip-permissions", "--model", _MODEL),
            ),
            environment={
                "ANTHROPIC_BASE_URL": "http://127.0.0.1:@PORT@",
                # It requires a key; the proxy ignores it.
                "ANTHROPIC_API_KEY": "none",
                "ANTHROPIC_SMALL_FAST_MODEL": _MODEL,
                "CLAUDE_CONFIG_DIR": _CLAUDE_HOME,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CODE_MAX_RETRIES": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
            stdin=job.task.instructions,
        )

    async def report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Return its result and its token counts."""
        for event in json_lines(output):
            match event:
                case {"type": "result", "usage": dict(told)}:
                    read = int(told.get("cache_read_input_tokens") or 0)
                    written = int(told.get("cache_creation_input_tokens") or 0)
                    usage = Usage(
                        prompt=int(told.get("input_tokens") or 0) + read + written,
                        completion=int(told.get("output_tokens") or 0),
                        cached=read,
                    )
                    return AgentReport(str(event.get("result", "")), usage)
        return AgentReport()


_TRAJECTORY: Final = "/tmp/home/trajectory.json"


class MiniSweAgent:
    """The mini-swe-agent of the authors of SWE-bench."""

    def program(self, job: CodingJob, binary: str) -> AgentProgram:
        """Return the command; it enforces only the turn limit, the proxy the others."""
        settings = (
            "mini.yaml",
            "model.model_kwargs.api_base=http://127.0.0.1:@PORT@/v1",
            f"agent.step_limit={job.max_turns}",
        )
        return AgentProgram(
            argv=(
                *(binary, "-m", "minisweagent.run.mini", "-m", "openai/assay-model"),
                *("-t", job.task.instructions, "-y", "--exit-immediately", "-o", _TRAJECTORY),
                *(word for setting in settings for word in ("-c", setting)),
            ),
            environment={
                "MSWEA_CONFIGURED": "true",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "MSWEA_SILENT_STARTUP": "1",
                "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                # It requires a key; the proxy ignores it.
                "OPENAI_API_KEY": "none",
            },
        )

    async def report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Return its submission and the token counts of its replies."""
        end = await job.sandbox.run(Command(argv=("cat", _TRAJECTORY), timeout_s=30.0))
        try:
            told = json.loads(end.output)
            usages = [
                usage
                for message in told["messages"]
                if (usage := _usage_told(message)) is not None
            ]
            notes = str(told["info"].get("submission") or told["info"].get("exit_status"))
        except (ValueError, LookupError, TypeError, AttributeError):
            return AgentReport()
        return AgentReport(notes, sum(usages, Usage()))


def _usage_told(message: dict[str, Any]) -> Usage | None:
    told = ((message.get("extra") or {}).get("response") or {}).get("usage")
    if not isinstance(told, dict):
        return None
    prompt = told.get("prompt_tokens_details") or {}
    completion = told.get("completion_tokens_details") or {}
    return Usage(
        prompt=int(told.get("prompt_tokens") or 0),
        completion=int(told.get("completion_tokens") or 0),
        cached=int(prompt.get("cached_tokens") or 0),
        reasoning=int(completion.get("reasoning_tokens") or 0),
    )
