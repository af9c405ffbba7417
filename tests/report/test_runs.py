"""The tables at the end of a run, as text."""

import io
import re

import pytest
from rich.console import Console

from assay.report.run import describe_ranking, run_document
from assay.report.run_summary import rank_models, summarize
from assay.report.terminal import TerminalReport, render_text
from assay.store.queries import EpisodeRow
from assay.types import TrialState

from .rows import episode, failed


def shown(rows: list[EpisodeRow], width: int = 100, **started: int) -> str:
    report = run_document(summarize(rows, started), "20260101-run", rank_models(rows))
    return render_text(TerminalReport(report, title=False), width)


def many(model: str, offset: int, **but: object) -> list[EpisodeRow]:
    return [
        episode(
            model,
            number,
            unlocked=offset + number % 3,
            steps=1000 + 400 * (number % 5),
            duration_s=1234.5 + number,
            actions_asked=5000 + number,
            prompt_tokens=1_234_567 + 10_000 * number,
            cost_usd=1.2345 * (1 + number),
            **but,
        )
        for number in range(10)
    ]


SEED_COLUMNS = (
    *("Model", "Episodes", "Completed%", "Success%", "Avg Reward", "Avg Steps", "Avg Duration"),
    *("Avg Invalid%", "Total Invalid", "Total Actions"),
    *("Total Ach.", "Unique Ach.", "Early (0-25)", "Mid (26-50)", "Late (51+)"),
)


def test_tables_have_the_original_columns() -> None:
    text = shown([*many("a", 3), *many("b", 5)], 110)
    assert [name for name in SEED_COLUMNS if name not in text] == []


def test_mean_is_shown_with_the_half_width_of_its_interval() -> None:
    text = shown([episode(number=n, unlocked=1 + n) for n in range(5)])
    assert "3.00 ±1.96" in text
    assert "1,200 ±0" in text
    # Equal rates tell nothing of their spread.
    assert "5.00% ±?" in text.replace("%\n", "% ")


