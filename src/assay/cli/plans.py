"""What is said of a plan that was registered."""

from typing import TYPE_CHECKING

from assay.cli.output import Show, say, say_json

if TYPE_CHECKING:
    from assay.api.training import RegisteredPlan

__all__ = ["say_registered"]


def say_registered(registered: "RegisteredPlan", show: Show) -> None:
    """Name the plan, and what of its metric the store had by then."""
    kept, first = registered
    if show.json:
        say_json(
            {
                "hash": kept.hash,
                "created_at": kept.created_at.isoformat(),
                "registered": first,
                "seen": list(kept.seen),
                "plan": dict(kept.plan),
            }
        )
        return
    when = f"{kept.created_at:%Y-%m-%d %H:%M:%S} UTC"
    say(f"plan {kept.hash} registered {when}" + ("" if first else ", before this"))
    if not show.quiet:
        say(f"{len(kept.seen)} {_WHAT[kept.plan.get('kind')]} then; what uses them says so")


_WHAT = {
    None: "runs with its metric were in the store",
    "comparison": "experiments had trials in the store",
}
