"""Sentences of a comparison: the four answers and their wording."""

import dataclasses

import pytest

from assay.judge.comparison import compare
from assay.judge.results import Comparison
from assay.report import numbers
from assay.report.comparison.document import comparison_document
from assay.report.comparison.sentences import answer_questions
from assay.report.terminal import TerminalReport, render_text
from assay.stats.intervals import Interval
from tests.judge.subjects import NASTY, look, subject

BASE = [2.0, 3, 1, 4, 2, 3, 5, 2, 3, 4]
MORE = [4.0, 5, 4, 6, 3, 6, 7, 5, 5, 6]
MIXED = [value + gap for value, gap in zip(BASE, [2, -1] * 5, strict=True)]


def said(comparison: Comparison) -> list[str]:
    [one] = comparison.decisive
    return [answer for _, answer in answer_questions(comparison, one)]


def test_answers_have_a_fixed_order() -> None:
    comparison = compare([subject("a", BASE), subject("b", MORE)])
    questions = [
        question for question, _ in answer_questions(comparison, comparison.decisive[0])
    ]
    assert questions == [
        "Is b better than a?",
        "By how much?",
        "How sure is that?",
        "What would settle it?",
    ]


def test_better_candidate_is_reported_with_its_numbers() -> None:
    better, much, sure, settle = said(compare([subject("a", BASE), subject("b", MORE)]))
    assert better == "Yes, it has more achievements (10 pairs)."
    assert much.startswith("+2.20, or +76 %: 5.10 against 2.90 on average.")
    assert "The 95 % interval of the difference is +1.75 to +2.65." in sure
    assert "Paired t test: p < 0.0001." in sure
    assert settle.startswith(
        "It is decided at the 95 % level, provided that achievements and these trials were"
        " chosen before anybody saw a result. Where there is no real difference, 1 in 20"
        " comparisons still finds one."
    )
    assert "settled" not in settle


def test_worse_candidate_is_reported_as_worse() -> None:
    worse, *_ = said(compare([subject("a", MORE), subject("b", BASE)]))
    assert worse == "No, it is worse: it has fewer achievements (10 pairs)."


def test_three_pairs_give_a_small_sample_warning() -> None:
    both = [subject("a", [2.1, 2.3, 2.0]), subject("b", [3.2, 3.5, 3.1])]
    better, _, sure, settle = said(compare(both))
    assert better == "Too few pairs for a verdict (3; at least 6)."
    assert sure == (
        "Assuming normal differences, the 95 % interval of the difference is +0.99 to +1.28."
    )
    assert settle.startswith("Play seeds from 4 on")


def test_undecided_result_estimates_trials_cost_and_time() -> None:
    extra = {"cost_usd": 0.5, "duration_s": 36.0}
    both = [subject("a", BASE, extra=extra), subject("b", MIXED, extra=extra)]
    undecided, _, _, settle = said(compare(both, metrics=["achievements"]))
    assert undecided == (
        "Undecided: a difference in achievements like this one can be chance (10 pairs)."
    )
    assert "new pairs (" in settle
    assert "Play seeds from 11 on, which none of these has played" in settle
    assert (
        "would find a difference of 0.28 (the one seen, less luck) with a power of 80 %"
        in settle
    )
    assert "at the price of the trials so far $" in settle
    assert "one after the other for both" in settle
    asked = said(compare(both, metrics=["achievements"], min_effect=1))[3]
    assert "would find a difference of 1.00 (the one asked for)" in asked


@pytest.mark.parametrize(
    ("who", "advice"),
    [
        (
            [{"model": "gpt-a"}, {"model": "gpt-b"}],
            "'assay run --models gpt-a gpt-b --seed 11 ",
        ),
        (
            [{"model": "gpt-a"}, {"model": "act", "agent": "mine.py:act"}],
            "'assay run --models gpt-a --agents mine.py:act --seed 11 ",
        ),
        (
            [{"model": "left", "agent": "mine.py:left"}, {"model": "b", "agent": "b.py:act"}],
            "'assay run --agents mine.py:left b.py:act --seed 11 ",
        ),
        (
            [{"model": "gpt-a"}, {"model": "A+gpt-a", "agent": "a.py:A", "asks": "gpt-a"}],
            "'assay run --models gpt-a --agents a.py:A --seed 11 ",
        ),
        # Somebody else would play too, or no option can name who plays.
        (
            [{"model": "gpt-b"}, {"model": "A+gpt-a", "agent": "a.py:A", "asks": "gpt-a"}],
            "Play seeds from 11 on, which none of these has played",
        ),
        (
            [{"model": "gpt-a"}, {"model": "left", "agent": "left@0123abcd"}],
            "Play seeds from 11 on, which none of these has played",
        ),
    ],
    ids=["models", "agent", "agents", "with-its-model", "with-another-model", "of-a-program"],
)
def test_suggested_command_runs_the_same_entries_on_new_worlds(
    who: list[dict[str, str]], advice: str
) -> None:
    both = [
        subject(name, values, facts={"max_turns": 100}, **about)  # type: ignore[arg-type]
        for name, values, about in zip("ab", (BASE, MIXED), who, strict=True)
    ]
    assert advice in said(compare(both, metrics=["achievements"]))[3]


def test_suggested_command_keeps_the_options_of_each_arm() -> None:
    arms = [
        subject(
            name,
            values,
            model=name,
            asks="gpt-a",
            facts={"max_turns": 100, "agent": {"temperature": heat}},
        )
        for name, values, heat in (("cold", BASE, 0.0), ("warm", MIXED, 0.5))
    ]
    settle = said(compare(arms, metrics=["achievements"]))[3]
    assert "'assay run --models gpt-a --seed 11" in settle
    assert "--temperature 0.5'" in settle
    assert "compare the two new experiments" in settle


