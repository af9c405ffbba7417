"""Names of runs as people write them, with an ellipsis for those between or after.

`run3 ... run6` is run3, run4, run5, run6; `run3 ...` at the end goes on for as long as there is
a next run. The two names differ in one number only, which keeps its zeros in front.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence

from assay.errors import UsageError

__all__ = ["ELLIPSES", "expand_names"]

ELLIPSES = ("...", "…")
_MOST = 10_000


def expand_names(
    names: Sequence[str],
    exists: Callable[[str], bool],
    taken: Collection[str] = (),
) -> list[str]:
    """The names with every ellipsis replaced by what it stands for.

    Args:
        names: As they were given.
        exists: Whether there is a run of a name; asked at an ellipsis at the end.
        taken: Names that belong elsewhere: an ellipsis at the end stops before them.

    Raises:
        UsageError: An ellipsis stands where it means nothing.
    """
    found: list[str] = []
    for at, name in enumerate(names):
        if name not in ELLIPSES:
            found.append(name)
        elif at == 0 or names[at - 1] in ELLIPSES:
            raise UsageError(f"{name!r} comes after no name of a run; write run1 ... run15")
        elif at + 1 < len(names):
            found += _between(names[at - 1], names[at + 1])
        else:
            found += _after(names[at - 1], exists, {*taken, *names})
    return found


def _between(first: str, last: str) -> list[str]:
    for one in re.finditer(r"\d+", first):
        start, end = first[: one.start()], first[one.end() :]
        number = last[len(start) : len(last) - len(end)]
        if last.startswith(start) and last.endswith(end) and number.isdecimal():
            low, high = int(one.group()), int(number)
            if low < high <= low + _MOST:
                return [_numbered(first, one, at) for at in range(low + 1, high)]
    raise UsageError(
        f"'...' between {first!r} and {last!r} means nothing: they do not differ in one number "
        "that grows; write all names"
    )


def _after(first: str, exists: Callable[[str], bool], taken: Collection[str]) -> Iterator[str]:
    numbers = list(re.finditer(r"\d+", first))
    if not numbers:
        raise UsageError(
            f"'...' after {first!r} means nothing: it has no number; write all names"
        )
    for at in range(1, _MOST):
        name = _numbered(first, numbers[-1], int(numbers[-1].group()) + at)
        if name in taken or not exists(name):
            return
        yield name


def _numbered(name: str, digits: re.Match[str], number: int) -> str:
    return f"{name[: digits.start()]}{number:0{len(digits.group())}}{name[digits.end() :]}"
