"""Who is who: neither names, nor their order, nor unfinished trials change what is found."""

from dataclasses import replace
from itertools import permutations

import pytest

from assay.crafter.rules import ACHIEVEMENTS
from assay.judge.comparison import compare
from assay.judge.describe import instances, metrics_of, scores
from assay.judge.matching import trial_values
from assay.judge.results import Comparison, LeftOut
from assay.judge.subjects import Subject, TrialOutcome
from assay.judge.versions import over_time
from assay.report.run_summary import rank_models
from assay.types import TrialState, Verdict
from tests.report.rows import episode

from .subjects import look, subject, trial

BASE = [2.0, 3, 1, 4, 2, 3, 5, 2, 3, 4]
MORE = [4.0, 5, 4, 6, 3, 6, 7, 5, 5, 6]
MIXED = [value + gap for value, gap in zip(BASE, [2, -1] * 5, strict=True)]
UNLOCKS = {f"unlocked/{name}": 1.0 for name in ACHIEVEMENTS}


def fresh(text: str) -> str:
    """The same text as another object."""
    return "".join(list(text))


def unfinished(name: str, state: TrialState, seed: int = 1) -> TrialOutcome:
    """A trial that did not complete, and says numbers all the same."""
    made = trial(name, seed, replicate=9, state=state)
    return replace(
        made, values={"achievements": 99.0, "odd": 1.0, "duration_s": 5.0, **UNLOCKS}
    )


@pytest.mark.parametrize("state", [TrialState.FAILURE, TrialState.INFRASTRUCTURE])
def test_numbers_of_a_trial_that_did_not_complete_count_nowhere(state: TrialState) -> None:
    both = [subject("a", BASE), subject("b", MORE, trials=[unfinished("b", state)])]
    assert metrics_of(both[1]) == ["achievements"]
    assert trial_values(both[1].trials, "achievements") == MORE
    assert scores(both, 0.95) == ()
    assert [row.n for row in instances(both, 3, 0.95)] == [10, 10]
    found = compare(both)
    assert found.setup.metrics == ("achievements",)
    assert found.decisive[0].difference.point == pytest.approx(2.2)
    failures = int(state is TrialState.FAILURE)
    expected = LeftOut(failures=failures, infrastructure=1 - failures)
    assert found.decisive[0].left_out_candidate == expected
    nobody = subject("c", trials=[unfinished("c", state, seed) for seed in range(5)])
    assert list(compare([*both, nobody]).left_out) == ["c"]


def test_models_are_not_ranked_by_episodes_that_did_not_complete() -> None:
    rows = [
        episode(model, number, reward=value)
        for model, values in (("a", BASE), ("b", MORE))
        for number, value in enumerate(values)
    ]
    ends = (TrialState.FAILURE, TrialState.INFRASTRUCTURE)
    worse = [replace(rows[0], session_id=f"x{end}", state=end, reward=99.0) for end in ends]
    plain, more = rank_models(rows)[0], rank_models([*rows, *worse])[0]
    assert more.places == plain.places
    assert [place.mean.point for place in plain.places] == pytest.approx([5.1, 2.9])


def roles(comparison: Comparison) -> tuple[dict[str, bool], list[str]]:
    """Who is judged, and the candidates."""
    judged = {facts.id: facts.judged for facts in comparison.subjects}
    return judged, sorted(contrast.candidate for contrast in comparison.decisive)


@pytest.mark.parametrize("names", list(permutations("kmp")))
def test_names_do_not_say_who_is_judged(names: tuple[str, str, str]) -> None:
    player, first, second = names
    subjects = [
        subject(player, MORE),
        replace(subject(first, BASE), baseline=True),
        replace(subject(second, MIXED), baseline=True),
    ]
    found = compare(subjects, baseline=fresh(first))
    assert roles(found) == ({player: True, first: True, second: False}, [player])
    alone = compare(subjects[1:], baseline=fresh(first))
    assert roles(alone) == ({first: True, second: True}, [second])


@pytest.mark.parametrize("baseline", ["k", "m", "p"])
def test_all_but_the_baseline_are_candidates_wherever_it_stands(baseline: str) -> None:
    subjects = [subject("k", BASE), subject("m", MORE), subject("p", MIXED)]
    found = compare(subjects, baseline=fresh(baseline))
    others = sorted({"k", "m", "p"} - {baseline})
    assert roles(found)[1] == others
    assert found.baseline.id == found.setup.baseline == baseline
    assert all(contrast.baseline == baseline for contrast in found.contrasts)


@pytest.mark.parametrize("order", list(permutations(["achievements", "beta", "zeal"], 2)))
def test_the_first_metric_decides_whatever_it_is_called(order: tuple[str, str]) -> None:
    def player(name: str, values: list[float]) -> Subject:
        trials = [
            trial(name, seed, achievements=value, beta=value, zeal=value)
            for seed, value in enumerate(values)
        ]
        return subject(name, trials=trials)

    found = compare(
        [player("a", BASE), player("b", MIXED)],
        metrics=[fresh(name) for name in order],
        min_effect=0.1,
    )
    assert found.setup.primary == order[0]
    assert [contrast.metric for contrast in found.contrasts] == list(order)
    assert [contrast.metric for contrast in found.decisive] == [order[0]]
    first, second = found.contrasts
    assert (first.settle is None, second.settle is None) == (False, True)
    assert (first.detectable is None, second.detectable is None) == (False, True)
    assert first.tests is not None
    assert second.tests is not None
    assert first.tests.equivalence_p is not None
    assert second.tests.equivalence_p is None


@pytest.mark.parametrize(("own", "other"), [("b", "c"), ("c", "b")])
def test_looks_are_those_at_this_pair_in_this_metric(own: str, other: str) -> None:
    looks = [
        look(fresh("a"), "worse", 2),
        replace(look(fresh("a"), "better", 5), metric="zeal"),
        replace(look(fresh("a"), "better", 6), metric="ability"),
        look(fresh(other), "better", 8),
        look("0", "better", 9),
    ]
    subjects = [subject("a", BASE), subject(own, MIXED, looks=looks), subject(other, MIXED)]
    found = {one.candidate: one for one in compare(subjects).decisive}
    assert found[own].verdict is Verdict.WORSE
    assert found[own].look == looks[0]
    assert found[other].look is None


def test_the_best_mean_stands_first_whatever_the_names() -> None:
    values = {"low": BASE, "mid": [v + 3 for v in MORE], "top": [v + 8 for v in BASE]}
    for names in permutations(values):
        found = compare([subject(name, values[name]) for name in names]).standings
        assert found is not None
        assert [(place.subject, place.rank) for place in found.order] == [
            ("top", 1),
            ("mid", 2),
            ("low", 3),
        ]
        assert len({place.groups for place in found.order}) == 3


def test_versions_keep_their_order_whatever_they_are_called() -> None:
    series = [
        subject(f"e{at}", [value + at for value in BASE], version=version)
        for at, version in enumerate(["v9", "v1", "v5"])
    ]
    found = over_time(series)
    assert [row.version for row in found.rows] == ["v9", "v1", "v5"]
    assert [row.mean.point for row in found.rows] == pytest.approx([2.9, 3.9, 4.9])
    assert [row.trials for row in found.rows] == [10, 10, 10]
    changes = [row.change for row in found.rows]
    assert changes[0] is None
    for change in changes[1:]:
        assert change is not None
        assert change.difference.point == pytest.approx(1)
        assert change.verdict is Verdict.BETTER
