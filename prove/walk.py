"""Which files of assay a command goes through, in the order in which it reaches them.

    .venv/bin/python -m prove.walk run --models builtin/noop --episodes 1 --max-turns 3

A file counts if one of its functions is called after its import. Threads are followed, worker
processes are not. The command runs about five times slower.
"""

import os
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import assay
from assay.cli import main as run_command

ROOT: Final = f"{Path(assay.__file__).resolve().parent}{os.sep}"


class Walk:
    """A profile function that notes the first call into every file."""

    def __init__(self) -> None:
        self.first: dict[str, str] = {}
        """The function that is called first, by the file below the package."""
        self.functions: set[tuple[str, str]] = set()
        self.loaded: set[str] = set()
        self._importing = threading.local()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note a call; the signature is that of `sys.setprofile`."""
        code = frame.f_code
        if event not in ("call", "return"):
            return
        if code.co_name == "<module>":
            depth = getattr(self._importing, "depth", 0)
            self._importing.depth = depth + (1 if event == "call" else -1)
            if event == "call" and code.co_filename.startswith(ROOT):
                self.loaded.add(code.co_filename)
        elif (
            event == "call"
            and code.co_filename.startswith(ROOT)
            and not getattr(self._importing, "depth", 0)
        ):
            path = Path(code.co_filename[len(ROOT) :]).as_posix()
            self.first.setdefault(path, code.co_qualname)
            if not code.co_name.startswith("<"):
                self.functions.add((path, code.co_qualname))

    @property
    def files(self) -> list[str]:
        """The files in the order in which they are reached."""
        return [*self.first]

    def lines(self) -> list[str]:
        """The walk as text: a summary, and a line for each file."""
        rooms = Counter(path.split("/")[0] for path in self.first if "/" in path)
        calls = Counter(path for path, _ in self.functions)
        return [
            f"{len(self.first)} files, {len(self.functions)} functions, {len(rooms)} packages; "
            f"{len(self.loaded)} modules loaded",
            "files: " + ", ".join(f"{room} {count}" for room, count in rooms.items()),
            *(f"{path:<40} {calls[path]:>3}  {name}" for path, name in self.first.items()),
        ]


def walk(arguments: Sequence[str]) -> tuple[Walk, int]:
    """Run a command of assay; return where it went, and its exit code."""
    found = Walk()
    threading.setprofile(found)
    sys.setprofile(found)
    try:
        code = run_command(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found, code


def main() -> int:
    """Print the walk of the command that is given, on standard error."""
    if not sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    found, code = walk(sys.argv[1:])
    print(*found.lines(), sep="\n", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
