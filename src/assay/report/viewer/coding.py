"""A coding trial for the viewer: its instruction, commands, patch, and tests one by one."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pygments.lexers.diff import DiffLexer
from pygments.token import STANDARD_TYPES

from assay.bench.base import Grade
from assay.bench.grading.results import read_grade
from assay.bench.trial_files import read_patch
from assay.core.text import visible
from assay.errors import UsageError
from assay.report.viewer.episodes import message_text, moment, tool_values
from assay.report.viewer.library import Library, Missing
from assay.store.records import SessionRecord
from assay.store.schema import StoredKind

_LONGEST: Final = 20_000
_MOST_LINES: Final = 20_000


def coding_values(library: Library, name: str) -> dict[str, Any]:
    """Return the instructions, commands, patch and grade of a coding trial."""
    session = library.session(library.resolve(name))
    if session.header.trial_kind != StoredKind.CODING:
        raise Missing("the episode is not a coding trial")
    grade, patch = None, b""
    folder = session.header.metadata.get("run_dir")
    # Only a database of this machine names folders of this machine.
    if isinstance(folder, str) and library.writable:
        with suppress(UsageError, OSError):
            grade, patch = read_grade(Path(folder)), read_patch(Path(folder))
    user = [each for each in session.messages if each.message.role == "user"]
    return {
        "instruction": visible(message_text(user[0])[:_LONGEST]) if user else "",
        "terminal": list(_commands(session)),
        "patch": list(_coloured(patch.decode(errors="replace"))) if patch else None,
        "grader": visible(grade.log[:_LONGEST]) if grade else None,
        "tests": list(_tests(grade)) if grade else [],
        "reward": session.end.outcomes.get("score") if session.end else None,
    }


def _commands(session: SessionRecord) -> Iterator[dict[str, Any]]:
    """Yield each tool call with the message that answered it."""
    answers = {
        str(record.message.value.get("tool_call_id")): record
        for record in session.messages
        if record.message.role == "tool"
    }
    for record in session.messages:
        for call in tool_values(record)["calls"]:
            answer = answers.get(call["id"])
            yield {
                "at": moment(record.at),
                "turn": record.turn,
                "command": f"{call['name']} {call['arguments']}",
                "output": visible(message_text(answer)[:_LONGEST]) if answer else "",
            }


def _coloured(patch: str) -> Iterator[list[list[str]]]:
    """Yield the lines of a patch as pairs of a style and a text."""
    line: list[list[str]] = []
    lines = 0
    for kind, text in DiffLexer().get_tokens(patch):
        for part in text.splitlines(keepends=True):
            line.append([STANDARD_TYPES.get(kind, ""), visible(part.rstrip("\n"))])
            if part.endswith("\n"):
                yield line
                line, lines = [], lines + 1
                if lines >= _MOST_LINES:
                    return
    if line:
        yield line


def _tests(grade: Grade) -> Iterator[dict[str, str]]:
    for report in grade.tests:
        yield {
            "name": visible(f"{report.script}: {report.name}"),
            "outcome": report.status,
            "message": visible(report.message[:_LONGEST]),
        }
