"""Parsing of Dockerfiles: base images, copies, users, and .dockerignore.

Only these parts are read here; the engine reads the rest. Its builder does not support the
option `--chmod`: each mode gets a separate tree in the context, whose files already have it.

`find_user` resolves the user of an image from the image's own files.
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
"""Tree for unchanged copies, if other files are copied with a mode."""
_SCRATCH: Final = "scratch"


class Dockerfile:
    """A Dockerfile whose image names can be replaced."""

    def __init__(self, text: str, arguments: Mapping[str, str]) -> None:
        self._instructions = list(_split_instructions(text))
        self._given = arguments
        self.bases: list[str] = []
        """External images that it needs, in the order of their first use."""
        modes = sorted(set(_MODE.findall("\n".join(filter(_is_copy, self._instructions)))))
        self.trees: dict[str, int | None] = {"": None}
        """Copies of the context by folder, with the mode of all files, or None."""
        self.user: str | None = None
        """User of its last stage, or None."""
        if modes:
            self.trees = {_PLAIN: None, **{f"{_PLAIN}-{mode}": int(mode, 8) for mode in modes}}
        self.replace_bases({})

    def replace_bases(self, images: Mapping[str, str]) -> str:
        """Return the text with its base images replaced by these."""
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
                raw = self._rewrite_from(rest, values, stages, images)
            elif word == "USER":
                self.user = rest.strip()
            elif word == "COPY" and (found := _FROM_IMAGE.search(rest)):
                source = found[2]
                if source not in stages and not source.isdigit():
                    self._add_base(source)
                    raw = raw.replace(found[0], f"--from={images.get(source, source)}", 1)
            elif _is_copy(raw) and _PLAIN in self.trees:
                raw = _rewrite_copy(word, rest)
            lines.append(raw)
        if not count:
            raise UsageError("the Dockerfile has no FROM instruction")
        return "\n".join(lines) + "\n"

    def _rewrite_from(
        self, rest: str, values: Mapping[str, str], stages: list[str], images: Mapping[str, str]
    ) -> str:
        words = rest.split()
        options = [word for word in words if word.startswith("--")]
        name, *more = [word for word in words if not word.startswith("--")] or [""]
        name = _VARIABLE.sub(
            lambda found: values.get(found[1] or found[3]) or found[2] or "", name
        )
        if not name:
            raise UsageError(f"FROM {rest} has no image name; give its ARG a value")
        if name not in stages and name != _SCRATCH:
            self._add_base(name)
            name = images.get(name, name)
        if len(more) == 2 and more[0].upper() == "AS":
            stages.append(more[1])
        return " ".join(["FROM", *options, name, *more])

    def _add_base(self, name: str) -> None:
        if name not in self.bases:
            self.bases.append(name)


def _is_copy(instruction: str) -> bool:
    word, *options = instruction.split() or [""]
    return word.upper() in ("COPY", "ADD") and not any(
        option.startswith("--from=") for option in options
    )


def _rewrite_copy(instruction: str, rest: str) -> str:
    """Rewrite a COPY or ADD to read from the tree of its mode."""
    mode = _MODE.search(rest)
    folder = f"{_PLAIN}-{mode[1]}" if mode else _PLAIN
    words = _MODE.sub("", rest).split()
    options = [word for word in words if word.startswith("--")]
    paths = " ".join(word for word in words if not word.startswith("--"))
    *sources, target = json.loads(paths) if paths.startswith("[") else paths.split()
    sources = [source if "://" in source else f"{folder}/{source}" for source in sources]
    return " ".join([instruction, *options, json.dumps([*sources, target])])


def _split_instructions(text: str) -> Iterator[str]:
    """Yield each instruction with its continuation lines, and each comment separately."""
    pending: list[str] = []
    for line in text.splitlines():
        is_comment = line.lstrip().startswith("#")
        if not pending and (is_comment or not line.strip()):
            yield line
            continue
        pending.append(line)
        if is_comment or line.rstrip().endswith("\\"):
            continue
        yield _join_lines(pending)
        pending = []
    if pending:
        yield _join_lines(pending)


def _join_lines(lines: list[str]) -> str:
    """Join the lines of instructions that are parsed; leave others unchanged."""
    word = lines[0].split(maxsplit=1)[0].upper()
    if word not in ("FROM", "ARG", "COPY", "ADD"):
        return "\n".join(lines)
    kept = [line for line in lines if not line.lstrip().startswith("#")]
    return " ".join(line.rstrip().removesuffix("\\").strip() for line in kept)


def ignored_paths(context: Path, *, keep: str) -> set[str]:
    """Return the paths that the .dockerignore file of a context excludes.

    Args:
        context: The folder.
        keep: A path that is never excluded.
    """
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
"""Finds a file of an image on this machine, by its path without a leading slash."""


class ImageUser(NamedTuple):
    """A user of an image."""

    number: int = 0
    home: str = "/root"
    switch: tuple[str, ...] = ()
    """Command prefix that switches to this user; empty for root."""


def find_user(find: Find, user: str | None) -> ImageUser:
    """Find the user with a name, number, or `USER:GROUP`; root for None.

    Raises:
        UsageError: The image has no such user.
    """
    name, _, group = (user or "0").partition(":")
    rows = _read_rows(find, "etc/passwd")
    row = next((row for row in rows if name in (row[0], row[2])), None)
    if row is None and not name.isdecimal():
        known = ", ".join(row[0] for row in rows) or "none"
        raise UsageError(f"the image has no user {name!r}; it has: {known}")
    uid, gid, home = (row[2], row[3], row[5]) if row else (name, name, "/")
    if group:
        gid = str(_find_group_id(find, "etc/group", group))
    if uid == "0":
        return ImageUser(home=home)
    if find("usr/bin/setpriv") is None:
        raise UsageError(f"user {user!r} needs the program setpriv in the image; install it")
    groups = [row[2] for row in _read_rows(find, "etc/group") if name in row[3].split(",")]
    switch = ("/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}")
    others = f"--groups={','.join(groups)}" if groups else "--clear-groups"
    return ImageUser(int(uid), home, switch=(*switch, others, "--"))


def _find_group_id(find: Find, file: str, name: str) -> int:
    if name.isdecimal():
        return int(name)
    for row in _read_rows(find, file):
        if row[0] == name:
            return int(row[2])
    raise UsageError(f"the image has no {name!r} in /{file}")


def _read_rows(find: Find, file: str) -> list[list[str]]:
    path: Path | None = find(file)
    if path is None:
        return []
    lines = path.read_text("utf-8", "replace").splitlines()
    width = 7 if file.endswith("passwd") else 4
    return [row for line in lines if len(row := line.split(":")) == width]
