"""Dockerfiles as they are read: what is built without an engine, and what is refused."""

import pytest

from assay.bench.sandboxes.dockerfile import (
    Instruction,
    expanded,
    pairs_of,
    parse_dockerfile,
    shell_script,
)
from assay.errors import UsageError

WHOLE = """\
# syntax=docker/dockerfile:1
ARG TAG=3.12
FROM python:${TAG}-slim AS only

# a comment
ENV A=1 \\
    B="two words"
RUN echo one && \\
    # a comment in the middle
    echo two
COPY --chown=ada:team --chmod=640 a.txt b.txt /data/
RUN ["/bin/echo", "a b"]
"""


def steps(text: str) -> tuple[Instruction, ...]:
    return parse_dockerfile(text, "Dockerfile")


def test_continued_lines_comments_options_and_lists_are_read() -> None:
    found = steps(WHOLE)
    assert [step.name for step in found] == ["ARG", "FROM", "ENV", "RUN", "COPY", "RUN"]
    assert found[3].text.split() == ["echo", "one", "&&", "echo", "two"]
    assert dict(found[4].flags) == {"chown": "ada:team", "chmod": "640"}
    assert found[5].words == ("/bin/echo", "a b")
    assert [step.line for step in found] == [2, 3, 6, 8, 11, 12]


@pytest.mark.parametrize(
    "line",
    ["CMD true", "ENTRYPOINT true", "EXPOSE 80", "VOLUME /x", "HEALTHCHECK CMD x", "SHELL []"],
)
def test_any_other_instruction_is_refused_by_its_name(line: str) -> None:
    with pytest.raises(
        UsageError, match=rf"Dockerfile:2: {line.split()[0]} cannot be honoured"
    ):
        steps(f"FROM x\n{line}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM x AS a\nFROM y\n", "Dockerfile:2: a second FROM"),
        ("RUN true\n", "no FROM"),
        ("RUN true\nFROM x\n", "RUN stands before FROM"),
        ("FROM --platform=linux/arm64 x\n", "FROM --platform"),
        ("FROM x\nCOPY --from=y /a /b\n", "COPY --from"),
        ("FROM x\nRUN --mount=type=cache,target=/a true\n", "RUN --mount"),
        ("# escape=`\nFROM x\n", "escape=`"),
        ("FROM x\nCOPY <<END /a\nhi\nEND\n", "COPY with a here-document"),
    ],
)
def test_what_cannot_be_built_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        steps(text)


def test_a_script_in_a_here_document_is_one_step() -> None:
    found = steps(
        "FROM x\nRUN <<END\necho 1\necho 2\nEND\nRUN cat <<E > f && true\nhi\nE\nUSER a\n"
    )
    assert [step.name for step in found] == ["FROM", "RUN", "RUN", "USER"]
    assert shell_script(found[1]) == "echo 1\necho 2"
    assert shell_script(found[2]) == "cat <<E > f && true\nhi\nE"


def test_a_shift_in_a_command_is_no_here_document() -> None:
    found = steps("FROM x\nRUN echo $((1<<2)) $((a<<b)) && cat <<<word\nUSER a\n")
    assert [step.name for step in found] == ["FROM", "RUN", "USER"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A-${A}", "1-1"),
        ("${B:-no}${A:-no}", "no1"),
        ("${A:+yes}${B:+yes}", "yes"),
        (r"\$A", "$A"),
        ("$B", ""),
    ],
)
def test_variables_are_filled_in_as_docker_does(text: str, value: str) -> None:
    assert expanded(text, {"A": "1"}) == value


def test_env_has_two_ways_to_be_written() -> None:
    new = steps('FROM x\nENV A=1 B="x y" C=$A\n')[1]
    assert pairs_of(new, {"A": "0"}, "D") == {"A": "1", "B": "x y", "C": "0"}
    old = steps("FROM x\nENV A one two\n")[1]
    assert pairs_of(old, {}, "D") == {"A": "one two"}