def test_equal_values_are_reported_as_equal() -> None:
    same, much, sure, settle = said(compare([subject("a", BASE), subject("b", BASE)]))
    assert same.startswith("The same: every number of both is the same, in every trial")
    assert much.startswith("+0.00, or +0.0 %: 2.90 against 2.90")
    assert "All differences are equal" in sure
    assert "Other trials" in settle


def test_one_pair_has_no_interval() -> None:
    undecided, _, sure, settle = said(compare([subject("a", [1]), subject("b", [3])]))
    assert undecided == "Too few trials for a verdict (1 and 1; at least 4 each)."
    assert "two values or more" in sure
    assert settle.startswith("Play seeds from 2 on")


def test_equivalence_reports_the_margin() -> None:
    near = [value + gap for value, gap in zip(BASE, [0.1, -0.1] * 5, strict=True)]
    none, _, sure, _ = said(compare([subject("a", BASE), subject("b", near)], min_effect=12))
    assert none == "No, nor worse: no difference in achievements that matters (10 pairs)."
    assert "less than 12.0 either way, the smallest difference that matters" in sure


def test_looks_are_reported_with_a_warning_about_the_plain_interval() -> None:
    both = [subject("a", BASE), subject("b", MORE, looks=[look("a", "better")])]
    better, much, sure, _ = said(compare(both))
    assert better == "Yes, it has more achievements (7 pairs, looked at as they came)."
    assert much.startswith("+2.00 at the last look; over all 10 pairs +2.20, or +76 %: 5.10")
    assert "was looked at until it was decided (obrien-fleming boundary)" in sure
    assert "was +0.40 to +3.60; the verdict is the one of that look" in sure
    assert "ignores the looks: do not use it" in sure


def test_the_level_of_looks_is_the_one_they_were_made_with() -> None:
    made = dataclasses.replace(look("a", "better"), design={"kind": "pocock", "alpha": 0.1})
    sure = said(compare([subject("a", BASE), subject("b", MORE, looks=[made])]))[2]
    assert "holds at every look (90 %)" in sure


def test_finding_lost_to_multiplicity_is_explained() -> None:
    slightly = [x + gap for x, gap in zip(BASE, [1, 0, 1, 0, 2, 0, 1, 0, 1, 0], strict=True)]
    others = [subject(name, MIXED) for name in "cde"]
    comparison = compare([subject("a", BASE), subject("b", slightly), *others])
    text = answer_questions(comparison, comparison.decisive[0])[2].answer
    assert "adjusted for 10 comparisons, which is why it stays undecided" in text


def test_the_terminal_shows_answers_then_tables_then_leaderboard_and_verdict() -> None:
    comparison = compare([subject("a", BASE), subject("b", MORE), subject("c", MIXED)])
    text = render_text(TerminalReport(comparison_document(comparison)), 90)
    places = [
        text.index(word)
        for word in (
            *("Is b better than a?", "Is c better than a?", "by metric"),
            *(
                "Ranking by achievements",
                "All pairs",
                "Median",
                "Success and time",
                "pair by pair",
                "Leaderboard by achievements",
                "b: better. Difference",
            ),
        )
    ]
    assert places == sorted(places)
    assert "nan" not in text
    assert max(map(len, text.splitlines())) <= 90


def test_names_are_escaped_in_the_terminal() -> None:
    comparison = compare([subject(NASTY, BASE), subject("b", MORE)])
    text = render_text(TerminalReport(comparison_document(comparison)), 100)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]b[/]" in " ".join(text.split())


def test_truncated_table_reports_the_omitted_rows() -> None:
    comparison = compare([subject("a", [*BASE * 5, 1.0]), subject("b", [*MORE * 5, 2.0])])
    text = render_text(TerminalReport(comparison_document(comparison)))
    assert "27 more rows; --output shows them." in text


@pytest.mark.parametrize(
    ("metric", "number", "shown"),
    [
        ("achievements", 3.14159, "3.14"),
        ("achievements", 0.01234, "0.012"),
        ("tokens", 141624.2, "141,624"),
        ("steps", 138.14, "138.1"),
        ("cost_usd", 1.5, "$1.50"),
        ("cost_usd", -0.02, "-$0.020"),
        ("duration_s", 2.0, "2.00 s"),
        ("invalid_rate", 0.125, "12.5%"),
        ("reward", float("nan"), "-"),
        ("reward", -0.0001, "-0.00010"),
    ],
)
def test_numbers_have_the_unit_of_their_metric(metric: str, number: float, shown: str) -> None:
    assert numbers.format_value(metric, number) == shown


def test_differences_have_a_sign_and_their_bounds_as_many_digits() -> None:
    assert numbers.format_difference("cost_usd", 0.5) == "+$0.50"
    assert numbers.mean_cell("reward", Interval(0.123, -1.5, 1.746), signed=True) == (
        "+0.12",
        "[-1.50, +1.75]",
    )
    assert numbers.mean_cell("reward", Interval(1, float("nan"), float("nan"))).detail == "[?]"


def test_p_values_are_short_and_never_zero() -> None:
    assert numbers.p_text(1e-30) == "p < 0.0001"
    assert numbers.p_text(0.04321) == "p = 0.043"
    assert numbers.p_text(1.0) == "p = 1"


def test_no_line_is_longer_than_forty_columns() -> None:
    comparison = compare([subject("a", BASE), subject("b", MORE)])
    text = render_text(TerminalReport(comparison_document(comparison)), 40)
    assert max(map(len, text.splitlines())) <= 40
