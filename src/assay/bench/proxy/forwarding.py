"""How an agent of somebody else runs in a sandbox: below a forwarder that reaches its model.

The forwarder is a script of the standard library alone. It listens on a port of 127.0.0.1 in
the sandbox, sends all that comes there to the socket of the proxy, and starts the agent as its
child; its exit code is that of the agent.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from assay.bench.sandboxes.base import SHARED, Command, CommandEnd
from assay.bench.seams import CodingJob

from .serving import ModelProxy

__all__ = ["AgentProgram", "forwarded"]

_SOCKET: Final = "model.sock"
_GRACE_S: Final = 10.0
"""How long an agent may take to end when it gets no more answers."""
_SCRIPT: Final = Path(__file__).with_name("forwarder.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgram:
    """What is started in the sandbox; `@PORT@` stands for the port of the model."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Files to write first, by their paths in the sandbox."""
    stdin: str = ""


async def forwarded(
    job: CodingJob, proxy: ModelProxy, program: AgentProgram
) -> CommandEnd | None:
    """Run an agent to its end; None if it did not end when it got no more answers.

    Raises:
        Exception: The model could not be asked; whatever `ask` of the job raised.
    """
    assert job.shared is not None, "an agent with a proxy has a shared folder"
    plan = {**asdict(program), "socket": f"{SHARED}/{_SOCKET}"}
    (job.shared / "plan.json").write_text(json.dumps(plan), "utf-8")
    (job.shared / "forwarder.py").write_bytes(_SCRIPT.read_bytes())
    command = Command(
        argv=(job.python, "-I", f"{SHARED}/forwarder.py", f"{SHARED}/plan.json"),
        timeout_s=job.timeout_s,
    )
    async with proxy.serving(job.shared / _SOCKET):
        running = asyncio.ensure_future(job.sandbox.run(command))
        stopped = asyncio.ensure_future(proxy.stopped.wait())
        try:
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await asyncio.wait({running}, timeout=_GRACE_S)
        finally:
            ended = running.done()
            for task in (running, stopped):
                task.cancel()
            await asyncio.wait({running, stopped})
    if proxy.error is not None:
        raise proxy.error
    return running.result() if ended else None
