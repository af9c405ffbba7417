"""Text from outside, made safe to show."""

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Return `text` as one line, with everything a terminal might obey made visible.

    Control characters, line ends, and marks that turn the direction of writing become
    `\x1b`, `\n` and the like.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
