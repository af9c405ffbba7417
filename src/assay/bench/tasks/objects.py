"""Git objects, made without git: files, trees, and the one commit that a task starts from."""

import hashlib
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "FILE",
    "LINK",
    "PROGRAM",
    "Entry",
    "blob_hash",
    "write_blob",
    "write_commit",
    "write_tree",
]

FILE = "100644"
PROGRAM = "100755"
"""A file that may be run."""
LINK = "120000"
_FOLDER = "40000"
_WHO = "assay <assay@localhost> 946684800 +0000"
"""The same on every machine at any time, so that the commit is."""


class Entry(NamedTuple):
    """What stands at a path."""

    mode: str
    sha: str
    """The name of its content as git has it."""


def blob_hash(content: bytes) -> str:
    """The name that git gives a content."""
    return hashlib.sha1(
        b"blob %d\0" % len(content) + content, usedforsecurity=False
    ).hexdigest()


def write_blob(git_dir: Path, content: bytes) -> str:
    """Keep a content, and return its name."""
    return _write(git_dir, b"blob", content)


def write_tree(git_dir: Path, entries: Mapping[str, Entry]) -> str:
    """Keep the tree of all paths, and return its name."""
    root: dict[bytes, object] = {}
    for path, entry in entries.items():
        *folders, name = os.fsencode(path).split(b"/")
        folder = root
        for part in folders:
            inner = folder.setdefault(part, {})
            assert isinstance(inner, dict)
            folder = inner
        folder[name] = entry
    return _write_folder(git_dir, root)


def write_commit(git_dir: Path, tree: str) -> str:
    """Keep a commit without a parent as the head of the branch, and return its name."""
    text = f"tree {tree}\nauthor {_WHO}\ncommitter {_WHO}\n\nThe start of the task\n"
    commit = _write(git_dir, b"commit", text.encode())
    (git_dir / "refs" / "heads" / "main").write_text(f"{commit}\n", "utf-8")
    return commit


def _write_folder(git_dir: Path, folder: Mapping[bytes, object]) -> str:
    rows = []
    for name, inner in folder.items():
        if isinstance(inner, Entry):
            rows.append((name, name, inner.mode, inner.sha))
        elif isinstance(inner, dict):
            # Git sorts a folder as if its name ended in a slash.
            rows.append((name + b"/", name, _FOLDER, _write_folder(git_dir, inner)))
    content = b"".join(
        b"%s %s\0%s" % (mode.encode(), name, bytes.fromhex(sha))
        for _, name, mode, sha in sorted(rows)
    )
    return _write(git_dir, b"tree", content)


def _write(git_dir: Path, kind: bytes, content: bytes) -> str:
    whole = b"%s %d\0%s" % (kind, len(content), content)
    sha = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    path = git_dir / "objects" / sha[:2] / sha[2:]
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(whole, 1))
    return sha
