"""An agent for any chat model, with tools for the shell, for editing, and for submitting.

The model is called from outside the sandbox; only its tool calls run inside. Each command runs
in a new shell: files persist, processes and variables do not.
"""

import asyncio
import json
import shlex
import time
from collections.abc import Mapping
from typing import Any, Final

from assay.bench.base import AgentResult, AgentStop, CodingAgent, CodingJob
from assay.sandboxes.base import REPOSITORY, Command, CommandEnd, TrialFinding
from assay.types import Encoded, Message

_MAX_OUTPUT_LENGTH: Final = 12_000
"""Maximum number of characters of an output shown to the model."""
_MAX_COMMAND_S: Final = 300.0
"""Default and maximum time limit of a command, in seconds."""
_MAX_BLANK_REPLIES: Final = 3
"""Number of consecutive replies without a tool call that end the work."""


def _define_tool(
    name: str, description: str, required: Mapping[str, str], **optional: Any
) -> dict[str, Any]:
    properties = {
        key: {"type": "string", "description": text} for key, text in required.items()
    }
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {**properties, **optional},
                "required": [*required],
                "additionalProperties": False,
            },
        },
    }


TOOLS: Final = Encoded(
    [
        _define_tool(
            "bash",
            "Run a command line in the repository. Each call is a new shell: files stay, "
            "background processes and variables do not.",
            {"command": "The command line."},
            timeout={
                "type": "number",
                "description": f"Seconds it may take, at most {_MAX_COMMAND_S:.0f}.",
            },
        ),
        _define_tool(
            "write",
            "Write a whole file; folders above it are made.",
            {"path": "From the repository.", "content": "All of it."},
        ),
        _define_tool(
            "edit",
            "Replace a text that stands in a file exactly once.",
            {
                "path": "From the repository.",
                "old": "The text.",
                "new": "What takes its place.",
            },
        ),
        _define_tool(
            "submit", "Say that the task is done.", {"notes": "What you changed, and why."}
        ),
    ]
)

_SYSTEM_PROMPT: Final = """\
You are a software engineer. You work alone on one task, in {place}.
Look at the code before you change it, make the smallest change that does all that is asked, \
and check it by running it. Hidden tests will judge {judged}, not your words.
Nobody answers questions. When the task is done, call submit."""


def _format_system_prompt(workdir: str) -> str:
    if workdir == REPOSITORY:
        place, judged = f"a git repository at {REPOSITORY}", "the files of the repository"
    else:
        place, judged = f"a machine of your own, in the folder {workdir}", "the files you leave"
    return _SYSTEM_PROMPT.format(place=place, judged=judged)


class ReactCoder(CodingAgent):
    """Runs a model with tools until it submits or a limit is reached."""

    name = "react-coder"
    needs_model = True

    async def work(self, job: CodingJob) -> AgentResult:
        """Call the model and run its tool calls in a loop."""
        return await _Session(job).work()


