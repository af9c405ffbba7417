"""Facts about episodes as input of analyses, means over them, and common parts of reports.

An analysis is a pure function from a list of `EpisodeFacts` to a frozen value. It uses
completed episodes; `Basis` has the number of others. The unit of analysis is the world, a task
with a seed: episodes in one world are averaged before worlds are compared.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, Final, NamedTuple

from assay.core.text import counted
from assay.crafter.rules import TASK
from assay.errors import UsageError
from assay.judge.matching import MeasuredTrials, mean_over_worlds
from assay.judge.subjects import TrialOutcome, death_cause
from assay.report.document import Document, Paragraph, Section, Tone
from assay.report.files import to_json_value
from assay.report.provenance import provenance_lines, software_versions
from assay.stats.intervals import Interval
from assay.store.load import (
    HookFiring,
    LostTurn,
    SessionCalls,
    SessionSteps,
    load_calls,
    load_hooks,
    load_lost_turns,
    load_steps,
)
from assay.store.location import DEFAULT_DATABASE
from assay.store.queries import EpisodeRow, episodes
from assay.store.store import Store
from assay.types import TrialState

LEVEL: Final = 0.95
"""Confidence level of all intervals in analyses."""

# Metric names for `mean_over`, each representing a range of values.
SHARE: Final = "share"
"""Each value is 0 or 1."""
COUNT: Final = "steps"
"""A non-negative integer."""
RATE: Final = "efficiency_score"
"""Between 0 and 1."""
AMOUNT: Final = "duration_s"
"""A non-negative number."""


class TaskWorld(NamedTuple):
    """A task with a seed; an episode without a seed has a world of its own."""

    task: str
    seed: int | str

    def __str__(self) -> str:
        return f"{self.task} {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFacts:
    """One episode: its row, and the optional facts that were requested."""

    row: EpisodeRow
    group: str
    """Group it counts for: the model, or the experiment."""
    steps: SessionSteps = SessionSteps()
    hooks: tuple[HookFiring, ...] = ()
    calls: SessionCalls | None = None
    lost_turns: tuple[LostTurn, ...] = ()
    """Turns with a reply that was cut, malformed or had unknown actions."""
    trial: TrialOutcome = field(init=False, repr=False, compare=False)
    """Identification for means over worlds; created once because it is used often."""

    def __post_init__(self) -> None:
        row = self.row
        trial = TrialOutcome(
            trial_id=row.session_id,
            pair=None,
            task=row.task,
            seed=row.seed,
            replicate=row.replicate,
        )
        object.__setattr__(self, "trial", trial)

    @property
    def id(self) -> str:
        """Id of the session."""
        return self.row.session_id

    @property
    def cut_turns(self) -> int:
        """Number of turns whose reply was cut at the token limit."""
        return sum(turn.cut for turn in self.lost_turns)

    @property
    def unreadable_turns(self) -> int:
        """Number of turns whose reply was cut or malformed."""
        return sum(turn.cut or turn.malformed for turn in self.lost_turns)

    @property
    def has_achievements(self) -> bool:
        """Whether the environment is Crafter, or any achievement was recorded."""
        return self.row.task.startswith(TASK) or bool(self.row.achievements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Sample that an analysis is based on."""

    episodes: int
    """Number of completed episodes."""
    worlds: int
    groups: tuple[str, ...]
    """Models, or experiments, in order of first appearance."""
    tasks: tuple[str, ...]
    left_out: Mapping[str, int]
    """Number of episodes that did not complete, by state."""
    source: str = ""
    """Database or folders of the episodes."""
    notes: tuple[str, ...] = ()
    """Caveats."""


def load_facts(
    store: Store,
    session_ids: Sequence[str],
    *,
    by: str = "model",
    steps: bool = False,
    calls: bool = False,
    hooks: bool = False,
    replies: bool = False,
) -> list[EpisodeFacts]:
    """Load the facts of sessions, by model or experiment, with the requested optional ones.

    `replies` adds turns with unusable replies. Messages are not read.
    """
    if by not in ("model", "experiment"):
        raise UsageError(f"by {by!r} is not allowed; choose from: model, experiment")
    with store.reading() as connection:
        rows = episodes(connection, session_ids=session_ids)
        played = load_steps(connection, session_ids) if steps else {}
        asked = load_calls(connection, session_ids) if calls else {}
        noticed = load_hooks(connection, session_ids) if hooks else {}
        lost = load_lost_turns(connection, session_ids) if replies else {}
    return [
        EpisodeFacts(
            row=row,
            group=row.model if by == "model" else row.experiment_name or row.model,
            steps=played.get(row.session_id, SessionSteps()),
            hooks=noticed.get(row.session_id, ()),
            calls=asked.get(row.session_id),
            lost_turns=lost.get(row.session_id, ()),
        )
        for row in rows
    ]


def completed(facts: Sequence[EpisodeFacts]) -> list[EpisodeFacts]:
    """Return the completed episodes.

    Raises:
        UsageError: No episode completed.
    """
    found = [one for one in facts if one.row.state is TrialState.RESULT]
    if not found:
        reasons = Counter(one.row.error_type or one.row.stop_reason for one in facts)
        told = f": {reasons.most_common(1)[0][0]} most often" if reasons else ""
        raise UsageError(
            f"none of the {len(facts)} episodes completed{told}; 'assay traces list' shows"
            " them, and 'assay run --resume' tries those again that a server failed"
        )
    return found


