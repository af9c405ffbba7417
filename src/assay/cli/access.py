"""Who may use a server: what all commands that serve share."""

import os
import sys

from assay._util.text import printable
from assay.errors import UsageError

__all__ = ["secret_of", "warn_of_others"]


def secret_of(variable: str, *, default: str, option: str, what: str) -> str | None:
    """The secret in an environment variable; None where the default one is not set.

    It is shown nowhere, not even when it is wrong. `what` is the word for it.
    """
    secret = os.environ.get(variable)
    if secret is None:
        if variable == default:
            return None
        raise UsageError(f"{option} {variable!r}: no such environment variable is set")
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise UsageError(
            f"the {what} in {variable} is not allowed; "
            "give one or more printable ASCII characters without blanks"
        )
    return secret


def warn_of_others(host: str, variable: str, *, has_secret: bool, what: str) -> None:
    """Say on standard error that other machines can reach a server."""
    sent, unasked = f"the {what} is sent in clear", f"no {what} is asked for: set {variable}"
    line = printable(f"other machines can reach {host}, and {sent if has_secret else unasked}")
    print(f"warning: {line}", file=sys.stderr, flush=True)
