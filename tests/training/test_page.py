"""The commands of docs/train.md that need torch do what the page says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import SHELL, Block

PAGE = [block for block in SHELL if block.marks.strip() == "local"]


@pytest.mark.local
@pytest.mark.parametrize("block", PAGE, ids=str)
def test_commands_marked_local_print_the_output_on_the_page(
    block: Block, tmp_path: Path
) -> None:
    tools = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    for command in block.commands():
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "first" / "status.json").exists()
