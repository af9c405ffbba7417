"""Coding agents that are programs: they run in the sandbox and call a model through a proxy.

claude-code uses the Messages protocol and prints JSON lines. codex uses the Responses protocol
and prints JSON lines. mini-swe-agent uses the Chat Completions protocol and writes its
trajectory to a file. A class in the user's file, such as `my_agent.py:MyAgent`, is data on this
machine: it is parsed, hashed and copied to the folder shared with the sandbox, but never
imported. The Python of the sandbox runs it there.
"""

import ast
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from assay.bench.base import AgentResult, AgentStop, CodingAgent, CodingJob
from assay.bench.coders.installation import InstalledAgent
from assay.bench.coders.proxy import AgentProgram, ModelProxy, run_with_proxy
from assay.bench.coders.scripted import make_agent_result
from assay.core.canonical_json import content_hash
from assay.core.user_code import ObjectSpec
from assay.errors import UsageError
from assay.sandboxes.base import PROGRAM, SHARED, Command, TrialFinding
from assay.types import Usage

_MAX_NOTES_LENGTH: Final = 4000
"""Number of final characters of the output that replace a missing last message."""


class AgentReport(NamedTuple):
    """Notes and token counts that a program reports."""

    notes: str = ""
    """Its last message, or the reason why it failed."""
    usage: Usage | None = None
    """Its own token counts, if any; some programs do not report `reasoning` and `cached`."""


class ProgramKind(Protocol):
    """Interface of the supported programs."""

    def make_program(self, job: CodingJob, binary: str) -> AgentProgram:
        """Return how it is started; `binary` is its path in the sandbox, if it is installed."""
        ...

    async def read_report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Return its report after it has ended; the sandbox is still open."""
        ...


class ProgramAgent(CodingAgent):
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

    async def work(self, job: CodingJob) -> AgentResult:
        """Start the program, and wait until it ends or a limit is used up."""
        proxy = ModelProxy(job)
        program = self._kind.make_program(job, self._binary)
        end = await run_with_proxy(job, proxy, program)
        if end is None:
            return AgentResult(stop=proxy.stop or AgentStop.FAILED)
        report = await self._kind.read_report(job, end.output)
        output = end.output.decode(errors="replace")
        result = make_agent_result(end, notes=report.notes or output[-_MAX_NOTES_LENGTH:])
        findings = [*end.findings, *_compare_usage(self.name, report.usage, proxy)]
        return replace(result, stop=proxy.stop or result.stop, findings=tuple(findings))


def _compare_usage(name: str, reported: Usage | None, proxy: ModelProxy) -> list[TrialFinding]:
    """Report differences between the agent's token counts and the proxy's."""
    if reported is None:
        return []
    counted = proxy.usage
    diffs = [
        f"{kind} {getattr(reported, kind)} instead of {getattr(counted, kind)}"
        for kind in ("prompt", "completion", "cached", "reasoning")
        if getattr(reported, kind) != getattr(counted, kind)
    ]
    if not diffs:
        return []
    return [TrialFinding("token_count_differs", f"{name} counts {', '.join(diffs)} tokens")]


_CODEX_HOME: Final = "/tmp/home/.codex"
_MODEL: Final = "assay-model"
"""A name that the programs do not know, so that every model is offered the same tools."""
_CODEX_CONFIG: Final = """\
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

    def make_program(self, job: CodingJob, binary: str) -> AgentProgram:
        """Return the command; the sandbox replaces Codex' own sandbox and approvals."""
        return AgentProgram(
            argv=(
                binary,
                *("exec", "--json", "--skip-git-repo-check", "--ephemeral"),
                *("--dangerously-bypass-approvals-and-sandbox", "-m", _MODEL, "-"),
            ),
            # It requires a key; the proxy ignores it.
            environment={"CODEX_HOME": _CODEX_HOME, "ASSAY_PROXY": "none"},
            files={f"{_CODEX_HOME}/config.toml": _CODEX_CONFIG},
            stdin=job.task.instructions,
        )

    async def read_report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Return its last message or its error, and the tokens of all turns."""
        notes, usage = "", None
        for event in parse_json_lines(output):
            match event:
                case {
                    "type": "item.completed",
                    "item": {"type": "agent_message", "text": text},
                }:
                    notes = str(text)
                case {"type": "turn.failed", "error": {"message": message}}:
                    notes = str(message)
                case {"type": "turn.completed", "usage": dict(tokens)}:
                    usage = (usage or Usage()) + _parse_codex_usage(tokens)
        return AgentReport(notes, usage)


def _parse_codex_usage(tokens: dict[str, Any]) -> Usage:
    return Usage(
        prompt=int(tokens.get("input_tokens", 0)),
        completion=int(tokens.get("output_tokens", 0)),
        cached=int(tokens.get("cached_input_tokens", 0)),
        reasoning=int(tokens.get("reasoning_output_tokens", 0)),
    )


def parse_json_lines(output: bytes) -> Iterator[dict[str, Any]]:
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

    def make_program(self, job: CodingJob, binary: str) -> AgentProgram:
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

    async def read_report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Return its result and its token counts."""
        for event in parse_json_lines(output):
            match event:
                case {"type": "result", "usage": dict(tokens)}:
                    read = int(tokens.get("cache_read_input_tokens") or 0)
                    written = int(tokens.get("cache_creation_input_tokens") or 0)
                    usage = Usage(
                        prompt=int(tokens.get("input_tokens") or 0) + read + written,
                        completion=int(tokens.get("output_tokens") or 0),
                        cached=read,
                    )
                    return AgentReport(str(event.get("result", "")), usage)
        return AgentReport()


