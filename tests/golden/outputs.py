"""Current output of commands, kept as transcripts that `make test` compares.

After an intended change, write them again and read the difference in git:

    .venv/bin/python -m tests.golden.outputs

A transcript is a file below `current/`: lines `$ assay ...` and `$ cat FILE`, each followed by
its output. To keep the output of one more command, add its line and write them again. The
transcripts below `current/help` hold the help of every command. Commands run in a folder with
the store of 557b711, the examples, curves of trackers and two rollouts of a benchmark.
"""

import json
import logging
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir
from glob import glob
from pathlib import Path
from typing import Any, Final

import pytest
from cyclopts import App

from assay import __version__
from assay.cli import app
from assay.crafter import warmup
from tests.bench import rollouts

from .files import command, unpack
from .make import check_anonymous

__all__ = ["help_lines", "read_transcript", "replay", "transcripts"]

_HERE: Final = Path(__file__).parent
_CURRENT: Final = _HERE / "current"
_WIDTH: Final = 100
_VARIABLES: Final = frozenset({"HOME", "PATH", "TMPDIR", "XDG_CACHE_HOME"})
"""The environment variables that commands see; the keys and settings of a user are hidden."""

_MADE: Final[tuple[tuple[str, str], ...]] = (
    (r'("(?:assay|numba|numpy|python|scipy)": ?)"[\d.]+"', r'\1"<version>"'),
    (rf"(assay:? |,){re.escape(__version__)}\b", r"\1<version>"),
    (r"- (libraries|numba|numpy|python): .*", r"- \1: <versions>"),
    (r"\b(?!557b711)[0-9a-f]{40}\b(, changed since)?", "<commit>"),
    # Whether it says "changed since" decides where this paragraph wraps.
    (r"(generator seed 0\.)\s(--detail prints all)\s(tables;)", r"\1\n\2 \3"),
    (r'("<commit>",\s*"dirty": ?|- dirty: )\w+', r'\1"<dirty>"'),
)
"""The program version in an output; commit 557b711 made the database and is kept."""
_MOMENT: Final[tuple[tuple[str, Any], ...]] = (
    (r"\b\d{8}-\d{6}-[0-9a-f]{6}\b", "<run>"),
    (r"\b\d{8}__\d\d-\d\d-\d\d\b|(?<=_)\d{8}_\d{6}\b", "<stamp>"),
    (r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00)?", "<time>"),
    (r"(?<=[ :])1[7-9]\d{8}(?:\.\d+)?\b", '"<time>"'),
    # In the manifest of a benchmark, which uses the time.
    (r'("rollout": \d+,\s+"session_id": )"[0-9a-f]+"', r'\1"<session>"'),
    (
        r'("(?:cpu_s|disk_mb|duration_s|peak_memory_mb|\w*seconds)": ?)'
        r"(?:\d[\d.e-]*|\{[^{}]*\}|\[[^\]]*\])",
        r'\1"<measured>"',
    ),
    (r"[\d,]+ rows per second, .*", "<measured>"),
    # In a table: as wide as the original.
    (r" +(?:\d+m)?\d+(?:\.\d+)?s\b", lambda found: "<time>".rjust(len(found[0]))),
    (r" ±0\.\d{3}\b", " <time>"),
)
"""Values that vary: ids, times and measurements."""
_NEW: Final = frozenset({"bench-run", "curves-files", "plans", "run", "training-data"})
"""Transcripts that create data; the others show stored data, with its times."""


