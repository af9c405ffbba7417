"""A Dockerfile read into steps: what can be built without an engine, and nothing else.

Reads text; starts nothing. An instruction that is not among `INSTRUCTIONS`, or an option of one
that is not known, is a UsageError that names it and its line.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from assay.errors import UsageError

__all__ = [
    "INSTRUCTIONS",
    "Instruction",
    "expanded",
    "pairs_of",
    "parse_dockerfile",
    "shell_script",
]

INSTRUCTIONS: Final = ("FROM", "COPY", "ADD", "WORKDIR", "ENV", "ARG", "USER", "RUN")
"""What can be built here."""
_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "COPY": ("chown", "chmod", "link"),
    "ADD": ("chown", "chmod", "link"),
}
_VARIABLE: Final = re.compile(
    r"\\(?P<escaped>.)|\$(?:(?P<name>\w+)|\{(?P<braced>\w+)(?:(?P<how>:[-+])(?P<other>[^}]*))?\})"
)
_DIRECTIVE: Final = re.compile(r"#\s*(syntax|escape|check)\s*=\s*(\S+)", re.IGNORECASE)
_HEREDOC: Final = re.compile(r"(?<!<)<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One step of a Dockerfile."""

    line: int
    name: str
    text: str
    """What follows its name and its options."""
    flags: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] | None = None
    """What it says as a JSON list; None if it does not."""


def parse_dockerfile(text: str, source: str) -> tuple[Instruction, ...]:
    """Read a Dockerfile.

    Args:
        text: All of it.
        source: What it is called in errors.

    Raises:
        UsageError: It has what cannot be built here; the message names it.
    """
    steps = []
    for number, line in _lines(text, source):
        name, _, rest = line.partition(" ")
        name = name.upper()
        where = f"{source}:{number}"
        if name not in INSTRUCTIONS:
            raise UsageError(
                f"{where}: {name} cannot be honoured without an engine; of the instructions of "
                f"a Dockerfile there are {', '.join(INSTRUCTIONS)}: take it out, or use "
                "--sandbox docker"
            )
        flags, rest = _flags(name, rest.strip(), where)
        if not rest:
            raise UsageError(f"{where}: {name} says nothing")
        if name in ("COPY", "ADD") and _HEREDOC.search(rest):
            raise UsageError(f"{where}: {name} with a here-document cannot be honoured here")
        steps.append(
            Instruction(line=number, name=name, text=rest, flags=flags, words=_json_list(rest))
        )
    starts = [step for step in steps if step.name == "FROM"]
    if not starts:
        raise UsageError(f"{source} has no FROM")
    if len(starts) > 1:
        raise UsageError(
            f"{source}:{starts[1].line}: a second FROM (several stages) cannot be honoured "
            "without an engine; use --sandbox docker"
        )
    before = [step for step in steps[: steps.index(starts[0])] if step.name != "ARG"]
    if before:
        raise UsageError(f"{source}:{before[0].line}: {before[0].name} stands before FROM")
    return tuple(steps)


def _lines(text: str, source: str) -> Iterator[tuple[int, str]]:
    """Whole instructions with the number of their first line, here-documents included."""
    lines = text.splitlines()
    place = 0
    while place < len(lines) and (said := _DIRECTIVE.match(lines[place].strip())):
        if said[1].lower() == "escape" and said[2] != "\\":
            raise UsageError(f"{source}:{place + 1}: escape={said[2]} cannot be honoured here")
        place += 1
    while place < len(lines):
        number = place + 1
        whole = ""
        while place < len(lines):
            line = lines[place]
            place += 1
            if line.lstrip().startswith("#") or not line.strip():
                continue
            number = number if whole else place
            if not re.search(r"\\\s*$", line):
                whole += line
                break
            whole += re.sub(r"\\\s*$", "", line)
        whole = whole.strip()
        if whole.upper().startswith("RUN"):
            for found in list(_HEREDOC.finditer(whole)):
                rest = [line.strip() for line in lines[place:]]
                if found[2] in rest:
                    end = place + rest.index(found[2]) + 1
                    whole += "".join(f"\n{line}" for line in lines[place:end])
                    place = end
        if whole:
            yield number, re.sub(r"^(\S+)\s+", r"\1 ", whole)


def _flags(name: str, rest: str, where: str) -> tuple[dict[str, str], str]:
    flags = {}
    while rest.startswith("--"):
        said, _, rest = rest.partition(" ")
        rest = rest.strip()
        key, _, value = said.removeprefix("--").partition("=")
        if key not in _FLAGS.get(name, ()):
            raise UsageError(
                f"{where}: {name} --{key} cannot be honoured without an engine; use "
                "--sandbox docker"
            )
        flags[key] = value
    return flags, rest


def _json_list(text: str) -> tuple[str, ...] | None:
    if not text.startswith("["):
        return None
    try:
        words = json.loads(text)
    except ValueError:
        return None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    return tuple(words)


def shell_script(step: Instruction) -> str:
    """What a shell runs for RUN; a script in a here-document is the script."""
    first, newline, rest = step.text.partition("\n")
    if newline and _HEREDOC.fullmatch(first.strip()):
        return rest.rpartition("\n")[0]
    return step.text


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """A text with its variables filled in, as `$name`, `${name}`, `${name:-other}`."""

    def fill(found: re.Match[str]) -> str:
        if found["escaped"]:
            return found["escaped"] if found["escaped"] == "$" else found[0]
        value = variables.get(found["name"] or found["braced"], "")
        if found["how"] == ":-":
            return value or found["other"]
        if found["how"] == ":+":
            return found["other"] if value else ""
        return value

    return _VARIABLE.sub(fill, text)


def pairs_of(step: Instruction, variables: Mapping[str, str], source: str) -> dict[str, str]:
    """The variables that ENV sets: `A=1 B="2 3"`, or `A 1` as long ago."""
    where = f"{source}:{step.line}"
    try:
        words = shlex.split(expanded(step.text, variables))
    except ValueError as error:
        raise UsageError(f"{where}: ENV cannot be read: {error}") from error
    if "=" not in words[0]:
        return {words[0]: " ".join(words[1:])}
    for word in words:
        if "=" not in word:
            raise UsageError(f"{where}: ENV has {word!r}, which is not NAME=VALUE")
    return dict(word.split("=", 1) for word in words)
