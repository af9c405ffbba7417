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

from assay.bench.base import Coder, CoderEnd, CoderStop, CodingJob
from assay.sandboxes.base import REPOSITORY, Command, CommandEnd, TrialFinding
from assay.types import Encoded, Message

_LONGEST: Final = 12_000
"""Maximum number of characters of an output shown to the model."""
_COMMAND_S: Final = 300.0
"""Default and maximum time limit of a command, in seconds."""
_BLANKS: Final = 3
"""Number of consecutive replies without a tool call that end the work."""


def _tool(
    name: str, about: str, required: Mapping[str, str], **optional: Any
) -> dict[str, Any]:
    properties = {
        key: {"type": "string", "description": said} for key, said in required.items()
    }
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": about,
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
        _tool(
            "bash",
            "Run a command line in the repository. Each call is a new shell: files stay, "
            "background processes and variables do not.",
            {"command": "The command line."},
            timeout={
                "type": "number",
                "description": f"Seconds it may take, at most {_COMMAND_S:.0f}.",
            },
        ),
        _tool(
            "write",
            "Write a whole file; folders above it are made.",
            {"path": "From the repository.", "content": "All of it."},
        ),
        _tool(
            "edit",
            "Replace a text that stands in a file exactly once.",
            {
                "path": "From the repository.",
                "old": "The text.",
                "new": "What takes its place.",
            },
        ),
        _tool("submit", "Say that the task is done.", {"notes": "What you changed, and why."}),
    ]
)

_SYSTEM: Final = """\
You are a software engineer. You work alone on one task, in {place}.
Look at the code before you change it, make the smallest change that does all that is asked, \
and check it by running it. Hidden tests will judge {judged}, not your words.
Nobody answers questions. When the task is done, call submit."""


def _system(workdir: str) -> str:
    if workdir == REPOSITORY:
        place, judged = f"a git repository at {REPOSITORY}", "the files of the repository"
    else:
        place, judged = f"a machine of your own, in the folder {workdir}", "the files you leave"
    return _SYSTEM.format(place=place, judged=judged)


class ReactCoder(Coder):
    """Runs a model with tools until it submits or a limit is reached."""

    name = "react-coder"
    needs_model = True

    async def work(self, job: CodingJob) -> CoderEnd:
        """Call the model and run its tool calls in a loop."""
        return await _Session(job).work()


