"""A filter of system calls: what a command may not do, whatever namespaces it is in.

Written for the kernel's own machine of filters, whose instructions are 8 bytes: a code, where
to jump if a comparison holds and if not, and a value.
"""

import errno
import platform
import struct
from collections.abc import Sequence
from typing import Final

__all__ = ["FILTERED_MACHINES", "call_filter"]

_KEYRINGS: Final = ("add_key", "request_key", "keyctl")
"""No namespace separates keyrings: a command would have those of whoever runs assay."""
_CALLS: Final = ("sched_setaffinity", *_KEYRINGS)
_NUMBERS: Final = {
    # By the kernel's number of an architecture; an x86_64 kernel runs i386 programs as well.
    "x86_64": {0xC000003E: (203, 248, 249, 250), 0x40000003: (241, 286, 287, 288)},
    "aarch64": {0xC00000B7: (122, 217, 218, 219), 0x40000028: (241, 309, 310, 311)},
}
FILTERED_MACHINES: Final = frozenset(_NUMBERS)
_LOAD, _AND, _SAME, _RETURN = 0x20, 0x54, 0x15, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
"""Where the call's number and its architecture stand."""
_WITHOUT_X32 = 0xBFFFFFFF
"""x86_64 has every call a second time, with this bit more."""
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def call_filter(more: Sequence[str] = ()) -> bytes:
    """Return a filter for bubblewrap's --seccomp under which some calls fail with EPERM.

    It is empty on machines whose calls are not known here; the self-test then finds keyrings.

    Args:
        more: Calls beside those of keyrings.
    """
    program = [(_LOAD, 0, 0, _ARCHITECTURE)]
    for architecture, numbers in _NUMBERS.get(platform.machine(), {}).items():
        refused = [numbers[_CALLS.index(name)] for name in (*_KEYRINGS, *more)]
        program += [
            (_SAME, 0, 3 + len(refused), architecture),
            (_LOAD, 0, 0, _NUMBER),
            (_AND, 0, 0, _WITHOUT_X32),
            *((_SAME, len(refused) - place, 0, call) for place, call in enumerate(refused)),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _FAIL | errno.EPERM),
        ]
    program.append((_RETURN, 0, 0, _ALLOW))
    if len(program) == 2:
        return b""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