def help_lines(program: App, chain: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the command lines that print the help of every command and group."""
    yield (*chain, "--help")
    for name in program:
        if not name.startswith("-"):
            yield from help_lines(program[name], (*chain, name))


def transcripts() -> Mapping[str, list[str]]:
    """Return the command lines of every transcript by name."""
    found: dict[str, list[str]] = {}
    for words in help_lines(app):
        place = "help/assay" if len(words) == 1 else f"help/{words[0]}"
        found.setdefault(place, []).append(shlex.join(("assay", *words)))
    for path in sorted(_CURRENT.glob("*.txt")):
        found[path.stem] = [
            line[2:] for line in read_transcript(path.stem) if line.startswith("$ ")
        ]
    return found


def read_transcript(name: str) -> list[str]:
    """Return the stored lines of a transcript."""
    path = _CURRENT / f"{name}.txt"
    return path.read_text("utf-8").splitlines() if path.exists() else []


def replay(name: str, folder: Path) -> list[str]:
    """Return the lines of a transcript when its commands run in an empty folder."""
    if not name.startswith("help/"):
        prepare(folder)
    lines = []
    with pytest.MonkeyPatch.context() as environment:
        for variable in os.environ.keys() - _VARIABLES:
            environment.delenv(variable)
        environment.setenv("COLUMNS", str(_WIDTH))
        for line in transcripts()[name]:
            text = mask(name, printed(folder, line), folder)
            lines += [
                f"$ {line}",
                *"".join(map(format_line, text.splitlines(True))).splitlines(),
            ]
    return lines


def prepare(folder: Path) -> None:
    """Write all files that a transcript reads into a folder."""
    unpack("store", folder)
    (folder / "examples").symlink_to(_HERE.parents[1] / "examples")
    (folder / "trackers").symlink_to(_HERE / "curves")
    (folder / "enhanced.json").write_text(
        '{"hooks": [{"name": "thirsty", "when": {"item": "drink", "at_most": 8}}]}', "utf-8"
    )
    task = '[[tasks]]\nprepared_dir = "examples/bench/tasks/split-bill"\nsandbox = "none"\n'
    (folder / "bench.toml").write_text(
        f'name = "small"\n{task}agent = "oracle"\n{task}agent = "nop"\n', "utf-8"
    )
    with chdir(folder):
        for stamp, gain in (("20250824__12-34-56", 0.0), ("20250825__12-34-56", 0.125)):
            results = [
                rollouts.trial(
                    f"task-{at}", score, arm, seconds={"agent": 8 + score + gain * at}
                )
                for at in range(5)
                for arm, first, again in (
                    ("old", 0.5 + gain, 0.25),
                    ("new", 1.0, 0.75 - at / 8),
                )
                for score in (first, again)
            ]
            results += [rollouts.failed("hard", "old"), rollouts.lost("hard", "new")]
            rollouts.write(rollouts.manifest(results, "nightly", stamp), Path("data"))


def printed(folder: Path, line: str) -> str:
    """Return the output of a command line, errors last, with the exit code if it fails."""
    program, *words = (
        found
        for word in shlex.split(line)
        for found in sorted(glob(word, root_dir=folder)) or [word]
    )
    if program == "cat":
        return "".join((folder / word).read_text("utf-8") for word in words)
    done = command(folder, *words)
    code = f"(exit code {done.code})\n" if done.code else ""
    return f"{done.output}{done.errors}{code}"


def mask(name: str, text: str, folder: Path) -> str:
    """Return a transcript's text with version, varying values and folder masked.

    Numbers have 12 digits: another processor may add up in another order.
    """
    text = text.replace(str(folder), "<folder>")
    for pattern, mask in (*_MADE, *(_MOMENT if name in _NEW else ())):
        text = re.sub(pattern, mask, text)
    return re.sub(r"-?\d+\.\d{9,}(?:e[+-]?\d+)?", lambda found: f"{float(found[0]):.12g}", text)


def format_line(line: str) -> str:
    """Return a line; JSON is split over several lines, so that differences are readable."""
    try:
        value = json.loads(line)
    except ValueError:
        return line
    return f"{_json_lines(value)}\n" if json.dumps(value) == line.rstrip("\n") else line


def _json_lines(value: Any, indent: str = "") -> str:
    """Return JSON in lines of at most 100 characters if possible, short parts on one line."""
    flat = json.dumps(value)
    if len(indent + flat) <= _WIDTH or not value or not isinstance(value, dict | list):
        return flat
    inner = indent + " "
    parts = (
        [f"{json.dumps(key)}: {_json_lines(item, inner)}" for key, item in value.items()]
        if isinstance(value, dict)
        else [_json_lines(item, inner) for item in value]
    )
    lines = parts[:1]
    for part in parts[1:]:
        if "\n" in lines[-1] + part or len(f"{inner}{lines[-1]}, {part},") > _WIDTH:
            lines.append(part)
        else:
            lines[-1] += f", {part}"
    return f"{flat[0]}\n{inner}" + f",\n{inner}".join(lines) + f"\n{indent}{flat[-1]}"


def main() -> None:
    """Write all transcripts again."""
    # Log lines are not part of them: in tests pytest captures these.
    logging.getLogger().addHandler(logging.NullHandler())
    warmup()
    for name in transcripts():
        with tempfile.TemporaryDirectory() as folder:
            lines = replay(name, Path(folder))
        path = _CURRENT / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join((*lines, "")), "utf-8")
    check_anonymous(_CURRENT)


if __name__ == "__main__":
    main()