def test_single_episode_has_no_interval_and_a_note() -> None:
    text = shown([episode()])
    assert "3.00 ±?" in text
    assert "±? marks a single episode" in text
    assert "nan" not in text


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_numbers_are_not_broken_and_lines_fit(width: int) -> None:
    long = "meta-llama/Llama-3.3-70B-Instruct-Turbo-Free-Preview"
    text = shown([*many("builtin/expert", 3), *many(long, 5)], width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for number in ("1,239.0s", "50,045", "12,797,670", "$67.90", "$6.79"):
        assert re.search(rf"(?<![\d,.]){re.escape(number)}(?![\d,])", text)


def test_indistinguishable_models_share_the_first_place() -> None:
    text = shown([episode("low", 0, 2), episode("x", 0, 5)])
    by_reward = text.partition("By average reward")[2].splitlines()[1:4]
    assert by_reward[:2] == ["  1= x: 5.00 ±?", "  1= low: 2.00 ±?"]
    assert "Too few trials for a verdict (1 and 1; at least 4 each)" in by_reward[2]


def test_model_is_ranked_below_another_only_if_significantly_worse() -> None:
    rows = [
        *[episode("good", n, 9 + n % 2) for n in range(8)],
        *[episode("fine", n, 9 + (n + 1) % 2) for n in range(8)],
        *[episode("poor", n, 2 + n % 3) for n in range(8)],
    ]
    ranking = shown(rows).partition("By average reward")[2].partition("\n\n")[0]
    places = re.findall(r"^  (\d[=.]) (\w+):", ranking, re.MULTILINE)
    assert places == [("1=", "good"), ("1=", "fine"), ("3.", "poor")]
    assert "good is better than poor: +6.6" in ranking
    assert "fine and good cannot be told apart" in ranking


def test_sentences_name_the_better_model_in_any_order() -> None:
    rows = [
        episode(name, n, base + n % 2) for name, base in (("b", 7), ("a", 2)) for n in range(6)
    ]
    by_reward = rank_models(rows)[0]
    assert describe_ranking(by_reward) == ["b is better than a: +5.00, 6 pairs, p = 0.031."]


def test_sentences_about_many_models_compare_only_with_the_best() -> None:
    rows = [episode(f"m{at}", n, at + n % 3) for at in range(5) for n in range(6)]
    by_reward = rank_models(rows)[0]
    assert len(by_reward.contrasts) == 10
    assert len(describe_ranking(by_reward)) == 4
    assert all("m4" in sentence for sentence in describe_ranking(by_reward))


def test_baselines_are_marked_listed_last_and_not_ranked() -> None:
    rows = [
        episode("builtin/random", baseline=True, unlocked=9),
        episode("a", unlocked=1),
        episode("b", unlocked=2),
    ]
    text = shown(rows)
    table, _, rest = text.partition("By average reward")
    assert table.index("builtin/random*") > table.index("\nb")
    assert "random" not in rest.partition("\n\n")[0]
    assert "* marks a baseline: same worlds" in text


def test_single_model_is_ranked_with_the_baselines_or_alone() -> None:
    alone = shown([episode("a", n, 4 + n) for n in range(3)])
    assert "  1. a: 5.00 ±2.48" in alone.partition("By average reward")[2]
    rows = [
        episode(name, n, more + n % each, baseline=name != "a")
        for name, more, each in (("a", 7, 2), ("builtin/noop", 0, 1), ("builtin/random", 2, 3))
        for n in range(12)
    ]
    ranking = shown(rows).partition("By average reward")[2].partition("\n\n")[0]
    assert "  1. a: 7.50" in ranking
    assert "  2. builtin/random*: 3.00" in ranking
    assert "a is better than builtin/random: +4.50" in ranking
    assert "builtin/random is better" not in ranking, "nobody asked for that"


def test_verdict_is_printed_last_and_the_best_model_first() -> None:
    rows = [*many("low", 1), *many("high", 5), *many("builtin/noop", 9, baseline=True)]
    report = run_document(summarize(rows, {}), "20260101-run", rank_models(rows))
    text = render_text(TerminalReport(report, title=False, detail=False), 130)
    assert "t interval" not in text, "notes are behind --detail"
    last = text.rstrip().partition("MODEL RANKINGS")[2]
    assert "high is better than low" in last
    assert "Run 20260101-run" not in last
    order = [line.split()[0] for line in text.splitlines()[3:6]]
    assert order == ["high", "low", "builtin/noop*"]


def test_human_row_is_shown_only_for_classic_with_its_source() -> None:
    text = shown([episode(difficulty="classic"), episode("b", difficulty="classic")], 120)
    assert re.search(r"human, full episodes +100 +- +- +- +619\.0 +- +50\.5 \(n=100\)", text)
    assert "13.90 SD 3.38" in text
    assert "5 people, 20 full episodes each (n = 100)" in text
    assert "human" not in shown([episode()])


def test_errors_are_listed_with_counts_and_the_first_message() -> None:
    rows = [
        episode(number=0),
        failed(number=1),
        failed(number=2, error_message="other words"),
        failed(number=3, state=TrialState.INFRASTRUCTURE, error_type="ModelUnavailable"),
    ]
    text = render_text(TerminalReport(run_document(summarize(rows, {"a/model": 5}))), 100)
    assert "a/model: 2 of 5 episodes failed: ModelRefused: will not" in text
    assert (
        "a/model: 1 of 5 episodes ended by infrastructure errors: ModelUnavailable: will not"
        in text
    )
    assert "a/model: 1 of 5 episodes did not end" in text
    assert "20.0%" in text


def test_names_and_messages_are_escaped() -> None:
    name = "[red]evil[/red]\x1b[2J\u202e"
    rows = [
        failed(name, error_message="[link=x]boom\x1b]0;title\x07 " + "x" * 10_000),
        episode(name, 1),
        episode("b"),
    ]
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system="truecolor")
    console.print(TerminalReport(run_document(summarize(rows, {}))))
    text = out.getvalue()
    assert "[red]evil[/red]" in text
    assert "[link=x]boom" in text
    assert "\x1b[2J" not in text
    assert "\x1b]" not in text
    assert "\u202e" not in text
    assert text.count("x" * 80) < 6


def test_run_and_experiment_ids_are_shown() -> None:
    text = shown([episode("a"), episode("b")])
    assert "Run 20260101-run" in text
    assert "experiment id of b  b v1.0" in text


def test_scripted_players_have_no_token_and_cost_row() -> None:
    def priced(text: str) -> str:
        return text.partition("TOKENS AND COST")[2].partition("INVALID ACTION")[0]

    both = priced(shown([*many("a", 3), *many("builtin/expert", 5)], 110))
    assert "\na " in both
    assert "builtin/expert" not in both
    assert not priced(shown(many("builtin/expert", 5), 110))


def test_endings_and_experiments_are_shown_only_with_detail() -> None:
    report = run_document(summarize([episode("a", unlocked=2), episode("b")], {}), "the-run")
    brief, whole = (
        render_text(TerminalReport(report, detail=detail)) for detail in (False, True)
    )
    for words in ("HOW EPISODES ENDED", "experiment id of b"):
        assert words not in brief
        assert words in whole


def test_run_without_finished_episodes_has_no_empty_tables() -> None:
    text = render_text(TerminalReport(run_document(summarize([], {"a": 0, "b": 3}))))
    assert "b: 3 of 3 episodes did not end" in text
    assert "Model" not in text


def test_terminal_without_unicode_gets_ascii() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    Console(file=out, width=100).print(
        TerminalReport(run_document(summarize([episode("modèle"), episode("b")], {})))
    )
    out.flush()
    text = raw.getvalue().decode("ascii")
    assert "+-?" in text
    assert "mod\\xe8le" in text


def test_a_pipe_without_unicode_gets_ascii_tables() -> None:
    report = TerminalReport(run_document(summarize([episode("a"), episode("b")], {})))
    text = render_text(report, encoding="cp1252")
    assert text.isascii()
    assert "---" in text
