"""`assay bench agents`: who can work on tasks, and how agents of others are installed."""

import time
from dataclasses import asdict

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
    from assay import api

    told = api.bench_agents()
    if show.json:
        say_json({name: agent._asdict() for name, agent in told.items()})
        return 0
    width = max(map(len, told))
    for name, agent in told.items():
        notes = [agent.about]
        if agent.version:
            notes.append(f"{agent.version} is installed")
        elif not agent.installed:
            notes.append(f"not installed: assay bench agents install {name}")
        if agent.default:
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
    from assay import api

    name, _, version = agent.partition("@")
    if not (show.quiet or show.json):
        note(f"installing {agent}; this can take minutes")
    began = time.monotonic()
    installed = api.bench_install_agent(name, version or None)
    if show.json:
        say_json({**asdict(installed), "folder": str(installed.folder)})
    elif not show.quiet:
        say(f"{installed.name} {installed.version} is installed, in {installed.folder}")
        say(f"sha256 {installed.sha256}, {time.monotonic() - began:.0f} s")
    return 0
