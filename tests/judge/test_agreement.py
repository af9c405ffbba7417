"""Results that agree by chance are not called a copy."""

import json
from pathlib import Path

from assay.judge.comparison import compare

from .subjects import command, subject, trial


def test_two_lists_of_successes_that_agree_are_not_a_copy(tmp_path: Path) -> None:
    files = []
    for name in "ab":
        file = tmp_path / f"{name}.json"
        won = [1.0] * 7 + [0.0]
        metrics = {"metrics": {"success": won}}
        file.write_text(json.dumps({"name": name, "seeds": [*range(8)], **metrics}))
        files.append(str(file))
    said = command("compare", "--baseline", files[0], "--improved", files[1])
    assert "No difference seen: success is equal in all pairs (8 pairs)." in said
    assert "copy" not in said
    assert "The same" not in said
    assert "The 95 % interval of the difference is -0." in said


def test_what_chance_does_not_explain_is_a_copy() -> None:
    counts = [3.0, 7, 5, 9, 2, 11, 4, 8, 6, 10]
    both = [subject(name, counts) for name in "ab"]
    assert compare(both).decisive[0].same is not None
    few = [subject(name, counts[:4]) for name in "ab"]
    assert compare(few).decisive[0].same is None
    timed = [
        subject(
            name,
            trials=[trial(name, at, success=1.0, duration_s=at + 0.234567) for at in (1, 2)],
        )
        for name in "ab"
    ]
    assert compare(timed).decisive[0].same is not None
