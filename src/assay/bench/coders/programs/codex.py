"""codex: speaks responses, prints one JSON object a line."""

import json
from collections.abc import Iterator
from typing import Any, Final

from assay.bench.proxy import AgentProgram
from assay.bench.seams import CodingJob
from assay.types import Usage

from .coder import AgentReport

__all__ = ["Codex", "json_lines"]

_HOME: Final = "/tmp/home/.codex"
_MODEL: Final = "assay-model"
"""A name that it does not know, so that every model is offered the same tools."""
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
    """How it is started, and what it says."""

    def program(self, job: CodingJob, binary: str) -> AgentProgram:
        """It may do all that the sandbox allows; its own sandbox is off."""
        return AgentProgram(
            argv=(
                binary,
                *("exec", "--json", "--skip-git-repo-check", "--ephemeral"),
                *("--dangerously-bypass-approvals-and-sandbox", "-m", _MODEL, "-"),
            ),
            # It insists on a key; the proxy looks at none.
            environment={"CODEX_HOME": _HOME, "ASSAY_PROXY": "none"},
            files={f"{_HOME}/config.toml": _CONFIG},
            stdin=job.task.instructions,
        )

    async def report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Its last message, or its error, and the tokens of all turns."""
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
    """The objects among the lines of an output; other lines are left out."""
    for line in output.splitlines():
        if not line.startswith(b"{"):
            continue
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
