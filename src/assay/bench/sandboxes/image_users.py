"""Who runs commands in a sandbox on an image: a name or a number, as its own files know it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from assay.errors import UsageError

__all__ = ["ImageUser", "image_user"]

Find: TypeAlias = Callable[[str], Path | None]
"""Where a file of an image is on this machine, by its path without a slash before it."""


class ImageUser(NamedTuple):
    """A user of an image."""

    number: int = 0
    home: str = "/root"
    switch: tuple[str, ...] = ()
    """What stands before a command so that it runs as this user; nothing for root."""


def image_user(find: Find, said: str | None) -> ImageUser:
    """The user of a name or number, or `USER:GROUP`; root for None.

    Raises:
        UsageError: The image has no such user.
    """
    name, _, group = (said or "0").partition(":")
    rows = _rows(find, "etc/passwd")
    row = next((row for row in rows if name in (row[0], row[2])), None)
    if row is None and not name.isdecimal():
        known = ", ".join(row[0] for row in rows) or "none"
        raise UsageError(f"the image has no user {name!r}; it has: {known}")
    uid, gid, home = (row[2], row[3], row[5]) if row else (name, name, "/")
    if group:
        gid = str(_number(find, "etc/group", group))
    if uid == "0":
        return ImageUser(home=home)
    if find("usr/bin/setpriv") is None:
        raise UsageError(f"user {said!r} needs the program setpriv in the image; install it")
    groups = [row[2] for row in _rows(find, "etc/group") if name in row[3].split(",")]
    switch = ("/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}")
    others = f"--groups={','.join(groups)}" if groups else "--clear-groups"
    return ImageUser(int(uid), home, switch=(*switch, others, "--"))


def _number(find: Find, file: str, name: str) -> int:
    if name.isdecimal():
        return int(name)
    for row in _rows(find, file):
        if row[0] == name:
            return int(row[2])
    raise UsageError(f"the image has no {name!r} in /{file}")


def _rows(find: Find, file: str) -> list[list[str]]:
    path: Path | None = find(file)
    if path is None:
        return []
    lines = path.read_text("utf-8", "replace").splitlines()
    width = 7 if file.endswith("passwd") else 4
    return [row for line in lines if len(row := line.split(":")) == width]
