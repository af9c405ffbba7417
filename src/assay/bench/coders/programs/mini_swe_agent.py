"""mini-swe-agent: speaks chat, writes its trajectory to a file."""

import json
from typing import Any, Final

from assay.bench.proxy import AgentProgram
from assay.bench.sandboxes.base import Command
from assay.bench.seams import CodingJob
from assay.types import Usage

from .coder import AgentReport

__all__ = ["MiniSweAgent"]

_TRAJECTORY: Final = "/tmp/home/trajectory.json"


class MiniSweAgent:
    """How it is started, and what it says."""

    def program(self, job: CodingJob, binary: str) -> AgentProgram:
        """With no limit of its own but that of turns: the rest is held outside."""
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
                # It insists on a key; the proxy looks at none.
                "OPENAI_API_KEY": "none",
            },
        )

    async def report(self, job: CodingJob, output: bytes) -> AgentReport:
        """What it submitted, and the tokens that its replies told it."""
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
