"""`assay bench agents`: who can work on tasks, and how agents of others are installed."""

import time
from dataclasses import asdict
from typing import Any

from cyclopts import App

from assay.cli.lists import say_prose
from assay.cli.output import Show, note, say, say_json

__all__ = ["agents", "install", "list_agents"]

agents = App(
    name="agents",
    help="""List the coding agents that a benchmark can name, or install one.

For example:

    assay bench agents
    assay bench agents install codex
""",
    help_format="plaintext",
)


@agents.default
def list_agents(*, show: Show = Show()) -> int:
    """List the coding agents that a benchmark can name.

    For example:

        assay bench agents

    Args:
        show: What to print.
    """
    from assay.bench.coders import AGENTS, PROGRAMS, default_agent, installed_agent

    default = default_agent()
    told: dict[str, dict[str, Any]] = {}
    for name, about in AGENTS.items():
        agent = installed_agent(name) if name in PROGRAMS else None
        told[name] = {
            "about": about,
            "default": name == default,
            "version": None if agent is None else agent.version,
            "sha256": None if agent is None else agent.sha256,
            "installed": name not in PROGRAMS or agent is not None,
        }
    if show.json:
        say_json(told)
        return 0
    width = max(map(len, AGENTS))
    for name, agent_told in told.items():
        notes = [agent_told["about"]]
        if agent_told["version"]:
            notes.append(f"{agent_told['version']} is installed")
        elif not agent_told["installed"]:
            notes.append(f"not installed: assay bench agents install {name}")
        if agent_told["default"]:
            notes.append("the default")
        say_prose(f"{name:<{width}}  {'; '.join(notes)}", indent=width + 2)
    return 0


@agents.command(name="install")
def install(agent: str, /, *, show: Show = Show()) -> int:
    """Install a coding agent below the cache folder, for every sandbox to use.

    Another version of it is replaced. Nothing is installed in a trial.

    For example:

        assay bench agents install codex@0.166.0

    Args:
        agent: Its name, or NAME@VERSION; the latest version without one.
        show: What to print.
    """
    from assay.bench.coders import install_agent

    name, _, version = agent.partition("@")
    if not (show.quiet or show.json):
        note(f"installing {agent}; this can take minutes")
    began = time.monotonic()
    installed = install_agent(name, version or None)
    if show.json:
        say_json({**asdict(installed), "folder": str(installed.folder)})
    elif not show.quiet:
        say(f"{installed.name} {installed.version} is installed, in {installed.folder}")
        say(f"sha256 {installed.sha256}, {time.monotonic() - began:.0f} s")
    return 0
