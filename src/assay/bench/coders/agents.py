"""Registry of coding agents by name."""

from collections.abc import Mapping
from typing import Final

from assay.bench.base import CodingAgent
from assay.bench.coders.installation import PROGRAMS, find_installed_agent
from assay.bench.coders.programs import (
    ClaudeCode,
    Codex,
    MiniSweAgent,
    ProgramAgent,
    ProgramKind,
    PythonAgent,
)
from assay.bench.coders.react import ReactCoder
from assay.bench.coders.scripted import CHEATS, CheatAgent, CommandAgent, NopAgent, OracleAgent
from assay.core.text import unknown_name
from assay.core.user_code import parse_object_spec
from assay.errors import UsageError

AGENTS: Final[Mapping[str, str]] = {
    "react-coder": "a model of 'assay models' with shell and edit tools",
    "command": "a command line of yours, given as the key command",
    "oracle": "applies the reference solution of the task",
    "nop": "does nothing",
    **{name: source.about for name, source in PROGRAMS.items()},
    **{f"cheat/{name}": f"an attack: tries to {cheat.goal}" for name, cheat in CHEATS.items()},
}
"""Descriptions of the agents, by name."""
_PROGRAM_KINDS: Final[Mapping[str, type[ProgramKind]]] = {
    "codex": Codex,
    "claude-code": ClaudeCode,
    "mini-swe-agent": MiniSweAgent,
}


def make_coding_agent(
    name: str, command: str | None = None, *, sha: str | None = None
) -> CodingAgent:
    """Create the coding agent registered under a name.

    Args:
        name: The agent, or a class in a file, such as my_agent.py:MyAgent.
        command: Command line of the agent `command`.
        sha: Required hash of the agent's file, if it is in one.
    """
    match name:
        case "react-coder":
            return ReactCoder()
        case "command":
            assert command is not None, "the configuration asks for it"
            return CommandAgent(command)
        case "oracle":
            return OracleAgent()
        case "nop":
            return NopAgent()
        case _ if name in _PROGRAM_KINDS:
            agent = find_installed_agent(name)
            if agent is None:
                raise UsageError(
                    f"agent {name!r} is not installed; install it with "
                    f"'assay bench agents install {name}'"
                )
            return ProgramAgent(name, _PROGRAM_KINDS[name](), agent)
        case _ if name in AGENTS:
            return CheatAgent(name)
    if (spec := parse_object_spec(name)) is not None:
        return ProgramAgent(name, PythonAgent(spec, sha))
    known = [*AGENTS, "a class in a file, my_agent.py:MyAgent"]
    raise UsageError(unknown_name("agent", name, known))
