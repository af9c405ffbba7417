"""Secrets are redacted from text: known values, parts of them, and typical patterns."""

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from assay.cli import main
from assay.core.secrets import MARK, Secret, mask, redact
from assay.runs.control import describe_error
from tests.support import run_python

KEY = "sk-planted-0a1b2c3d4e5f6a7b8c9d"


@pytest.mark.parametrize("start", range(0, len(KEY) - 12, 3))
@pytest.mark.parametrize("length", [12, 15, 19])
def test_any_twelve_characters_of_a_secret_are_redacted(start: int, length: int) -> None:
    part = KEY[start : start + length]
    assert redact(f"it is {part}; yes", [KEY]) == f"it is {MARK}; yes"


def test_shorter_parts_and_ordinary_text_are_kept() -> None:
    for text in (KEY[:11], KEY[5:16], "0a1b2c 3d4e5f", "planted trees", ""):
        assert redact(text, [KEY]) == text
    assert redact(f"{KEY} and {KEY[:14]}, {KEY[-13:]}", [KEY]) == f"{MARK} and {MARK}, {MARK}"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("http://me:pass@host/v1", f"http://{MARK}@host/v1"),
        ("http://h/v1?key=abc&x=1 no", f"http://h/v1?key={MARK}&x={MARK} no"),
        (f"'{KEY}' is", f"'{MARK}' is"),
        ("Bearer abcdefgh12345", f"Bearer {MARK}"),
        ("AIzaSyA1234567890abcdef", MARK),
    ],
)
def test_text_that_looks_like_a_secret_is_masked(text: str, left: str) -> None:
    assert mask(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "unknown model 'sky-t1-32b-preview-2025'; did you mean",
        "skeleton_spawn_chance = 2 is not allowed",
        "see https://toml.io",
        "http://localhost:8901",
        "session 0a1b2c3d4e5f6a7b8c9d",
    ],
)
def test_ordinary_text_is_not_masked(text: str) -> None:
    assert mask(text) == text


def test_a_given_key_is_redacted_everywhere_afterwards() -> None:
    text = "it is given-5316-given, yes"
    assert redact(text) == text
    assert Secret("given-5316-given").reveal() in text
    assert redact(text) == mask(text) == describe_error(ValueError(text)).message == HIDDEN
    assert "given-5316" not in describe_error(ValueError(text)).traceback


HIDDEN = f"it is {MARK}, yes"


@pytest.mark.parametrize(
    ("variable", "value", "is_hidden"),
    [
        ("SOME_API_KEY", "variable-2718", True),
        ("HF_TOKEN", " variable-2718\n", True),
        ("TOKENIZER", "variable-2718", False),
        ("SOME_API_KEY", "/path/to/a/key", False),
        ("PASSWORD", "short", False),
    ],
)
def test_variables_with_secret_names_are_redacted(
    variable: str, value: str, is_hidden: bool
) -> None:
    code = "import sys; from assay.core.secrets import redact; print(redact(sys.argv[1]))"
    text = f"it is {value.strip()}, yes"
    result = run_python("-c", code, text, variables={variable: value})
    assert result.output.strip() == (HIDDEN if is_hidden else text)


SECRET = "hidden-4711-hidden"


@pytest.mark.parametrize(
    "options",
    [
        ["--openai-base-url", f"http://h/v1?key={SECRET}"],
        ["--openai-base-url", f"http://me:{SECRET}@h/v1"],
        ["--service-url", f"http://me:{SECRET}@h:1"],
        ["--config", "a.toml"],
        ["--config", "b.toml"],
        ["--config", "c.toml"],
    ],
    ids=["query", "password", "service", "outside a table", "address in a file", "a name"],
)
@pytest.mark.parametrize("more", [[], ["--debug"]], ids=["plain", "debug"])
def test_a_misplaced_secret_is_rejected_and_not_printed(
    options: list[str],
    more: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(f'openai = "{SECRET}"\n')
    Path("b.toml").write_text(f'[openai]\nbase_url = "http://h/v1?key={SECRET}"\n')
    Path("c.toml").write_text(f'[experiment]\nepisodes = "sk-{SECRET}"\n')
    assert main(["run", *options, *more]) == 2
    output = capsys.readouterr()
    assert SECRET not in output.out + output.err
    assert "error:" in output.err


@pytest.mark.parametrize("write", [str, json.dumps, quote, quote_plus])
def test_a_secret_is_found_in_every_encoding(write: Callable[[str], str]) -> None:
    secret = 'sk-"odd"/key+\\1234'
    text = redact(f"before {write(secret)} after", [secret])
    assert MARK in text
    assert "odd" not in text
    assert text.startswith("before ")
    assert text.endswith(" after")


def test_the_longer_secret_is_redacted_first() -> None:
    assert redact("sk-abcdefgh-more", ["sk-abcdefgh", "sk-abcdefgh-more"]) == MARK


def test_a_short_secret_is_redacted_only_as_a_whole_word() -> None:
    assert redact("test the latest: test", ["test"]) == f"{MARK} the latest: {MARK}"


def test_text_is_unchanged_without_secrets() -> None:
    assert redact("all of it", [None, ""]) == "all of it"
