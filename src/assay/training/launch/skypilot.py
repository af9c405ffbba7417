"""Training runs as SkyPilot tasks: a dictionary, its YAML, and validation.

SkyPilot and assay need different versions of the same packages. It is therefore installed in a
separate environment, and only its program `sky` is used. Tasks are validated with the library
in that environment; without it, the parts of the schema that are used here are checked.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Any, Final

from assay.errors import UsageError

# Checked here because the library accepts any name and GPU, and fails too late.
_TASK_NAME: Final = re.compile(r"[a-zA-Z]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?")
_ACCELERATOR: Final = re.compile(r"[a-zA-Z0-9][-_.a-zA-Z0-9]*")
_SCHEMA: Final[Mapping[str, type]] = {
    "name": str,
    "num_nodes": int,
    "resources": dict,
    "workdir": str,
    "setup": str,
    "run": str,
    "envs": dict,
}
_RESOURCES: Final[Mapping[str, type]] = {"accelerators": str, "use_spot": bool}
_LIBRARY_CHECK: Final = """
import json, sys
import sky
said = {"version": sky.__version__}
for task in json.load(sys.stdin):
    try:
        sky.Task.from_yaml_config(dict(task))  # which takes out what it has read
    except (ValueError, TypeError, AssertionError) as error:
        said["refused"] = f"{task['name']}: {error}"
        break
print()
print(json.dumps(said))
"""


def make_task(
    name: str, words: Sequence[str], *, gpus: int, accelerator: str, extra: str = "train"
) -> dict[str, Any]:
    """Build the task that runs a command on a machine with GPUs and an extra of assay.

    Raises:
        UsageError: SkyPilot does not accept the name, or the number or kind of GPUs.
    """
    if gpus < 1:
        raise UsageError(f"--gpus {gpus} is not allowed; give at least 1")
    if not _ACCELERATOR.fullmatch(accelerator):
        raise UsageError(
            f"--accelerator {accelerator!r} is not a GPU type; give one such as L4, A100 or "
            "A100-80GB; 'sky gpus list' lists them"
        )
    if not _TASK_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid name of a SkyPilot task; use letters, digits, '-', '_' "
            "and '.' in --base-run-name, with a letter first"
        )
    return {
        "name": name,
        "num_nodes": 1,
        "resources": {"accelerators": f"{accelerator}:{gpus}", "use_spot": False},
        "workdir": ".",
        "setup": f"pip install --quiet '.[{extra}]'\n",
        "run": f"{shlex.join(words)}\n",
        "envs": {"ASSAY_RUN": name},
    }


def check_tasks(tasks: Sequence[Mapping[str, Any]]) -> str:
    """Check that SkyPilot accepts the tasks; return a text on how they were checked.

    Raises:
        UsageError: A task is invalid.
    """
    program = which("sky")
    if program is not None:
        return _check_with_library(Path(program).resolve().with_name("python"), tasks)
    for task in tasks:
        _check_schema(task)
    return "checked against the parts of its schema that are used; SkyPilot is not installed"


def _check_with_library(python: Path, tasks: Sequence[Mapping[str, Any]]) -> str:
    try:
        done = subprocess.run(
            [python, "-c", _LIBRARY_CHECK],
            input=json.dumps(tasks),
            capture_output=True,
            text=True,
            check=True,
        )
        result = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as error:
        error_lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise UsageError(
            f"the SkyPilot library of {str(python)!r} does not work: {error_lines[-1]}; check "
            "whether 'sky --version' works"
        ) from error
    if "refused" in result:
        raise UsageError(f"SkyPilot {result['version']} rejects task {result['refused']}")
    return f"checked by SkyPilot {result['version']}"


def _check_schema(task: Mapping[str, Any]) -> None:
    for key, value in task.items():
        if not isinstance(value, _SCHEMA.get(key, ())):
            raise UsageError(f"{key} {value!r} is not valid in a SkyPilot task")
    for key, value in task["resources"].items():
        if not isinstance(value, _RESOURCES.get(key, ())):
            raise UsageError(f"{key} {value!r} is not a valid SkyPilot resource")


def format_yaml(task: Mapping[str, Any]) -> str:
    """Format a task as YAML, with values as JSON, which is valid YAML."""
    lines = []
    for key, value in task.items():
        if isinstance(value, str) and value.endswith("\n"):
            lines += [f"{key}: |", *(f"  {line}" for line in value.splitlines())]
        elif isinstance(value, Mapping):
            lines += [
                f"{key}:",
                *(f"  {name}: {json.dumps(item)}" for name, item in value.items()),
            ]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"
