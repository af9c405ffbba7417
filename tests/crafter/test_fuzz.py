"""Damaged snapshots end in an error or in a world that can be played; see `fuzz`.

ASSAY_FUZZ sets how many are made, ASSAY_FUZZ_SEED which.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_fuzz(seed: int, count: int) -> dict[str, Any]:
    """Run the fuzz test in a separate process."""
    with tempfile.TemporaryFile() as progress:
        done = subprocess.run(
            [sys.executable, "-m", "tests.crafter.fuzz", *map(str, (seed, 0, count))],
            env=os.environ | {"ASSAY_FUZZ_PROGRESS": str(progress.fileno())},
            pass_fds=[progress.fileno()],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        last = progress.read(8)
    at = struct.unpack("<q", last)[0] if last else None
    assert done.returncode == 0, f"case {at} of seed {seed}: {done.stderr[-3000:]}"
    return json.loads(done.stdout)


def check_fuzz(count: int, record_property: Callable[[str, object], None]) -> None:
    seed = int(os.environ.get("ASSAY_FUZZ_SEED", "0"))
    result = run_fuzz(seed, count)
    ends = result["ends"]
    record_property("note", ", ".join(f"{n} {end}" for end, n in sorted(ends.items())))
    assert sum(ends.values()) == count
    assert ends["accepted"] > 0.3 * count
    assert ends["refused"] > 0.2 * count


@pytest.mark.extras
@pytest.mark.usefixtures("compiled_engine")
def test_damaged_snapshots_end_in_an_error_or_a_valid_world(
    record_property: Callable[[str, object], None],
) -> None:
    check_fuzz(int(os.environ.get("ASSAY_FUZZ", "3000")), record_property)


@pytest.mark.extras
@pytest.mark.usefixtures("compiled_engine")
def test_many_damaged_snapshots_end_in_an_error_or_a_valid_world(
    record_property: Callable[[str, object], None],
) -> None:
    check_fuzz(int(os.environ.get("ASSAY_FUZZ", "20000")), record_property)
