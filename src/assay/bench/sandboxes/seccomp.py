"""A filter of system calls, so that a process cannot choose its CPUs itself.

Written for the kernel's own machine of filters, whose instructions are 8 bytes: a code, where
to jump if a comparison holds and if not, and a value.
"""

import errno
import platform
import struct
from typing import Final

__all__ = ["FILTERED_MACHINES", "keep_affinity"]

_SCHED_SETAFFINITY: Final = {
    # By the kernel's number of an architecture; an x86_64 kernel runs i386 programs as well.
    "x86_64": {0xC000003E: 203, 0x40000003: 241},
    "aarch64": {0xC00000B7: 122, 0x40000028: 241},
}
FILTERED_MACHINES: Final = frozenset(_SCHED_SETAFFINITY)
_LOAD, _AND, _SAME, _RETURN = 0x20, 0x54, 0x15, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
"""Where the call's number and its architecture stand."""
_WITHOUT_X32 = 0xBFFFFFFF
"""x86_64 has every call a second time, with this bit more."""
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def keep_affinity() -> bytes:
    """A filter under which sched_setaffinity fails with EPERM, for bubblewrap's --seccomp."""
    program = [(_LOAD, 0, 0, _ARCHITECTURE)]
    for architecture, number in _SCHED_SETAFFINITY[platform.machine()].items():
        program += [
            (_SAME, 0, 4, architecture),
            (_LOAD, 0, 0, _NUMBER),
            (_AND, 0, 0, _WITHOUT_X32),
            # Another number falls through, and equals no architecture.
            (_SAME, 0, 1, number),
            (_RETURN, 0, 0, _FAIL | errno.EPERM),
        ]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
