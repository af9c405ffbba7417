"""Capabilities of this machine, each checked once by trying it, and the system call filter.

The filter lists the calls that are denied in every namespace. It is a seccomp BPF program,
whose instructions have 8 bytes: a code, the jumps if a comparison is true or false, and a
value.
"""

import errno
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Final

from assay.errors import SandboxUnavailable
from assay.sandboxes.base import CommandLimits, Mechanism, ResourceLimits, SandboxSpec
from assay.sandboxes.folders import new_folder, remove_locked
from assay.sandboxes.host_user import SANDBOX_USER, MountStage, lend_folders
from assay.sandboxes.roots import prepare, root_arguments

_INSTALL: Final = (
    "install it: sudo apt install bubblewrap (Debian, Ubuntu), sudo dnf install bubblewrap "
    "(Fedora); or run without protection, only with agents and tasks you trust: --sandbox none"
)
_NOT_LINUX: Final = (
    "sandboxes need Linux, and this is {}; use a Linux machine or a virtual one, or run "
    "without protection, only with agents and tasks you trust: --sandbox none"
)
_ALLOW_NAMESPACES: Final = (
    "user namespaces must be allowed: sysctl kernel.unprivileged_userns_clone=1 (Debian), "
    "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu 24.04), user.max_user_namespaces "
    "above 0; in a container, --privileged or --security-opt seccomp=unconfined"
)
_TIMEOUT_S: Final = 30.0


def bwrap_path() -> str:
    """Return the path of bubblewrap, or raise SandboxUnavailable."""
    if sys.platform != "linux":
        raise SandboxUnavailable(_NOT_LINUX.format(sys.platform))
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable(f"bubblewrap is not installed; {_INSTALL}")
    return os.path.realpath(found)


@cache
def _read_help(bwrap: str) -> str:
    done = subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False)
    return done.stdout


def isolation_arguments(bwrap: str) -> list[str]:
    """Return the options that isolate a command from this machine."""
    found = ["--unshare-user", "--unshare-all", "--die-with-parent", "--new-session"]
    if "--disable-userns" in _read_help(bwrap):
        # Being root in its own namespace, a command could mount memory that is not counted.
        found.append("--disable-userns")
    return [*found, "--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"]


@cache
def check_bwrap(bwrap: str) -> None:
    """Create one sandbox; raise SandboxUnavailable with bubblewrap's message if that fails."""
    folder, lock = new_folder()
    try:
        spec = SandboxSpec(mounts=())
        prepare(folder, spec)
        lend_folders([folder], (), SANDBOX_USER)
        stage = MountStage([folder])
        command = [
            *(*stage.prefix, bwrap, *isolation_arguments(bwrap)),
            *(*root_arguments(folder, spec, stage), "--", "/usr/bin/setsid", "/bin/true"),
        ]
        problem = _run(command, stage.handles)
        stage.close()
    finally:
        remove_locked(folder)
        os.close(lock)
    if problem is not None:
        raise SandboxUnavailable(
            f"bubblewrap cannot create a sandbox here: {problem}; {_ALLOW_NAMESPACES}"
        )


def _run(command: Sequence[str], handles: Sequence[int]) -> str | None:
    """Run a command; return the error, or None."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            pass_fds=handles,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    words = done.stderr.strip() or f"it ended with code {done.returncode}"
    return words.removeprefix("bwrap: ")


_problems: dict[str, str | None] = {}


def find_problem(mechanism: Mechanism) -> str | None:
    """Return why a mechanism cannot enforce limits here, or None; tried once."""
    if mechanism.name not in _problems:
        _problems[mechanism.name] = _try_mechanism(mechanism)
    return _problems[mechanism.name]


def _try_mechanism(mechanism: Mechanism) -> str | None:
    folder, lock = new_folder()
    try:
        limits = mechanism.prepare(ResourceLimits(), folder)
        try:
            return _try_limits(limits)
        finally:
            limits.release()
    except (OSError, SandboxUnavailable) as error:
        return str(error)
    finally:
        remove_locked(folder)
        os.close(lock)


def _try_limits(limits: CommandLimits) -> str | None:
    with subprocess.Popen(
        [*limits.prefix, "/bin/cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(b"x\n")
            process.stdin.flush()
            if not process.stdout.readline():
                return process.stderr.read().decode(errors="replace").strip()
            limits.admit(process.pid)
        finally:
            process.kill()
    return None


_KEYRINGS: Final = ("add_key", "request_key", "keyctl")
"""Namespaces do not separate keyrings: a command would have those of the user of assay."""
_CALLS: Final = ("sched_setaffinity", *_KEYRINGS)
_NUMBERS: Final = {
    # By the kernel's number of an architecture; an x86_64 kernel also runs i386 programs.
    "x86_64": {0xC000003E: (203, 248, 249, 250), 0x40000003: (241, 286, 287, 288)},
    "aarch64": {0xC00000B7: (122, 217, 218, 219), 0x40000028: (241, 309, 310, 311)},
}
FILTERED_MACHINES: Final = frozenset(_NUMBERS)
_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
"""Offsets of the call's number and architecture."""
_WITHOUT_X32 = 0xBFFFFFFF
"""Mask: x86_64 has every call twice, the second time with bit 30 set."""
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def call_filter(more: Sequence[str] = ()) -> bytes:
    """Return a filter for bubblewrap's --seccomp that makes some calls fail with EPERM.

    It is empty on architectures not listed here; the self-test then reports keyrings.

    Args:
        more: Calls in addition to those for keyrings.
    """
    program = [(_LOAD, 0, 0, _ARCHITECTURE)]
    for architecture, numbers in _NUMBERS.get(platform.machine(), {}).items():
        refused = [numbers[_CALLS.index(name)] for name in (*_KEYRINGS, *more)]
        program += [
            (_EQUAL, 0, 3 + len(refused), architecture),
            (_LOAD, 0, 0, _NUMBER),
            (_AND, 0, 0, _WITHOUT_X32),
            *((_EQUAL, len(refused) - index, 0, call) for index, call in enumerate(refused)),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _FAIL | errno.EPERM),
        ]
    program.append((_RETURN, 0, 0, _ALLOW))
    if len(program) == 2:
        return b""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
