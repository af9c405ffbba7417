"""Which coding agents there are, by name."""

from collections.abc import Mapping
from typing import Final

from assay.bench.base import Coder
from assay.bench.coders.installation import PROGRAMS, installed_agent
from assay.bench.coders.programs import (
    ClaudeCode,
    Codex,
    MiniSweAgent,
    ProgramCoder,
    ProgramKind,
)
from assay.bench.coders.react import ReactCoder
from assay.bench.coders.scripted import CHEATS, CheatCoder, CommandCoder, NopCoder, OracleCoder
from assay.core.text import unknown_name
from assay.errors import UsageError

AGENTS: Final[Mapping[str, str]] = {
    "react-coder": "a model of 'assay models' with shell and edit tools",
    "command": "a command line of yours, given as the key command",
    "oracle": "applies the reference solution of the task",
    "nop": "does nothing",
    **{name: source.about for name, source in PROGRAMS.items()},
    **{f"cheat/{name}": f"an attack: tries to {cheat.tries}" for name, cheat in CHEATS.items()},
}
"""The agents, and what each does."""
_KINDS: Final[Mapping[str, type[ProgramKind]]] = {
    "codex": Codex,
    "claude-code": ClaudeCode,
    "mini-swe-agent": MiniSweAgent,
}


def default_agent() -> str:
    """Who works on tasks that name nobody: codex where it is installed, else react-coder."""
    return "react-coder" if installed_agent("codex") is None else "codex"


def make_coder(name: str, command: str | None = None) -> Coder:
    """The coding agent of a name.

    Args:
        name: The agent.
        command: What the agent `command` runs.
    """
    match name:
        case "react-coder":
            return ReactCoder()
        case "command":
            assert command is not None, "the configuration asks for it"
            return CommandCoder(command)
        case "oracle":
            return OracleCoder()
        case "nop":
            return NopCoder()
        case _ if name in _KINDS:
            agent = installed_agent(name)
            if agent is None:
                raise UsageError(
                    f"agent {name!r} is not installed; 'assay bench agents install {name}' "
                    "does it"
                )
            return ProgramCoder(agent, _KINDS[name]())
        case _ if name in AGENTS:
            return CheatCoder(name)
    raise UsageError(unknown_name("agent", name, AGENTS))
