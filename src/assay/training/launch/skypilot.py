"""A training run as a task of SkyPilot: a dictionary, its YAML, and whether it is a valid one.

The library checks it where it is installed; elsewhere the parts of its schema that we use are.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from assay.errors import UsageError

__all__ = ["as_yaml", "check_task", "sky_task"]

_NAME: Final = re.compile(r"[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?")
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


def sky_task(name: str, words: Sequence[str], *, gpus: int, accelerator: str) -> dict[str, Any]:
    """The task that runs a command on a machine with so many GPUs."""
    return {
        "name": name,
        "num_nodes": 1,
        "resources": {"accelerators": f"{accelerator}:{gpus}", "use_spot": False},
        "workdir": ".",
        "setup": "pip install --quiet 'assay[train]'\n",
        "run": f"{shlex.join(words)}\n",
        "envs": {"ASSAY_RUN": name},
    }


def check_task(task: Mapping[str, Any]) -> str:
    """Find out that SkyPilot would take a task; returns who has looked.

    Raises:
        UsageError: It would not.
    """
    if find_spec("sky") is not None:
        import sky

        try:
            sky.Task.from_yaml_config(dict(task))
        except (ValueError, TypeError, AssertionError) as error:
            raise UsageError(f"SkyPilot does not take the task: {error}") from error
        return f"checked by SkyPilot {getattr(sky, '__version__', '')}".rstrip()
    for key, value in task.items():
        if not isinstance(value, _SCHEMA.get(key, ())):
            raise UsageError(f"a task of SkyPilot has no {key} such as {value!r}")
    for key, value in task["resources"].items():
        if not isinstance(value, _RESOURCES.get(key, ())):
            raise UsageError(f"resources of SkyPilot have no {key} such as {value!r}")
    if not _NAME.fullmatch(task["name"]):
        raise UsageError(
            f"{task['name']!r} is no name of a task of SkyPilot; give letters, digits, '-', "
            "'_' and '.', with a letter or digit at both ends"
        )
    return "checked against the parts of its schema that are used; SkyPilot is not installed"


def as_yaml(task: Mapping[str, Any]) -> str:
    """A task as YAML; every value in it is JSON, which YAML reads."""
    lines = []
    for key, value in task.items():
        if isinstance(value, str) and value.endswith("\n"):
            lines += [f"{key}: |", *(f"  {line}" for line in value.splitlines())]
        elif isinstance(value, Mapping):
            lines += [
                f"{key}:",
                *(f"  {name}: {json.dumps(one)}" for name, one in value.items()),
            ]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"
