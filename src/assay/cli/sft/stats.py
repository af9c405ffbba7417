"""`assay sft stats`: what is in a data file."""

from pathlib import Path

from assay._util.text import counted
from assay.cli.output import Show, say, say_json
from assay.cli.sft.words import length_lines
from assay.cli.traces.counting import counting

__all__ = ["stats"]

_MOST = 12
_BAR = 40


def stats(file: Path, /, *, show: Show = Show()) -> int:
    """Say what is in a data file: rows, tokens, actions, worlds and rewards.

    For example:

        assay sft stats data.jsonl

    Args:
        file: A data file of any format that 'assay sft filter' writes.
        show: What to print.
    """
    from assay import api

    with counting(show, "reading rows") as progress:
        report, lineage, rewards = api.sft_stats(file, progress=progress)
    about = lineage or {}
    if show.json:
        lengths = report.lengths
        say_json(
            {
                "file": str(file),
                "rows": report.rows,
                "formats": dict(report.forms),
                "tokens": None if lengths is None else lengths.total,
                "trained_tokens": None if lengths is None else lengths.trained,
                "estimated": report.tokenizer is None,
                "actions": dict(report.actions),
                "rewards": rewards,
                "worlds": about.get("worlds"),
                "experiments": about.get("experiments"),
            }
        )
        return 0
    left = about.get("left", {})
    of = f" of {counted(left['episodes'], 'episode')}" if left else ""
    say(f"{counted(report.rows, 'row')}{of} in {file}, format {', '.join(report.forms)}")
    for split, worlds in about.get("worlds", {}).items():
        seeds = ", ".join(str(seed) for _, seed in worlds[:_MOST])
        more = ", …" if len(worlds) > _MOST else ""
        say(f"{split}: {counted(len(worlds), 'world')}, seeds {seeds}{more}")
    if rewards is not None:
        say("reward of a row's turns: {:g} to {:g}, on average {:.3g}".format(*_swap(rewards)))
    for line in length_lines(report):
        say(line)
    actions = {name or "(none)": count for name, count in report.actions.items()}
    if actions:
        say("first action of the answers:")
        most = max(actions.values())
        width = max(map(len, [*actions][:_MOST]))
        for name, count in [*actions.items()][:_MOST]:
            say(f"  {name:<{width}}  {count:>8,}  {'█' * max(1, round(_BAR * count / most))}")
    if lineage is None:
        say("no manifest is beside it, so worlds and rewards are not known")
    return 0


def _swap(rewards: tuple[float, float, float]) -> tuple[float, float, float]:
    least, mean, most = rewards
    return least, most, mean