class _Session:
    def __init__(self, job: CodingJob) -> None:
        self._job = job
        self._until = time.monotonic() + job.timeout_s
        self._log: list[bytes] = []
        self._cpu_s = self._peak_mb = 0.0
        self._findings: dict[str, TrialFinding] = {}
        self._notes = ""
        self._submitted = False

    async def work(self) -> CoderEnd:
        job = self._job
        messages = [
            Message({"role": "system", "content": _system(job.workdir)}),
            Message({"role": "user", "content": job.task.instructions}),
        ]
        blanks = 0
        for _ in range(job.max_turns):
            if self._left_s <= 0:
                return self._end(CoderStop.TIME_LIMIT)
            if (limit := job.spent()) is not None:
                return self._end(limit)
            reply = await self._asked(messages)
            if reply is None:
                return self._end(CoderStop.TIME_LIMIT)
            messages.append(reply)
            self._notes = reply.text or self._notes
            calls = reply.value.get("tool_calls") or []
            for call in calls:
                said = await self._called(call)
                messages.append(
                    Message({"role": "tool", "tool_call_id": call.get("id"), "content": said})
                )
            if self._submitted:
                return self._end(CoderStop.COMPLETED)
            blanks = 0 if calls else blanks + 1
            if blanks == _BLANKS:
                return self._end(CoderStop.COMPLETED)
            if not calls:
                messages.append(
                    Message(
                        {"role": "user", "content": "Call a tool; submit when you are done."}
                    )
                )
        return self._end(CoderStop.TURN_LIMIT)

    async def _asked(self, messages: list[Message]) -> Message | None:
        """Return the model's reply; None if the time limit is reached first."""
        assert self._job.ask is not None, "this agent needs a model"
        scope = asyncio.timeout(self._left_s)
        try:
            async with scope:
                return (await self._job.ask(messages, TOOLS)).message
        except TimeoutError:
            if not scope.expired():
                raise
            return None

    @property
    def _left_s(self) -> float:
        return self._until - time.monotonic()

    async def _called(self, call: Mapping[str, Any]) -> str:
        """Run one tool call; return its result for the model."""
        function = call.get("function") or {}
        name = str(function.get("name"))
        try:
            given = json.loads(function.get("arguments") or "{}")
        except ValueError as error:
            return f"error: the arguments are not valid JSON: {error}"
        tools = {"bash": self._bash, "write": self._write, "edit": self._edit}
        if name == "submit":
            self._submitted = True
            self._notes = str(given.get("notes", "")) if isinstance(given, dict) else ""
            await self._job.acted("submit", "")
            return "submitted"
        if name not in tools:
            return f"error: there is no tool {name!r}; call bash, write, edit or submit"
        if not isinstance(given, dict):
            return "error: the arguments are not an object"
        try:
            return await tools[name](given)
        except KeyError as error:
            return f"error: {name} needs the argument {error}"

    async def _bash(self, given: Mapping[str, Any]) -> str:
        command = str(given["command"])
        asked = given.get("timeout")
        limit = float(asked) if isinstance(asked, (int, float)) and asked > 0 else _COMMAND_S
        end = await self._run(command, timeout_s=min(limit, _COMMAND_S))
        await self._job.acted(f"bash {command}", "")
        output = _shortened(end.output.decode(errors="replace"))
        how = "timed out" if end.timed_out else f"exit code {end.exit_code}"
        return f"{output}\n[{how}]" if output else f"[{how}]"

    async def _write(self, given: Mapping[str, Any]) -> str:
        return await self._store(str(given["path"]), str(given["content"]))

    async def _edit(self, given: Mapping[str, Any]) -> str:
        path, old, new = (str(given[key]) for key in ("path", "old", "new"))
        end = await self._run(f"cat -- {shlex.quote(path)}")
        if end.exit_code != 0:
            return f"error: {end.output.decode(errors='replace').strip()}"
        if any(finding.name == "output_cut" for finding in end.findings):
            return f"error: {path} is too long for edit; change it with bash"
        content = end.output.decode(errors="surrogateescape")
        times = content.count(old)
        if times != 1 or not old:
            return (
                f"error: the text stands in {path} {times} times; give one that is there once"
            )
        return await self._store(path, content.replace(old, new))

    async def _store(self, path: str, content: str) -> str:
        quoted = shlex.quote(path)
        line = f'mkdir -p -- "$(dirname -- {quoted})" && cat > {quoted}'
        end = await self._run(line, stdin=content.encode(errors="surrogateescape"))
        await self._job.acted(f"write {path}", "")
        if end.exit_code != 0:
            return f"error: {end.output.decode(errors='replace').strip()}"
        return f"wrote {path}"

    async def _run(
        self, line: str, *, stdin: bytes = b"", timeout_s: float = _COMMAND_S
    ) -> CommandEnd:
        end = await self._job.sandbox.run(
            Command(
                argv=("sh", "-c", line),
                timeout_s=max(0.1, min(timeout_s, self._left_s)),
                stdin=stdin,
            )
        )
        self._log += [f"$ {line}\n".encode(errors="replace"), end.output, b"\n"]
        self._cpu_s += end.cpu_s
        self._peak_mb = max(self._peak_mb, end.peak_memory_mb)
        self._findings |= {finding.name: finding for finding in end.findings}
        return end

    def _end(self, stop: CoderStop) -> CoderEnd:
        return CoderEnd(
            stop=stop,
            notes=self._notes,
            log=b"".join(self._log),
            cpu_s=self._cpu_s,
            peak_memory_mb=self._peak_mb,
            findings=tuple(self._findings.values()),
        )


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"
