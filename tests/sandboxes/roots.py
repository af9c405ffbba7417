"""A small file system made of programs of this machine, for images without a registry."""

import re
import shutil
import subprocess
from pathlib import Path

__all__ = ["PROGRAMS", "small_root"]

PROGRAMS = (
    *(
        "sh",
        "cat",
        "chmod",
        "dd",
        "env",
        "head",
        "id",
        "ln",
        "ls",
        "mkdir",
        "mv",
        "rm",
        "sleep",
    ),
    *("touch", "true", "wc"),
)


def small_root(folder: Path, programs: tuple[str, ...] = PROGRAMS) -> Path:
    """Copy programs, with the libraries that they need, into a new folder."""
    for name in ("bin", "etc", "tmp", "home/coder", "srv"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\ncoder:x:1000:1000::/:/bin/sh\n")
    (folder / "etc/group").write_text("root:x:0:\ncoder:x:1000:\n")
    (folder / "tmp").chmod(0o1777)
    for program in programs:
        path = Path(shutil.which(program) or program).resolve()
        shutil.copy(path, folder / "bin" / program)
        told = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
        for library in re.findall(r"(/\S+) \(0x", told.stdout):
            target = folder / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(library, target)
    return folder
