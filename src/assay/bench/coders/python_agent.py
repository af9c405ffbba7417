"""A coding agent in Python: a class in the user's file, such as `my_agent.py:MyAgent`.

On this machine the file is data: it is parsed, hashed and copied to the folder shared with the
sandbox, but never imported. The Python of the sandbox runs it there, and it calls its model
through the proxy.
"""

import ast
from pathlib import Path
from typing import Final

from assay.bench.base import CodingJob
from assay.bench.coders.programs import AgentReport
from assay.bench.proxy.server import AgentProgram
from assay.core.canonical_json import content_hash
from assay.core.user_code import ObjectSpec
from assay.errors import UsageError
from assay.sandboxes.base import SHARED

_RUNNER: Final = Path(__file__).with_name("run_agent.py")


def read_agent_file(spec: ObjectSpec) -> bytes:
    """Return the source of a coding agent, without importing it.

    Raises:
        UsageError: The file cannot be read, is not Python, or has no such class.
    """
    path, name = spec
    try:
        source = path.read_bytes()
        body = ast.parse(source, str(path)).body
    except OSError as error:
        raise UsageError(
            f"cannot read an agent from {str(path)!r}: {error.strerror or error}; give a "
            "Python file with a class, such as my_agent.py:MyAgent"
        ) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f"{path}{line}: not valid Python: {why}") from error
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        there = f"; there is {', '.join(classes)}" if classes else ""
        raise UsageError(f"{path} has no class {name!r}{there}")
    methods = ast.FunctionDef | ast.AsyncFunctionDef
    if not classes[name].bases and not any(
        isinstance(node, methods) and node.name == "work" for node in classes[name].body
    ):
        raise UsageError(
            f"{path}: class {name!r} has no method work(self, instructions, workspace)"
        )
    return source


class PythonAgent:
    """Starts a class in a file."""

    def __init__(self, spec: ObjectSpec, sha: str | None = None) -> None:
        """Read the file; raise UsageError if it does not have this hash."""
        self._class, self._source = spec.name, read_agent_file(spec)
        if sha is not None and content_hash(self._source) != sha:
            raise UsageError(
                f"{spec.path} was changed after the run began; put it back and resume, or "
                "start anew with --fresh"
            )

    def program(self, job: CodingJob, binary: str) -> AgentProgram:
        """Copy the file to the shared folder, next to the script that runs it."""
        assert job.shared is not None, "an agent that runs inside has a shared folder"
        (job.shared / "agent.py").write_bytes(self._source)
        (job.shared / _RUNNER.name).write_bytes(_RUNNER.read_bytes())
        script = f"{SHARED}/{_RUNNER.name}"
        return AgentProgram(
            argv=(job.python, "-u", script, self._class, job.workdir),
            environment={
                "OPENAI_BASE_URL": "http://127.0.0.1:@PORT@/v1",
                # Client libraries require a key; the proxy ignores it.
                "OPENAI_API_KEY": "none",
            },
            stdin=job.task.instructions,
        )

    async def report(self, job: CodingJob, output: bytes) -> AgentReport:
        """Return an empty report; only the output is used."""
        return AgentReport()
