"""A service for each test, and a data file that can be trained on."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .server import Service, Stage, stage


@pytest.fixture(scope="session")
def finetuning() -> Iterator[Stage]:
    with stage() as made:
        yield made


@pytest.fixture
def service(finetuning: Stage) -> Service:
    return finetuning.play(Service())


def row(number: int) -> str:
    """Return a row with a tool call, as `assay sft filter` writes it."""
    parameters = {"type": "object", "properties": {"actions": {"type": "array"}}}
    tool = {"type": "function", "function": {"name": "interact", "parameters": parameters}}
    action = ("move_left", "move_right", "do", "sleep", "noop")[number % 5]
    arguments = json.dumps({"actions": [action]})
    call = {"id": "call_1", "type": "function"}
    answer = {
        "role": "assistant",
        "content": f"thought {number}",
        "tool_calls": [{**call, "function": {"name": "interact", "arguments": arguments}}],
    }
    messages = [
        {"role": "system", "content": "You play Crafter."},
        {"role": "user", "content": f"view {number}"},
        answer,
    ]
    return json.dumps({"messages": messages, "tools": [tool]})


def write_rows(path: Path, rows: int = 24) -> Path:
    path.write_text("".join(f"{row(number)}\n" for number in range(rows)), "utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "crafter_quality_sft.jsonl")
