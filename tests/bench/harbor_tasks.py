"""Small Harbor tasks for tests, in a few shell lines each."""

from pathlib import Path

from .tasks import write

DOCKERFILE = "FROM base:1\nWORKDIR /app\nCOPY start.txt .\n"
SOLVE = "#!/bin/sh\necho done > /app/answer.txt\n"
TEST = """\
#!/bin/sh
if [ "$(cat /app/answer.txt 2>/dev/null)" = done ]; then reward=1; else reward=0; fi
echo $reward > /logs/verifier/reward.txt
"""


def harbor_task(
    folder: Path,
    config: str = "",
    files: dict[str, str] | None = None,
    *,
    test: str = TEST,
    without: tuple[str, ...] = (),
) -> Path:
    """Write a task of one step that one line in /app/answer.txt solves.

    Args:
        folder: The folder to write.
        config: The lines of task.toml after its version.
        files: More files, or replacements of the default ones.
        test: The text of tests/test.sh.
        without: Files to leave out.
    """
    whole = {
        "task.toml": f'schema_version = "1.4"\n{config}\n',
        "instruction.md": "Write done to /app/answer.txt.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/start.txt": "start\n",
        "solution/solve.sh": SOLVE,
        "tests/test.sh": test,
        **(files or {}),
    }
    write(folder, {name: text for name, text in whole.items() if name not in without})
    return folder


def steps_task(folder: Path, config: str, steps: dict[str, tuple[str, str]]) -> Path:
    """Write a task of several steps, each with its solution and its test."""
    files = {}
    for name, (solve, test) in steps.items():
        files[f"steps/{name}/instruction.md"] = f"Do {name}.\n"
        files[f"steps/{name}/solution/solve.sh"] = solve
        files[f"steps/{name}/tests/test.sh"] = test
    gone = ("instruction.md", "solution/solve.sh", "tests/test.sh")
    return harbor_task(folder, config, files, without=gone)
