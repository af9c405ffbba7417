"""claude-code: speaks messages, prints one JSON object a line."""

from typing import Final

from assay.bench.proxy import AgentProgram
from assay.bench.seams import CodingJob
from assay.types import Usage

from .coder import AgentReport
from .codex import json_lines

__all__ = ["ClaudeCode"]

_HOME: Final = "/tmp/home/.claude"
_MODEL: Final = "assay-model"


class ClaudeCode:
    """How it is started, and what it says."""

    def program(self, job: CodingJob, binary: str) -> AgentProgram:
        """It may do all that the sandbox allows: nobody is there to be asked."""
        return AgentProgram(
            argv=(
                *(binary, "-p", "--output-format", "stream-json", "--verbose"),
                *("--dangerously-skip-permissions", "--model", _MODEL),
            ),
            environment={
                "ANTHROPIC_BASE_URL": "http://127.0.0.1:@PORT@",
                # It insists on a key; the proxy looks at none.
                "ANTHROPIC_API_KEY": "none",
                "ANTHROPIC_SMALL_FAST_MODEL": _MODEL,
                "CLAUDE_CONFIG_DIR": _HOME,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CODE_MAX_RETRIES": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
            stdin=job.task.instructions,
        )

    async def report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Its result, and the tokens it counted."""
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
