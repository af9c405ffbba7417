"""Who kills the sandboxes of an assay that was itself killed.

bubblewrap can end with its parent, but not while it sets a sandbox up: its child is then left
without anybody. So a shell of ours is told of every sandbox before it starts. It sees the end
of the pipe when assay dies, whatever of, stops each chain of launcher and bubblewrap so that
nothing new is started, and kills it from the inside out.
"""

import atexit
import os
import subprocess
from typing import Final

__all__ = ["guard", "unguard"]

_SCRIPT: Final = """
live=
while read -r sign pid; do
    rest=
    for known in $live; do [ "$known" = "$pid" ] || rest="$rest $known"; done
    live=$rest
    [ "$sign" = + ] && live="$live $pid"
done
stop() {
    kill -STOP "$1" || return 1
    while read -r state <"/proc/$1/stat"; do
        case $state in *") T "*) return 0 ;; *") Z "*) return 1 ;; esac
    done
    return 1
}
for launcher in $live; do
    stop "$launcher" || continue
    for outer in $(cat "/proc/$launcher/task/$launcher/children"); do
        stop "$outer" && kill -KILL $(cat "/proc/$outer/task/$outer/children")
        kill -KILL "$outer"
    done
    kill -KILL "$launcher"
done
"""


class _Guard:
    """The shell, and the pipe to it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        source, self._pipe = os.pipe()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "assay-guard"],
            stdin=source,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            # Who kills the group of assay does not kill it.
            start_new_session=True,
        )
        os.close(source)

    @property
    def works(self) -> bool:
        return self.owner == os.getpid() and self._process.poll() is None

    def tell(self, line: str) -> None:
        os.write(self._pipe, f"{line}\n".encode())

    def let_go(self) -> None:
        """Close the pipe: all that it still knows is killed."""
        os.close(self._pipe)
        if self.owner == os.getpid():
            self._process.wait()
        else:  # ours is a copy, and the parent's is alive
            self._process.returncode = 0


_guard: _Guard | None = None


def guard(pid: int) -> None:
    """Have the sandbox of this launcher killed when this process dies."""
    global _guard
    if _guard is None or not _guard.works:
        _guard = _Guard()
    _guard.tell(f"+ {pid}")


def unguard(pid: int) -> None:
    """The sandbox is dead; to be said before its number can be somebody else's."""
    if _guard is not None and _guard.works:
        _guard.tell(f"- {pid}")


def _let_go() -> None:
    global _guard
    if _guard is not None:
        _guard.let_go()
        _guard = None


atexit.register(_let_go)
os.register_at_fork(after_in_child=_let_go)
