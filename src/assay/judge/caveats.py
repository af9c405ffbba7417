"""Caveats that accompany the numbers of a comparison, as sentences."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from assay.core.text import counted
from assay.judge.looks import looked_before
from assay.judge.outcomes import OUTCOMES, Direction, direction_advice
from assay.judge.results import Contrast, LeftOut, Setup, SubjectFacts
from assay.judge.subjects import Subject
from assay.types import TrialState

_SHOWN = 3


def notes(
    facts: Sequence[SubjectFacts],
    contrasts: Sequence[Contrast],
    setup: Setup,
    left_out: Mapping[str, str],
    lacking: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """Return the sentences that apply to the whole comparison."""
    sentences = [f"Left out: {reason}." for reason in left_out.values()]
    sentences += _unjudged(facts)
    sentences += _forked(facts)
    sentences += pair_notes(
        (one for one in contrasts if one.metric == setup.primary),
        {subject.id: subject.subject for subject in facts},
    )
    sentences += [
        f"{metric} is not compared: {', '.join(names)} has no values of it."
        for metric, names in lacking.items()
    ]
    if setup.direction(setup.primary) is Direction.NEITHER and setup.primary not in OUTCOMES:
        sentences.append(
            f"No direction of {setup.primary} is declared: it is called higher or lower, not"
            f" better or worse; {direction_advice(setup.primary)}."
        )
    if len(setup.metrics) > 1:
        sentences.append(
            f"The verdict rests on {setup.primary} alone. The other metrics are shown without"
            " adjusting for their number: among many of them some differ by chance."
        )
    return tuple(dict.fromkeys(sentences))


def empty_reason(subject: Subject) -> str:
    """Return why a subject has nothing to compare, and what to do about it."""
    states = [trial.state for trial in subject.trials]
    failures, errors = states.count(TrialState.FAILURE), states.count(TrialState.INFRASTRUCTURE)
    if not states:
        return f"{subject.name!r} has no trials; let it play first, with 'assay run'"
    if failures + errors < len(states):
        return f"{subject.name!r} has results without any finite number; give it metrics"
    where = f" --resume {subject.run_id}" if subject.run_id else ""
    ended = [
        counted(failures, "failure") if failures else "",
        counted(errors, "infrastructure error") if errors else "",
    ]
    return (
        f"{subject.name!r} has no trial that completed"
        f" ({', '.join(filter(None, ended))}); find out why, then run it again:"
        f" 'assay run{where}'"
    )


def left_out_words(left: LeftOut, who: str) -> str | None:
    """Describe which trials of one side were not used; return None if all were."""
    reasons = [
        (left.unpaired, "without a partner"),
        (left.failures, "failed"),
        (left.infrastructure, "ended by infrastructure errors"),
        (left.without_value, "without this metric"),
    ]
    said = [f"{number:,} {why}" for number, why in reasons if number]
    return f"trials of {who} not used: {', '.join(said)}" if said else None


def _forked(facts: Sequence[SubjectFacts]) -> list[str]:
    names = [subject.name for subject in facts if subject.subject.facts.get("forks")]
    if not names:
        return []
    return [
        f"Not whole episodes, but forks, played on from states of stored ones: "
        f"{', '.join(names)}. All futures in a world count as one world, and what the turns in "
        "common earned is in every number."
    ]


def _unjudged(facts: Sequence[SubjectFacts]) -> list[str]:
    names = [subject.name for subject in facts if not subject.judged]
    if not names:
        return []
    return [f"Baselines, shown and not judged: {', '.join(names)}; name one to have it judged."]


def pair_notes(contrasts: Iterable[Contrast], subjects: Mapping[str, Subject]) -> list[str]:
    """Return the caveats for each pair of subjects; `subjects` is keyed by id."""
    sentences: list[str] = []
    for found in contrasts:
        baseline, candidate = subjects[found.baseline], subjects[found.candidate]
        sentences += [
            f"{words[0].upper()}{words[1:]}."
            for subject, left in (
                (baseline, found.left_out_baseline),
                (candidate, found.left_out_candidate),
            )
            if (words := left_out_words(left, subject.name)) is not None
        ]
        if found.left_out_baseline.failures + found.left_out_candidate.failures:
            sentences.append("A trial that failed has no value; it is not scored 0.")
        if found.left_out_baseline.without_value or found.left_out_candidate.without_value:
            sentences.append(
                f"{found.metric} is missing in some trials that completed: it is compared"
                " among those that have it, which may be other worlds for each subject."
            )
        if not found.paired and not found.units.partly_shared:
            sentences.append(_unpaired(baseline, candidate))
        elif any(trial.seed is None for trial in baseline.trials):
            sentences.append(
                f"{baseline.name} and {candidate.name} have no seeds: the first trial on an"
                " instance is paired with the first, the second with the second. Nothing says"
                " that these were the same world."
            )
        unknown = [own.name for own in (baseline, candidate) if "max_turns" not in own.facts]
        if len(unknown) == 1:
            sentences.append(
                f"The settings of {unknown[0]} are not recorded: nothing says that both were"
                " given the same task."
            )
        if names := looked_before(found, baseline, candidate):
            sentences.append(
                f"{' and '.join(names)} stopped by looks at another comparison than this one;"
                " the intervals here take no account of that."
            )
    return sentences


def _unpaired(baseline: Subject, candidate: Subject) -> str:
    names = f"{baseline.name} and {candidate.name}"
    both = (baseline, candidate)
    tasks = [Counter(trial.task for trial in subject.trials) for subject in both]
    if not set(tasks[0]) & set(tasks[1]):
        return (
            f"{names} did different tasks ({_some(tasks[0])};"
            f" {_some(tasks[1])}): a difference may be that of the tasks. Let both do the same."
        )
    seeds = [dict.fromkeys(trial.seed for trial in subject.trials) for subject in both]
    if (
        len(tasks[0] | tasks[1]) == 1
        and None not in tasks[0]
        and {*seeds[0], *seeds[1]} == {None}
    ):
        return (
            f"{names} did one task, {_some(tasks[0])}: its trials are independent samples, and"
            " the answer is about this task alone."
        )
    sentence = (
        f"{names} have no two worlds in common"
        f" ({_some(seeds[0])}; {_some(seeds[1])}): compared as independent samples, which takes"
        " more trials. Let both play the same seeds to compare them pair by pair."
    )
    if any(
        tasks[0][task] * tasks[1].total() != tasks[1][task] * tasks[0].total()
        for task in tasks[0] | tasks[1]
    ):
        sentence += (
            " They did tasks in other proportions: part of the difference may be that of the"
            " tasks."
        )
    return sentence


def _some(values: Iterable[str | int | None]) -> str:
    texts = ["none" if value is None else str(value) for value in values]
    more = ", …" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more