def basis_of(facts: Sequence[EpisodeFacts], *notes: str) -> Basis:
    """Describe the sample of an analysis; `facts` are all selected episodes."""
    used = completed(facts)
    tasks = tuple(dict.fromkeys(one.row.task for one in used))
    left_out = Counter(
        str(one.row.state) for one in facts if one.row.state is not TrialState.RESULT
    )
    said = list(notes)
    if len(tasks) > 1:
        said.insert(
            0,
            f"Episodes of {len(tasks)} tasks are taken together ({', '.join(tasks[:4])}"
            f"{', …' if len(tasks) > 4 else ''}); --difficulty chooses one.",
        )
    return Basis(
        episodes=len(used),
        worlds=len({world_of(one) for one in used}),
        groups=tuple(dict.fromkeys(one.group for one in used)),
        tasks=tasks,
        left_out=dict(left_out),
        notes=tuple(said),
    )


def by_group(facts: Sequence[EpisodeFacts]) -> dict[str, list[EpisodeFacts]]:
    """Group episodes by model, or by experiment, in order of first appearance."""
    groups: dict[str, list[EpisodeFacts]] = {}
    for one in facts:
        groups.setdefault(one.group, []).append(one)
    return groups


def world_of(facts: EpisodeFacts) -> TaskWorld:
    """Return the world of an episode, by which episodes of several models are paired."""
    seed = facts.row.seed
    return TaskWorld(facts.row.task, facts.id if seed is None else seed)


def cause_of(facts: EpisodeFacts) -> str | None:
    """Return the cause of death, or `unknown`; None if the player did not die."""
    return death_cause(facts.row.stop_reason)


def mean_over(facts: Sequence[EpisodeFacts], values: Sequence[float], metric: str) -> Interval:
    """Compute the mean over worlds, with the same interval as in a comparison.

    Args:
        facts: One or more episodes.
        values: One value per episode.
        metric: Name of the metric, which determines its range; values of 0 and 1 are a share.
    """
    trials = [one.trial for one in facts]
    return mean_over_worlds(MeasuredTrials.of(trials, values), metric, LEVEL)


def turn_bins(longest: int, bins: int) -> list[tuple[int, int]]:
    """Return the first and last turn of up to `bins` ranges of about the same length."""
    ends = sorted({round(longest * part / bins) for part in range(1, bins + 1)} - {0})
    return list(zip([1, *(end + 1 for end in ends[:-1])], ends, strict=True))


def evenly(facts: Sequence[EpisodeFacts], most: int) -> list[EpisodeFacts]:
    """Return at most `most` episodes, evenly spaced: a sample without random numbers."""
    if len(facts) <= most:
        return list(facts)
    return [facts[place * len(facts) // most] for place in range(most)]


ANALYSIS_FORMAT: Final = "assay-analysis/1"
INTERVALS: Final = "In brackets: 95 % intervals, over worlds."


@singledispatch
def analysis_document(found: object) -> Document:
    """Build the report of an analysis; each analysis registers its own function."""
    raise TypeError(f"{type(found).__name__} is not an analysis")


def build(
    name: str,
    title: str,
    finding: Sequence[str],
    sections: Sequence[Section],
    value: Any,
    rows: Sequence[Mapping[str, Any]],
) -> Document:
    """Build the report of an analysis.

    The first section has the figure for image output. `value` is the analysis, with a `basis`.
    `rows` are the CSV rows, all with the same columns.
    """
    basis: Basis = value.basis
    notes = [Paragraph(line, Tone.NOTE) for line in (_rests_on(basis), *basis.notes)]
    return Document(
        title=title,
        summary=finding,
        sections=[
            *(section for section in sections if section.blocks),
            Section("What this rests on", notes),
        ],
        origin=provenance_lines({"analysis": name}, [("the episodes", basis.source)]),
        more="--detail prints all of it; --output report.html adds figures.",
        values=lambda: {
            "format": ANALYSIS_FORMAT,
            "analysis": name,
            "finding": list(finding),
            **to_json_value(value),
            "versions": software_versions(),
        },
        rows=lambda: rows,
    )


def _rests_on(basis: Basis) -> str:
    left_out = ", ".join(f"{n} {state}" for state, n in basis.left_out.items())
    return (
        f"{counted(basis.episodes, 'episode')} in {counted(basis.worlds, 'world')}, from"
        f" {basis.source}."
        f"{f' Not completed and left out: {left_out}.' if left_out else ''}"
    )


def percent(share: float | None) -> str:
    """Format a share in percent; `-` if unknown, and never 0 or 100 for a rounded value."""
    if share is None or share != share:
        return "-"
    if 0 < share < 0.0005:
        return "< 0.1%"
    digits = 1 if 0 < share < 0.0995 else 0
    return f"{100 * share:.{digits}f}%" if share < 0.995 or share == 1 else "> 99%"


def replay_command(session_id: str, basis: Basis) -> str:
    """Return the command that replays a session."""
    where = "" if basis.source == str(DEFAULT_DATABASE) else f" --database {basis.source}"
    if where and not basis.source.endswith(".duckdb"):
        where = ""
    return f"assay traces replay {session_id[:10]}{where}"