class _Session:
    def __init__(self, job: CodingJob) -> None:
        self._job = job
        self._deadline = time.monotonic() + job.timeout_s
        self._log: list[bytes] = []
        self._cpu_s = self._peak_mb = 0.0
        self._findings: dict[str, TrialFinding] = {}
        self._notes = ""
        self._submitted = False

    async def work(self) -> AgentResult:
        job = self._job
        messages = [
            Message({"role": "system", "content": _format_system_prompt(job.workdir)}),
            Message({"role": "user", "content": job.task.instructions}),
        ]
        blanks = 0
        for _ in range(job.max_turns):
            if self._remaining_s <= 0:
                return self._make_result(AgentStop.TIME_LIMIT)
            if (limit := job.find_reached_limit()) is not None:
                return self._make_result(limit)
            reply = await self._call_model(messages)
            if reply is None:
                return self._make_result(AgentStop.TIME_LIMIT)
            messages.append(reply)
            self._notes = reply.text or self._notes
            calls = reply.value.get("tool_calls") or []
            for call in calls:
                output = await self._run_tool_call(call)
                messages.append(
                    Message({"role": "tool", "tool_call_id": call.get("id"), "content": output})
                )
            if self._submitted:
                return self._make_result(AgentStop.COMPLETED)
            blanks = 0 if calls else blanks + 1
            if blanks == _MAX_BLANK_REPLIES:
                return self._make_result(AgentStop.COMPLETED)
            if not calls:
                messages.append(
                    Message(
                        {"role": "user", "content": "Call a tool; submit when you are done."}
                    )
                )
        return self._make_result(AgentStop.TURN_LIMIT)

    async def _call_model(self, messages: list[Message]) -> Message | None:
        """Return the model's reply; None if the time limit is reached first."""
        assert self._job.call_model is not None, "this agent needs a model"
        scope = asyncio.timeout(self._remaining_s)
        try:
            async with scope:
                return (await self._job.call_model(messages, TOOLS)).message
        except TimeoutError:
            if not scope.expired():
                raise
            return None

    @property
    def _remaining_s(self) -> float:
        return self._deadline - time.monotonic()

    async def _run_tool_call(self, call: Mapping[str, Any]) -> str:
        """Run one tool call; return its result for the model."""
        function = call.get("function") or {}
        name = str(function.get("name"))
        try:
            arguments = json.loads(function.get("arguments") or "{}")
        except ValueError as error:
            return f"error: the arguments are not valid JSON: {error}"
        tools = {"bash": self._run_bash, "write": self._run_write, "edit": self._run_edit}
        if name == "submit":
            self._submitted = True
            self._notes = str(arguments.get("notes", "")) if isinstance(arguments, dict) else ""
            await self._job.record_action("submit", "")
            return "submitted"
        if name not in tools:
            return f"error: there is no tool {name!r}; call bash, write, edit or submit"
        if not isinstance(arguments, dict):
            return "error: the arguments are not an object"
        try:
            return await tools[name](arguments)
        except KeyError as error:
            return f"error: {name} needs the argument {error}"

    async def _run_bash(self, arguments: Mapping[str, Any]) -> str:
        command = str(arguments["command"])
        requested = arguments.get("timeout")
        limit = (
            float(requested)
            if isinstance(requested, (int, float)) and requested > 0
            else _MAX_COMMAND_S
        )
        end = await self._run_command(command, timeout_s=min(limit, _MAX_COMMAND_S))
        await self._job.record_action(f"bash {command}", "")
        output = _shorten(end.output.decode(errors="replace"))
        status = "timed out" if end.timed_out else f"exit code {end.exit_code}"
        return f"{output}\n[{status}]" if output else f"[{status}]"

    async def _run_write(self, arguments: Mapping[str, Any]) -> str:
        return await self._write_file(str(arguments["path"]), str(arguments["content"]))

    async def _run_edit(self, arguments: Mapping[str, Any]) -> str:
        path, old, new = (str(arguments[key]) for key in ("path", "old", "new"))
        end = await self._run_command(f"cat -- {shlex.quote(path)}")
        if end.exit_code != 0:
            return f"error: {end.output.decode(errors='replace').strip()}"
        if any(finding.name == "output_cut" for finding in end.findings):
            return f"error: {path} is too long for edit; change it with bash"
        content = end.output.decode(errors="surrogateescape")
        count = content.count(old)
        if count != 1 or not old:
            return (
                f"error: the text stands in {path} {count} times; give one that is there once"
            )
        return await self._write_file(path, content.replace(old, new))

    async def _write_file(self, path: str, content: str) -> str:
        quoted = shlex.quote(path)
        line = f'mkdir -p -- "$(dirname -- {quoted})" && cat > {quoted}'
        end = await self._run_command(line, stdin=content.encode(errors="surrogateescape"))
        await self._job.record_action(f"write {path}", "")
        if end.exit_code != 0:
            return f"error: {end.output.decode(errors='replace').strip()}"
        return f"wrote {path}"

    async def _run_command(
        self, line: str, *, stdin: bytes = b"", timeout_s: float = _MAX_COMMAND_S
    ) -> CommandEnd:
        end = await self._job.sandbox.run(
            Command(
                argv=("sh", "-c", line),
                timeout_s=max(0.1, min(timeout_s, self._remaining_s)),
                stdin=stdin,
            )
        )
        self._log += [f"$ {line}\n".encode(errors="replace"), end.output, b"\n"]
        self._cpu_s += end.cpu_s
        self._peak_mb = max(self._peak_mb, end.peak_memory_mb)
        self._findings |= {finding.name: finding for finding in end.findings}
        return end

    def _make_result(self, stop: AgentStop) -> AgentResult:
        return AgentResult(
            stop=stop,
            notes=self._notes,
            log=b"".join(self._log),
            cpu_s=self._cpu_s,
            peak_memory_mb=self._peak_mb,
            findings=tuple(self._findings.values()),
        )


def _shorten(text: str) -> str:
    if len(text) <= _MAX_OUTPUT_LENGTH:
        return text
    half = _MAX_OUTPUT_LENGTH // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"
