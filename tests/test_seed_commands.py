"""Existing command lines keep working."""

import shlex
import tomllib
from itertools import takewhile
from pathlib import Path

from cyclopts import CycloptsError

from assay.cli import app

DATA = tomllib.loads((Path(__file__).parent / "seed_commands.toml").read_text("utf-8"))
TRANSLATIONS: dict[str, str] = DATA["translations"]
LINES: list[str] = [line for lines in DATA["commands"].values() for line in lines]


def translated(line: str) -> tuple[tuple[str, ...], list[str]]:
    """Return the assay command that a line becomes, and all its tokens."""
    tokens = shlex.split(line.replace("\\\n", " "))
    for theirs, ours in TRANSLATIONS.items():
        program = theirs.split()
        if tokens[: len(program)] == program:
            words = ours.split()[1:]
            command = tuple(takewhile(lambda word: not word.startswith("-"), words))
            return command, words + tokens[len(program) :]
    raise AssertionError(f"nothing in the table translates {line!r}")


def exists(command: tuple[str, ...]) -> bool:
    chain, _, _ = app.parse_commands(command)
    return tuple(chain) == command


def complaint(tokens: list[str]) -> str | None:
    """Return the parser's error for a command line, without running it."""
    try:
        app.parse_args(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return f"assay {shlex.join(tokens)}\n    {error}"
    return None


def test_existing_command_lines_of_users_parse() -> None:
    cases = [translated(line) for line in LINES]
    complaints = [complaint(tokens) for command, tokens in cases if exists(command)]
    assert complaints
    found = [text for text in complaints if text]
    assert not found, "\n".join(found)


def test_every_translation_is_used() -> None:
    used = {translated(line)[0] for line in LINES}
    assert used == {translated(theirs)[0] for theirs in TRANSLATIONS}


def test_the_check_distinguishes_existing_and_missing_commands() -> None:
    assert exists(("play",))
    assert not exists(("no-such-command",))
    assert not exists(("play", "more"))


def test_the_check_reports_an_unknown_option() -> None:
    assert complaint(["play", "--policy", "random", "--seed", "3"]) is None
    assert "--sed" in (complaint(["play", "--sed", "3"]) or "")
    assert complaint(["play", "--seed", "three"]) is not None