_TRAJECTORY: Final = "/tmp/home/trajectory.json"


class MiniSweAgent:
    """The mini-swe-agent of the authors of SWE-bench."""

    def make_program(self, job: CodingJob, binary: str) -> AgentProgram:
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

    async def read_report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Return its submission and the token counts of its replies."""
        end = await job.sandbox.run(Command(argv=("cat", _TRAJECTORY), timeout_s=30.0))
        try:
            record = json.loads(end.output)
            usages = [
                usage
                for message in record["messages"]
                if (usage := _parse_response_usage(message)) is not None
            ]
            notes = str(record["info"].get("submission") or record["info"].get("exit_status"))
        except (ValueError, LookupError, TypeError, AttributeError):
            return AgentReport()
        return AgentReport(notes, sum(usages, Usage()))


def _parse_response_usage(message: dict[str, Any]) -> Usage | None:
    tokens = ((message.get("extra") or {}).get("response") or {}).get("usage")
    if not isinstance(tokens, dict):
        return None
    prompt = tokens.get("prompt_tokens_details") or {}
    completion = tokens.get("completion_tokens_details") or {}
    return Usage(
        prompt=int(tokens.get("prompt_tokens") or 0),
        completion=int(tokens.get("completion_tokens") or 0),
        cached=int(prompt.get("cached_tokens") or 0),
        reasoning=int(completion.get("reasoning_tokens") or 0),
    )


_RUNNER: Final = Path(__file__).with_name("run_agent.py")


def read_agent_file(spec: ObjectSpec) -> bytes:
    """Return the source of a coding agent, without importing it.

    Raises:
        UsageError: The file cannot be read, is not Python, or has no such class.
    """
    path, name = spec
    try:
        source = path.read_bytes()
        body = ast.parse(source, str(path)).body
    except OSError as error:
        raise UsageError(
            f"cannot read an agent from {str(path)!r}: {error.strerror or error}; give a "
            "Python file with a class, such as my_agent.py:MyAgent"
        ) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f"{path}{line}: not valid Python: {reason}") from error
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        available = f"; it has {', '.join(classes)}" if classes else ""
        raise UsageError(f"{path} has no class {name!r}{available}")
    methods = ast.FunctionDef | ast.AsyncFunctionDef
    if not classes[name].bases and not any(
        isinstance(node, methods) and node.name == "work" for node in classes[name].body
    ):
        raise UsageError(
            f"{path}: class {name!r} has no method work(self, instructions, workspace)"
        )
    return source


class PythonAgent:
    """Starts a class in a file."""

    def __init__(self, spec: ObjectSpec, sha: str | None = None) -> None:
        """Read the file; raise UsageError if it does not have this hash."""
        self._class, self._source = spec.name, read_agent_file(spec)
        if sha is not None and content_hash(self._source) != sha:
            raise UsageError(
                f"{spec.path} changed after the run started; restore it and resume, or "
                "start a new run with --fresh"
            )

    def make_program(self, job: CodingJob, binary: str) -> AgentProgram:
        """Copy the file to the shared folder, next to the script that runs it."""
        assert job.shared is not None, "an agent that runs inside has a shared folder"
        (job.shared / "agent.py").write_bytes(self._source)
        (job.shared / _RUNNER.name).write_bytes(_RUNNER.read_bytes())
        script = f"{SHARED}/{_RUNNER.name}"
        return AgentProgram(
            argv=(job.python, "-u", script, self._class, job.workdir),
            environment={
                "OPENAI_BASE_URL": "http://127.0.0.1:@PORT@/v1",
                # Client libraries require a key; the proxy ignores it.
                "OPENAI_API_KEY": "none",
            },
            stdin=job.task.instructions,
        )

    async def read_report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Return an empty report; only the output is used."""
        return AgentReport()
