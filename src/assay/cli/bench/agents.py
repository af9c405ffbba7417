"""`assay bench agents`: who can work on tasks."""

from assay.cli.output import Show, say, say_json

__all__ = ["agents"]


def agents(*, show: Show = Show()) -> int:
    """List the coding agents that a benchmark can name.

    For example:

        assay bench agents

    Args:
        show: What to print.
    """
    from assay.bench.coders import AGENTS

    if show.json:
        say_json(dict(AGENTS))
        return 0
    width = max(map(len, AGENTS))
    for name, about in AGENTS.items():
        say(f"{name:<{width}}  {about}")
    return 0
