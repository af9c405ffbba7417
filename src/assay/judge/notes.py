"""What a reader of a comparison has to know beyond its numbers, in sentences."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from assay._util.text import counted
from assay.judge.facts import Contrast, LeftOut, Setup, SubjectFacts
from assay.judge.looks import looked_before
from assay.judge.subjects import Subject
from assay.types import TrialState

__all__ = ["empty_reason", "left_out_words", "notes", "pair_notes"]

_SHOWN = 3


def notes(
    facts: Sequence[SubjectFacts],
    contrasts: Sequence[Contrast],
    setup: Setup,
    left_out: Mapping[str, str],
    lacking: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """All sentences that hold for the whole comparison."""
    sentences = [f"Left out: {reason}." for reason in left_out.values()]
    sentences += _unjudged(facts)
    sentences += _forked(facts)
    sentences += pair_notes(
        (contrast for contrast in contrasts if contrast.metric == setup.primary),
        {subject.id: subject.subject for subject in facts},
    )
    sentences += [
        f"{metric} is not compared: {', '.join(names)} has no values of it."
        for metric, names in lacking.items()
    ]
    if len(setup.metrics) > 1:
        sentences.append(
            f"The verdict rests on {setup.primary} alone. The other metrics are shown without"
            " adjusting for their number: among many of them some differ by chance."
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
    """What has to be known of each pair of subjects; subjects by their ids."""
    sentences: list[str] = []
    for contrast in contrasts:
        baseline, candidate = subjects[contrast.baseline], subjects[contrast.candidate]
        sentences += [
            f"{words[0].upper()}{words[1:]}."
            for subject, left in (
                (baseline, contrast.left_out_baseline),
                (candidate, contrast.left_out_candidate),
            )
            if (words := left_out_words(left, subject.name)) is not None
        ]
        if contrast.left_out_baseline.failures + contrast.left_out_candidate.failures:
            sentences.append("A trial that failed has no value; it is not scored 0.")
        if contrast.losses is not None:
            sentences.append(_losses(contrast, baseline, candidate))
        if any(left.without_value for left in _left(contrast)):
            sentences.append(
                f"{contrast.metric} is missing in some trials that completed: it is compared"
                " among those that have it, which may be other worlds for each subject."
            )
        if not contrast.paired and not contrast.units.partly_shared:
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
        if names := looked_before(contrast, baseline, candidate):
            sentences.append(
                f"{' and '.join(names)} stopped by looks at another comparison than this one;"
                " the intervals here take no account of that."
            )
    return sentences


def _left(contrast: Contrast) -> tuple[LeftOut, LeftOut]:
    return contrast.left_out_baseline, contrast.left_out_candidate


def _losses(contrast: Contrast, baseline: Subject, candidate: Subject) -> str:
    lost = contrast.losses
    assert lost is not None
    ends = "the worst and the best value" if lost.known_ends else "the extremes seen"
    return (
        f"Lost trials: {lost.baseline:,} of {lost.of_baseline:,} of {baseline.name},"
        f" {lost.candidate:,} of {lost.of_candidate:,} of {candidate.name}. If those were the"
        " harder worlds, the rest looks better than it is: with the lost trials at"
        f" {ends} the difference lies between {_shown(lost.lowest.point)} and"
        f" {_shown(lost.highest.point)}."
    )


def _shown(difference: float) -> str:
    # What is left of a sum of thirds is no difference.
    return f"{round(difference, 12) + 0.0:+.3g}"


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
