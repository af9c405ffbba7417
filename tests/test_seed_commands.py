"""Command lines that users already have keep working, once the command exists."""

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
    """The command of ours that a line becomes, and all its tokens."""
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
    """What the real program has against a command line, without running it."""
    try:
        app.parse_args(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return f"assay {shlex.join(tokens)}\n    {error}"
    return None


def test_command_lines_of_the_seeds_parse_where_the_command_exists() -> None:
    cases = [translated(line) for line in LINES]
    complaints = [complaint(tokens) for command, tokens in cases if exists(command)]
    assert complaints
    found = [text for text in complaints if text]
    assert not found, "\n".join(found)


def test_every_translation_is_used_by_some_line() -> None:
    used = {translated(line)[0] for line in LINES}
    assert used == {translated(theirs)[0] for theirs in TRANSLATIONS}


def test_the_check_knows_what_exists_and_what_does_not() -> None:
    assert exists(("play",))
    assert not exists(("no-such-command",))
    assert not exists(("play", "more"))


def test_the_check_objects_to_an_option_that_does_not_exist() -> None:
    assert complaint(["play", "--policy", "random", "--seed", "3"]) is None
    assert "--sed" in (complaint(["play", "--sed", "3"]) or "")
    assert complaint(["play", "--seed", "three"]) is not None
