"""Which coding agents there are, by name."""

from collections.abc import Mapping
from typing import Final

from assay._util.names import unknown_name
from assay.bench.seams import Coder
from assay.errors import UsageError

from .cheats import CHEATS, CheatCoder
from .command import CommandCoder
from .oracle import NopCoder, OracleCoder
from .programs import PROGRAMS, ProgramCoder, installed_agent
from .programs.claude_code import ClaudeCode
from .programs.coder import ProgramKind
from .programs.codex import Codex
from .programs.mini_swe_agent import MiniSweAgent
from .react import ReactCoder

__all__ = ["AGENTS", "default_agent", "make_coder"]

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
