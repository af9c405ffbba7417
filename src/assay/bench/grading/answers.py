"""What the driver said, taken out of all that a sandbox printed.

Only lines that are signed with the key of this grading count; everything else on the same
stream, whoever printed it, is noise.
"""

import base64
import hmac
import json
import zlib
from typing import Any, NamedTuple

from assay.bench.grading.driver import ANSWER

__all__ = ["DriverAnswer", "read_answer"]


class DriverAnswer(NamedTuple):
    """What the driver said."""

    ends: list[dict[str, Any]] | None
    """How each script ended, in their order; None if it did not come to its end."""
    has_pytest: bool
    is_confined: bool
    """Whether files were kept from programs, and from the tests that start them."""
    forged: int
    """Lines that look like an answer, but are not signed."""


def read_answer(output: bytes, key: bytes) -> DriverAnswer:
    """Read what a driver that was given this key printed."""
    ends, has_pytest, is_confined, forged = None, True, False, 0
    for line in output.split(b"\n"):
        word, _, rest = line.partition(b" ")
        if word != ANSWER.encode():
            continue
        signature, _, body = rest.partition(b" ")
        if not hmac.compare_digest(signature, hmac.digest(key, body, "sha256").hex().encode()):
            forged += 1
            continue
        said = json.loads(zlib.decompress(base64.b64decode(body)))
        ends, has_pytest, is_confined = said["ends"], said["has_pytest"], said["is_confined"]
    return DriverAnswer(ends, has_pytest, is_confined, forged)
