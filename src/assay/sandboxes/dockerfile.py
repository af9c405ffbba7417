"""What a Dockerfile starts from and copies, and what its .dockerignore leaves out.

Only that much of it is read here; the engine reads the rest. Its builder does not know
`COPY --chmod`: each mode gets a tree of its own in the context, whose files have it already.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from assay.core.wildcards import Wildcards
from assay.errors import UsageError

_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")
_FROM_IMAGE: Final = re.compile(r"(--from=)(\S+)")
_MODE: Final = re.compile(r"--chmod=0?([0-7]{3,4})\s+")
_PLAIN: Final = "given"
"""The tree of what is copied as it is, where others are copied with a mode."""
_SCRATCH: Final = "scratch"


class Dockerfile:
    """The text of a Dockerfile, of which the names of images can be replaced."""

    def __init__(self, text: str, arguments: Mapping[str, str]) -> None:
        self._instructions = list(_instructions(text))
        self._given = arguments
        self.bases: list[str] = []
        """The images of others that it needs, in the order in which it names them."""
        modes = sorted(set(_MODE.findall("\n".join(filter(_is_copy, self._instructions)))))
        self.trees: dict[str, int | None] = {"": None}
        """By their folders, the copies of the context, and the mode of all files in one."""
        self.user: str | None = None
        """Whom its last stage names; None if nobody."""
        if modes:
            self.trees = {_PLAIN: None, **{f"{_PLAIN}-{mode}": int(mode, 8) for mode in modes}}
        self.with_bases({})

    def with_bases(self, images: Mapping[str, str]) -> str:
        """The text with these images in the place of those it names."""
        lines = []
        values: dict[str, str] = {}
        stages: list[str] = []
        count = 0
        for raw in self._instructions:
            word, _, rest = raw.strip().partition(" ")
            word = word.upper()
            if word == "ARG" and not count:
                name, _, default = rest.strip().partition("=")
                values[name] = self._given.get(name, " ".join(shlex.split(default)))
            elif word == "FROM":
                count += 1
                self.user = None
                raw = self._starting(rest, values, stages, images)
            elif word == "USER":
                self.user = rest.strip()
            elif word == "COPY" and (found := _FROM_IMAGE.search(rest)):
                source = found[2]
                if source not in stages and not source.isdigit():
                    self._need(source)
                    raw = raw.replace(found[0], f"--from={images.get(source, source)}", 1)
            elif _is_copy(raw) and _PLAIN in self.trees:
                raw = _from_tree(word, rest)
            lines.append(raw)
        if not count:
            raise UsageError("the Dockerfile has no FROM; it must say what it starts from")
        return "\n".join(lines) + "\n"

    def _starting(
        self, rest: str, values: Mapping[str, str], stages: list[str], images: Mapping[str, str]
    ) -> str:
        words = rest.split()
        options = [word for word in words if word.startswith("--")]
        name, *more = [word for word in words if not word.startswith("--")] or [""]
        name = _VARIABLE.sub(
            lambda found: values.get(found[1] or found[3]) or found[2] or "", name
        )
        if not name:
            raise UsageError(f"FROM {rest} names no image; give its ARG a value")
        if name not in stages and name != _SCRATCH:
            self._need(name)
            name = images.get(name, name)
        if len(more) == 2 and more[0].upper() == "AS":
            stages.append(more[1])
        return " ".join(["FROM", *options, name, *more])

    def _need(self, name: str) -> None:
        if name not in self.bases:
            self.bases.append(name)


def _is_copy(instruction: str) -> bool:
    word, *options = instruction.split() or [""]
    return word.upper() in ("COPY", "ADD") and not any(
        option.startswith("--from=") for option in options
    )


def _from_tree(word: str, rest: str) -> str:
    """A COPY or ADD whose sources are in the tree of its mode."""
    mode = _MODE.search(rest)
    folder = f"{_PLAIN}-{mode[1]}" if mode else _PLAIN
    words = _MODE.sub("", rest).split()
    options = [each for each in words if each.startswith("--")]
    named = " ".join(each for each in words if not each.startswith("--"))
    *sources, target = json.loads(named) if named.startswith("[") else named.split()
    sources = [each if "://" in each else f"{folder}/{each}" for each in sources]
    return " ".join([word, *options, json.dumps([*sources, target])])


def _instructions(text: str) -> Iterator[str]:
    """Each instruction with the lines that continue it, and each comment by itself."""
    waiting: list[str] = []
    for line in text.splitlines():
        is_comment = line.lstrip().startswith("#")
        if not waiting and (is_comment or not line.strip()):
            yield line
            continue
        waiting.append(line)
        if is_comment or line.rstrip().endswith("\\"):
            continue
        yield _joined(waiting)
        waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(lines: list[str]) -> str:
    """The lines of those that are read as one, those of others as they are."""
    word = lines[0].split(maxsplit=1)[0].upper()
    if word not in ("FROM", "ARG", "COPY", "ADD"):
        return "\n".join(lines)
    kept = [line for line in lines if not line.lstrip().startswith("#")]
    return " ".join(line.rstrip().removesuffix("\\").strip() for line in kept)


def ignored_paths(context: Path, *, keep: str) -> set[str]:
    """Return what .dockerignore of a context leaves out; never the path `keep`."""
    file = context / ".dockerignore"
    if not file.is_file():
        return set()
    rules = []
    for line in file.read_text("utf-8").splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#"):
            named = pattern.removeprefix("!").strip().removeprefix("./")
            rules.append((not pattern.startswith("!"), Wildcards([named])))
    found = set()
    for path in context.rglob("*"):
        name = path.relative_to(context).as_posix()
        ignored = False
        for excluded, wildcards in rules:
            if wildcards.match(name):
                ignored = excluded
        if ignored and name != keep:
            found.add(name)
    return found


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
