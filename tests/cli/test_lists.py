"""Tables at any width keep all text, whole numbers and whole words; a pipe gets plain rows."""

import pytest

from assay.cli.output import find_output_width
from assay.cli.tables import format_table

from .test_endings import Assay
from .test_endings import assay as dead

HEADS = ("session", "experiment", "ended by", "first step", "reward")
WORDS = ("session", "experiment", "ended by")
ROWS = [
    ("1315f693d7", "some/long-model-name v1.0 #2", "died: zombie", "1,048,576", "-0.9"),
    ("60564590ef", "short", "max_turns", "7", "12.25"),
]
assay = dead


def test_row_is_one_line_on_a_wide_terminal_or_in_a_pipe() -> None:
    lines = format_table(HEADS, ROWS, WORDS)
    assert lines == format_table(HEADS, ROWS, WORDS, 200)
    assert lines == [
        "session     experiment                    ended by      first step  reward",
        "1315f693d7  some/long-model-name v1.0 #2  died: zombie   1,048,576    -0.9",
        "60564590ef  short                         max_turns              7   12.25",
    ]


def test_words_fold_and_numbers_stay_whole() -> None:
    assert format_table(HEADS, ROWS, WORDS, 60) == [
        "session     experiment  ended by      first step  reward",
        "1315f693d7  some/long-  died: zombie   1,048,576    -0.9",
        "            model-name",
        "            v1.0 #2",
        "60564590ef  short       max_turns              7   12.25",
    ]


@pytest.mark.parametrize("width", [30, 40, 50, 60, 70, 80])
def test_nothing_is_lost_at_any_width(width: int) -> None:
    lines = format_table(HEADS, ROWS, WORDS, width)
    assert max(map(len, lines)) <= width
    shown = "".join("".join(lines).split())
    for number in ("1,048,576", "-0.9", "12.25", "1315f693d7"):
        assert number in shown
    for piece in ["some/", "long-", "model-", "name", "v1.0", "#2", "died:", "zombie"]:
        assert any(piece in line for line in lines)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "command",
    [
        ("traces", "list"),
        ("experiments", "list"),
        ("experiments", "show", "builtin/noop v1.0"),
        ("experiments", "log", "builtin/noop"),
        ("models",),
        ("compare", "latest", "--detail"),
        ("run", "--dry-run", "--models", "builtin/noop", "gpt-4o-mini"),
        ("sft", "filter", "--stats-only", "--require-termination", "--max-invalid-rate", "1"),
    ],
    ids=" ".join,
)
def test_lists_fit_the_terminal(
    assay: Assay, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert find_output_width() == width
    lines = assay(*command).splitlines()
    assert len(lines) >= 3
    assert [line for line in lines if len(line) > width] == []
