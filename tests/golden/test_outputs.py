"""Commands print and write the same as in their transcripts."""

from difflib import unified_diff
from pathlib import Path

import pytest

from .outputs import read_transcript, replay, transcripts

pytestmark = pytest.mark.usefixtures("compiled_engine")

_ANEW = "if that is on purpose, python -m tests.golden.outputs writes the transcripts anew"


@pytest.mark.parametrize("name", transcripts())
def test_commands_print_their_transcripts(name: str, tmp_path: Path) -> None:
    found = "\n".join(
        unified_diff(read_transcript(name), replay(name, tmp_path), "kept", "now", "", "")
    )
    assert not found, f"{found}\n{_ANEW}"


def test_every_help_transcript_belongs_to_a_command() -> None:
    names = {path.stem for path in (Path(__file__).parent / "current" / "help").iterdir()}
    assert names == {name[5:] for name in transcripts() if name.startswith("help/")}
