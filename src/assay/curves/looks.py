"""Which look at a comparison an analysis is, and the alpha that it has for that.

The same runs looked at again are the same look. Looks that a plan names share its alpha
(alpha spending). A look that nobody planned comes after one that has had its whole alpha
already, so that no later verdict can keep to it: later looks together may add a tenth of it,
each half of what is left. Reads and writes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from assay._util.text import counted
from assay.judge.looks import RecordedLook
from assay.judge.plans import AnalysisPlan
from assay.stats.look_alphas import error_of_looks, next_alpha, planned_alphas
from assay.stats.means import Side
from assay.stats.spending import Spending

__all__ = ["LATER_LOOKS", "AnalysisLook", "LookRule", "settle_look"]

LATER_LOOKS = 0.1
"""What all later looks that were not planned may add to the first one's alpha, as a share."""


class LookRule(StrEnum):
    """What the alpha of a look goes by."""

    SINGLE = "single"
    """There is no other: it has all of it."""
    OBRIEN_FLEMING = "obrien-fleming"
    """Planned: hardly any at first, almost all at the last look."""
    POCOCK = "pocock"
    """Planned: about the same at each look."""
    UNPLANNED = "unplanned"
    """What the earlier looks left."""


_NAMES = {LookRule.OBRIEN_FLEMING: "O'Brien-Fleming", LookRule.POCOCK: "Pocock"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisLook:
    """One look at a comparison, among those there were or will be."""

    number: int
    """Counted from 1."""
    rule: LookRule
    planned: tuple[int, ...]
    """After how many pairs, or runs of each arm, the plan has looks."""
    plan: str | None
    """The hash of the plan that it goes by."""
    repeated: bool
    """Whether the same runs were looked at before, which makes it the same look."""
    earlier: tuple[RecordedLook, ...]
    alpha: float
    """One minus the level of its intervals."""
    two_sided: float
    """The same as an alpha of both sides."""
    error: float
    """How often all looks so far show a difference where there is none, for normal values."""
    paired: bool
    total: float
    """The alpha of the settings."""
    extended_from: int = 0
    """Of how many runs an arm was before it was extended; 0 if it never was."""
    unrecorded: str | None = None
    """Why the store does not keep it."""

    @property
    def sentence(self) -> str | None:
        """What has to be said; nothing of the first look at a set that nobody extended."""
        parts = []
        about = f"has a level of {100 * (1 - self.alpha):.4g} % instead of"
        about += f" {100 * (1 - self.total):.4g} %, and p-values count below {self.alpha:.2g}"
        wrong = "all looks together show a difference where there is none in"
        if self.rule in _NAMES:
            when = " and ".join(map(str, self.planned))
            unit = "pairs" if self.paired else "runs of each arm"
            parts.append(
                f"Look {self.number} of {max(self.number, len(self.planned))}, planned after"
                f" {when} {unit}: its interval {about} ({_NAMES[self.rule]}), so that"
                f" {wrong} about {100 * self.total:.3g} % of cases at most."
            )
        elif self.rule is LookRule.UNPLANNED:
            before = ", ".join(_told(look, self.paired) for look in self.earlier)
            parts.append(
                f"Look {self.number} at this comparison, not planned; earlier: {before}. Its"
                f" interval {about}, so that {wrong} about {100 * self.error:.3g} % of cases."
                f" Looks that a plan names beforehand keep to {100 * self.total:.3g} %."
            )
        elif self.extended_from:
            parts.append(
                f"An arm was extended from {counted(self.extended_from, 'run')}, and no look at"
                " those is on record; if there was one, this interval is too short."
            )
        if parts and self.unrecorded:
            parts.append(
                f"This look is not recorded, because {self.unrecorded}: later ones do not know"
                " of it."
            )
        return " ".join(parts) or None


def settle_look(
    runs: tuple[tuple[str, ...], tuple[str, ...]],
    *,
    paired: bool,
    alpha: float,
    side: Side,
    plan: AnalysisPlan | None,
    looks: Sequence[RecordedLook],
    extended_from: int = 0,
    unrecorded: str | None = None,
) -> AnalysisLook:
    """Find out which look this is.

    Args:
        runs: The ids of the control's and the candidate's runs, sorted.
        paired: Whether runs are compared pair by pair.
        alpha: One minus the level of intervals, of all looks together.
        side: Of the intervals.
        plan: What was planned, if anything.
        looks: All there were at this summary of this metric, the first one first.
        extended_from: Of how many runs an arm was before it was extended; 0 if it never was.
        unrecorded: Why this one will not be recorded.
    """
    control, candidate = map(set, runs)
    again = next((at for at, look in enumerate(looks) if look.runs == runs), len(looks))
    earlier = [
        look
        for look in looks[:again]
        if control.intersection(look.control) and candidate.intersection(look.candidate)
    ]
    now = _count(paired, runs)
    # Others had runs that are not here any more; they count, and cannot be followed.
    inside = [
        look
        for look in earlier
        if control.issuperset(look.control) and candidate.issuperset(look.candidate)
    ]
    followed: dict[int, float] = {}
    for look in inside:
        count = _count(paired, look.runs)
        if count < now:
            followed[count] = max(look.alpha, followed.get(count, 0.0))
    before = sorted(followed.items())
    sides = 1 if side is Side.TWO_SIDED else 2
    total = alpha * sides
    number, planned = len(earlier) + 1, () if plan is None else plan.looks
    ends = [each if paired else 2 * each - 1 for each in planned]
    by_plan = None
    if plan and ends and now <= ends[-1] and all(look.plan == plan.hash for look in earlier):
        rule, by_plan = LookRule(plan.boundary), plan.hash
        counts = sorted({now, ends[-1], *followed, *(each for each in ends if each < now)})
        number = counts.index(now) + 1
        own = planned_alphas(Spending(plan.boundary), counts, total)[number - 1]
    elif earlier:
        rule = LookRule.UNPLANNED
        own = min(total, next_alpha(before, now, total * LATER_LOOKS / 2 ** (number - 1)))
    else:
        rule, own = LookRule.SINGLE, total
    error = error_of_looks([*before, (now, own)]) if earlier or by_plan else own
    error += sum(look.alpha for look in earlier if look not in inside)
    return AnalysisLook(
        number=number,
        rule=rule,
        planned=planned,
        plan=by_plan,
        repeated=again < len(looks),
        earlier=tuple(earlier),
        alpha=own / sides,
        two_sided=own,
        error=min(1.0, error / sides),
        paired=paired,
        total=alpha,
        extended_from=extended_from,
        unrecorded=unrecorded,
    )


def _count(paired: bool, runs: tuple[Sequence[str], Sequence[str]]) -> int:
    """Pairs, or as many as have the degrees of freedom of two groups; 3 are the fewest."""
    control, candidate = map(len, runs)
    return max(3, control if paired else control + candidate - 1)


def _told(look: RecordedLook, paired: bool) -> str:
    control, candidate = map(len, look.runs)
    runs = counted(control, "pair") if paired else f"{control} and {candidate} runs"
    return runs if look.looked_at is None else f"{runs} on {look.looked_at:%Y-%m-%d}"
