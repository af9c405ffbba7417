"""`python -m prove.expert`: how good the scripted expert is, over many whole episodes."""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.core.provenance import collect_provenance
from assay.crafter import ACHIEVEMENTS
from assay.stats.intervals import Interval, wilson
from assay.stats.score import crafter_score

from .episodes import PlayedEpisode, play_many

_RESAMPLES = 10_000
_EARLY = 1000
"""Number of steps in the tests."""
_HUMAN_SCORE, _HUMAN_ACHIEVEMENTS = 50.5, 14


def score_interval(success_N_A: NDArray[np.bool_]) -> Interval:
    """The score of N episodes and the percentile bootstrap over episodes."""
    episodes = len(success_N_A)
    random = np.random.Generator(np.random.PCG64(0))
    weights = random.multinomial(episodes, np.full(episodes, 1 / episodes), _RESAMPLES)
    scores = crafter_score(weights @ success_N_A / episodes)
    low, high = np.percentile(scores, [2.5, 97.5])
    return Interval(float(crafter_score(success_N_A.mean(axis=0))), float(low), float(high))


class Report(NamedTuple):
    """Results of a run."""

    command: str
    provenance: str
    seeds: tuple[int, int]
    """The first and the last."""
    max_steps: int
    rates: dict[str, Interval]
    median_steps: dict[str, float | None]
    """The step at which half of those who reached an achievement had it."""
    score: Interval
    achievements: float
    early: tuple[float, float]
    """Achievements within the first 1,000 steps: mean and standard deviation."""
    steps: float
    endings: dict[str, int]
    decision_microseconds: float
    seconds: float
    processes: int

    def passed(self) -> bool:
        """Whether the expert plays above human level."""
        return self.score.point > _HUMAN_SCORE and self.achievements >= _HUMAN_ACHIEVEMENTS


def build_report(
    played: Sequence[PlayedEpisode],
    command: str,
    max_steps: int,
    processes: int,
    seconds: float,
) -> Report:
    """Sum up episodes."""
    success_N_A = np.array(
        [[name in episode.unlocked for name in ACHIEVEMENTS] for episode in played]
    )
    came = {
        name: [episode.unlocked[name] for episode in played if name in episode.unlocked]
        for name in ACHIEVEMENTS
    }
    steps = sum(episode.steps for episode in played)
    seeds = [episode.seed for episode in played]
    return Report(
        command=command,
        provenance=str(collect_provenance()),
        seeds=(min(seeds), max(seeds)),
        max_steps=max_steps,
        rates={name: wilson(len(came[name]), len(played)) for name in ACHIEVEMENTS},
        median_steps={n: float(np.median(s)) if s else None for n, s in came.items()},
        score=score_interval(success_N_A),
        achievements=float(success_N_A.sum(axis=1).mean()),
        early=_count_early_unlocks(played),
        steps=steps / len(played),
        endings=dict(Counter(episode.ended for episode in played).most_common()),
        decision_microseconds=1e6 * sum(episode.seconds for episode in played) / steps,
        seconds=seconds,
        processes=processes,
    )


def _count_early_unlocks(played: Sequence[PlayedEpisode]) -> tuple[float, float]:
    counts = [sum(step <= _EARLY for step in episode.unlocked.values()) for episode in played]
    return float(np.mean(counts)), float(np.std(counts, ddof=min(1, len(counts) - 1)))


def format_table(found: Report) -> str:
    """The report as Markdown."""
    episodes = sum(found.endings.values())
    lines = [
        f"| {episodes:,} episodes, seeds {found.seeds[0]:,} to {found.seeds[1]:,} | |",
        "|---|---|",
        f"| Crafter score | {found.score.point:.1f} "
        f"({found.score.low:.1f} to {found.score.high:.1f}; human 50.5) |",
        f"| mean achievements | {found.achievements:.2f} of 22 (human 13.9) |",
        f"| of them within {_EARLY:,} steps | {found.early[0]:.2f} "
        f"(standard deviation {found.early[1]:.2f}) |",
        f"| mean steps | {found.steps:,.0f} (at most {found.max_steps:,}; "
        "an episode also ends once all 22 are unlocked: nothing more can be gained) |",
        f"| CPU time per decision | {found.decision_microseconds:.0f} µs |",
        f"| wall time | {found.seconds:,.0f} s on {found.processes} processes |",
        "",
        "| how episodes ended | share |",
        "|---|---|",
    ]
    lines += [
        f"| {'killed by ' if end not in ('all unlocked', 'length') else ''}{end} "
        f"| {100 * count / episodes:.1f} % |"
        for end, count in found.endings.items()
    ]
    lines += [
        "",
        "| achievement | success | 95 % interval | median step |",
        "|---|---|---|---|",
    ]
    for name, rate in found.rates.items():
        step = found.median_steps[name]
        lines.append(
            f"| `{name}` | {100 * rate.point:.1f} % | {100 * rate.low:.1f} to "
            f"{100 * rate.high:.1f} % | {'' if step is None else f'{step:,.0f}'} |"
        )
    return "\n".join([*lines, "", f"`{found.command}`, {found.provenance}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code is 1 if the expert is not above human level."""
    parser = argparse.ArgumentParser(prog="python -m prove.expert", description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--first-seed", type=int, default=10_000, help="from here on (10000)")
    parser.add_argument("--max-steps", type=int, default=10_000, help="per episode (10000)")
    parser.add_argument("--processes", type=int, default=2, help="at the same time (2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args(arguments)
    if (
        min(options.episodes, options.max_steps, options.processes) < 1
        or options.first_seed < 0
    ):
        parser.error("episodes, steps and processes are 1 or more, a seed is 0 or more")
    seeds = range(options.first_seed, options.first_seed + options.episodes)
    started, played = time.perf_counter(), list[PlayedEpisode]()
    for episode in play_many("expert", seeds, options.max_steps, options.processes):
        played.append(episode)
        if len(played) % 20 == 0:
            print(f"\r{len(played)} of {len(seeds)} episodes", end="", file=sys.stderr)
    print(file=sys.stderr)
    words = sys.argv[1:] if arguments is None else arguments
    found = build_report(
        played,
        " ".join(["python -m prove.expert", *words]),
        options.max_steps,
        options.processes,
        time.perf_counter() - started,
    )
    if options.json:
        print(json.dumps(found._asdict() | {"passed": found.passed()}))
    else:
        print(format_table(found))
    return 0 if found.passed() else 1


if __name__ == "__main__":
    sys.exit(main())
