"""`python -m prove.attacks`: what an untrusted task, agent or file gets, tried for real.

Every attack is tried against bubblewrap as root, against bubblewrap as an ordinary user, and
against Docker. Prints Markdown for `docs/design/sandboxes.md`: `contained`, `OPEN`, `n/a` where
it cannot be, `named` where plan and record say that a limit does not hold, `BROKEN` where it
was not tried though it should be. The exit code is 1 if anything is OPEN or BROKEN.
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from assay.bench.base import get_cache_folder
from assay.core.provenance import collect_provenance

from ..parts import markdown
from . import boxes, files, folders, grader
from .scene import Attack, DocumentedLimit, NotAvailable, Scene

__all__ = ["ATTACKS", "main"]

ATTACKS: Final[tuple[Attack, ...]] = (
    *folders.ATTACKS,
    *boxes.ATTACKS,
    *grader.ATTACKS,
    *files.ATTACKS,
)
PLACES: Final = ("root", "user", "docker")
_USER_ID: Final = 54_321
"""An unused user id, so that it has no more rights than any user."""
_TREE: Final = Path(__file__).parents[2]
_PYTEST: Final = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")
"""Packages that a sandbox needs in addition to Python to run tests."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code is 1 if an attack got through."""
    parser = argparse.ArgumentParser(prog="python -m prove.attacks", description=__doc__)
    names = [attack.name for attack in ATTACKS]
    parser.add_argument(
        "--attack",
        action="append",
        choices=names,
        metavar="NAME",
        help="only this; may be repeated (all): " + ", ".join(names),
    )
    parser.add_argument(
        "--place", action="append", choices=PLACES, help="only here; may be repeated (all)"
    )
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    chosen = [attack for attack in ATTACKS if attack.name in (asked.attack or names)]
    places = asked.place or PLACES
    if asked.here:
        return _run_attacks_here(chosen, places[0], asked.here)
    began = time.perf_counter()
    found: dict[str, dict[str, list[str]]] = {}
    for place in places:
        print(f"{place} …", file=sys.stderr, flush=True)
        found[place] = _run_in_place(place, [attack.name for attack in chosen])
    _print_table(chosen, found)
    print(f"\n{time.perf_counter() - began:,.0f} s, {collect_provenance()}")
    bad = ("OPEN", "BROKEN")
    return int(any(row[0] in bad for rows in found.values() for row in rows.values()))


def _print_table(chosen: Sequence[Attack], found: dict[str, dict[str, list[str]]]) -> None:
    rows = [
        [
            attack.name,
            attack.what,
            attack.held_by,
            *(found[place].get(attack.name, ["n/a"])[0] for place in found),
        ]
        for attack in chosen
    ]
    print(markdown(["attack", "what it tries", "contained by", *found], rows))
    for place, lines in found.items():
        for name, (status, note) in lines.items():
            if note:
                print(f"\n- {name}, {place}: {status}: {note}", end="")
    print()


def _run_in_place(place: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Try attacks in a separate process; return the status of each, and a note."""
    with _make_folder() as folder:
        try:
            command, environment = _build_command(place, folder)
        except NotAvailable as error:
            return {name: ["n/a", str(error)] for name in names}
        options = [f"--attack={name}" for name in names]
        process = subprocess.Popen(
            [*command, "-m", "prove.attacks", f"--here={folder}", f"--place={place}", *options],
            cwd=_TREE,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        lines = [json.loads(line) for line in process.stdout]
        process.wait()
    found = {name: [status, note] for name, status, note in lines}
    return found | {name: ["BROKEN", "not tried"] for name in names if name not in found}


def _build_command(place: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the Python command of a place, and its environment variables."""
    environment = {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "ASSAY_CACHE_DIR": str(folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    is_root = os.geteuid() == 0
    engine = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if place == "docker" and not Path(engine.removeprefix("unix://")).exists():
        raise NotAvailable(
            "no Docker engine is running; start this with tests/sandboxes/with-engine"
        )
    if place == "root" and not is_root:
        raise NotAvailable("this is not root")
    if place != "user" or not is_root:
        return [sys.executable], environment
    for path in (folder, *folder.iterdir()):
        os.chown(path, _USER_ID, _USER_ID)
    switch = [
        "setpriv",
        f"--reuid={_USER_ID}",
        f"--regid={_USER_ID}",
        "--clear-groups",
        "--inh-caps=-all",
    ]
    python = _find_python_for(switch, folder / "python")
    return [*switch, python], environment


def _find_python_for(switch: Sequence[str], folder: Path) -> str:
    """Return a Python with assay that an ordinary user can start: this one, or the system's."""
    if _can_start([*switch, "sh", "-c", 'exec "$0" -c "import assay"', sys.executable]):
        return sys.executable
    system = "/usr/bin/python3"
    version = "import sys; assert sys.version_info[:2] == " + repr(sys.version_info[:2])
    if not _can_start([system, "-c", version]):
        raise NotAvailable(
            f"{sys.executable} is in a folder of root, and {system} has another version"
        )
    subprocess.run([system, "-m", "venv", "--without-pip", str(folder)], check=True)
    ours = Path(sysconfig.get_path("purelib"))
    theirs = (
        folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    )
    for name in _PYTEST:  # a sandbox has this folder, and not those that a path file names
        subprocess.run(["cp", "-r", str(ours / name), str(theirs)], check=True)
    (theirs / "assay.pth").write_text(f"{ours}\n{_TREE / 'src'}\n")
    return str(folder / "bin" / "python")


def _can_start(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, cwd="/", capture_output=True).returncode == 0
    except OSError:
        return False


@contextmanager
def _make_folder() -> Iterator[Path]:
    """Create a folder that all users may enter; in memory if it can be mounted.

    Only there, the disk space of a trial can be measured separately.
    """
    with TemporaryDirectory(prefix="assay-attacks-", ignore_cleanup_errors=True) as name:
        options = ["mount", "-t", "tmpfs", "-o", "size=6g,mode=755", "tmpfs", name]
        mounted = os.geteuid() == 0 and subprocess.run(options, check=False).returncode == 0
        folder = Path(name)
        folder.chmod(0o755)
        try:
            for inner in ("home", "tmp", "cache"):
                (folder / inner).mkdir()
            for compiled in get_cache_folder().glob("crafter-*"):  # which takes a minute
                (folder / "cache" / compiled.name).symlink_to(compiled)
            yield folder
        finally:
            if mounted:
                subprocess.run(["umount", "-l", name], check=False)


def _run_attacks_here(chosen: Sequence[Attack], place: str, folder: Path) -> int:
    """Try attacks in this process; print a line of JSON for each."""
    for attack in chosen:
        began = time.perf_counter()
        where = folder / attack.name
        where.mkdir()
        scene = Scene(where, place)
        try:
            note = attack.run(scene)
            status = "OPEN" if note else "contained"
            note = note or "; ".join(dict.fromkeys(scene.notes))
        except NotAvailable as error:
            status, note = "n/a", str(error)
        except DocumentedLimit as error:
            status, note = "named", str(error)
        except Exception as error:  # one attack that cannot be tried must not hide the others
            status, note = "BROKEN", f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - began
        print(json.dumps([attack.name, status, note]), flush=True)
        print(
            f"  {attack.name}: {status} ({seconds:.0f} s) {note}", file=sys.stderr, flush=True
        )
        subprocess.run(["rm", "-rf", str(where)], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
