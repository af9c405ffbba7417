"""What a reader of a comparison has to know beyond its numbers, in sentences."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from assay.experiments.subjects import Subject
from assay.judge.facts import Contrast, LeftOut, Setup, SubjectFacts
from assay.types import TrialState

__all__ = ["counted", "empty_reason", "left_out_words", "notes"]

_SHOWN = 3


def notes(
    facts: Sequence[SubjectFacts],
    contrasts: Sequence[Contrast],
    setup: Setup,
    left_out: Mapping[str, str],
    lacking: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """All sentences that hold for the whole comparison."""
    by_id = {subject.id: subject for subject in facts}
    sentences = [f"Left out: {reason}." for reason in left_out.values()]
    sentences += _unjudged(facts)
    for contrast in contrasts:
        if contrast.metric == setup.primary:
            sentences += _about(contrast, by_id)
    sentences += [
        f"{metric} is not compared: {', '.join(names)} has no values of it."
        for metric, names in lacking.items()
    ]
    if len(setup.metrics) > 1:
        sentences.append(
            f"Only {setup.primary} decides. The other metrics are shown without adjusting for"
            " their number: among many of them some differ by chance."
        )
    return tuple(dict.fromkeys(sentences))


def empty_reason(subject: Subject) -> str:
    """Why a subject has nothing that could be compared, and what to do."""
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


def counted(number: int, thing: str) -> str:
    """A number and what it counts."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def left_out_words(left: LeftOut, who: str) -> str | None:
    """Which trials of one side were not used, in words; None if all were."""
    reasons = [
        (left.unpaired, "without a partner"),
        (left.failures, "failed"),
        (left.infrastructure, "ended by infrastructure errors"),
        (left.without_value, "without this metric"),
    ]
    said = [f"{number:,} {why}" for number, why in reasons if number]
    return f"trials of {who} not used: {', '.join(said)}" if said else None


def _unjudged(facts: Sequence[SubjectFacts]) -> list[str]:
    names = [subject.name for subject in facts if not subject.judged]
    if not names:
        return []
    return [
        f"Played only to compare with, so shown and not judged: {', '.join(names)}; name one"
        " with a single other subject to have it judged."
    ]


def _about(contrast: Contrast, by_id: Mapping[str, SubjectFacts]) -> list[str]:
    baseline, candidate = by_id[contrast.baseline], by_id[contrast.candidate]
    sentences = []
    for subject, left in (
        (baseline, contrast.left_out_baseline),
        (candidate, contrast.left_out_candidate),
    ):
        words = left_out_words(left, subject.name)
        if words is not None:
            sentences.append(f"{words[0].upper()}{words[1:]}.")
    if contrast.left_out_baseline.failures + contrast.left_out_candidate.failures:
        sentences.append(
            "A trial that failed has no value and is not scored 0; where one subject fails more"
            " often than the other, read the means with that in mind."
        )
    if not contrast.paired:
        sentences.append(_unpaired(baseline.subject, candidate.subject))
    if contrast.look is None and candidate.subject.looks:
        sentences.append(
            f"The run of {candidate.name} ended by looks at another comparison than this one;"
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
    sentence = (
        f"{names} have fewer than two seeds in common"
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
