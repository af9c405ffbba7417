"""Make the golden files: files that commit 557b711 wrote and that must stay readable.

They are made once, by that commit, and never again by a later one:

    git clone . /tmp/at-557b711 && git -C /tmp/at-557b711 checkout 557b711
    PYTHONPATH=/tmp/at-557b711/src .venv/bin/python -m tests.golden.make

Everything runs in a temporary folder with relative paths. One thing is changed afterwards: the
file `lock` of an unfinished run names the machine, and gets another name. At the end the
files are searched for this machine's name and paths, and nothing is kept if one is found.
"""

import getpass
import json
import lzma
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import duckdb

from tests.golden.commands import CONFIGURATIONS, ELSEWHERE, KILLED, OUTPUTS, RUNS, STORE
from tests.golden.inputs import BASE_URL, ENVIRONMENT, write_inputs
from tests.golden.player import Player, playing

COMMIT: Final = "557b711"
TARGET: Final = Path(__file__).parent / COMMIT
_PATIENCE_S: Final = 120
_ASSAY: Final = (sys.executable, "-m", "assay")


def main() -> None:
    """Make the golden files anew."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        parts = {
            "store": make_store,
            "killed": make_killed_run,
            "configurations": make_configurations,
        }
        packed = {}
        for part, make in parts.items():
            folder = root / part
            folder.mkdir()
            write_inputs(folder)
            make(folder)
            check_anonymous(folder)
            packed[part] = pack(folder)
    TARGET.mkdir(exist_ok=True)
    for part, content in packed.items():
        (TARGET / f"{part}.tar.xz").write_bytes(content)
        print(f"{part}: {len(content):,} bytes")


def make_store(folder: Path) -> None:
    """Make a finished database with every kind of record, and the output of every command."""
    for run_id, options in RUNS.items():
        files = ("--traces-dir", f"traces/{run_id}")
        assay(folder, "run", *options, "--run-id", run_id, *files, *STORE)
    check_commit(folder / "golden.duckdb")
    note = ("--note", "sees two turns only")
    assay(folder, "experiments", "tag", "builtin/forager v1.1", *note, *STORE)
    assay(folder, "analysis", "--plan", "plan.toml", "--register", *STORE)
    curves = sorted(f"curves/{path.name}" for path in (folder / "curves").iterdir())
    assay(folder, "curves", "import", *curves, "--subject", "net", *STORE)
    assay(folder, "traces", "import", "logs", *STORE)
    (folder / "results").mkdir()
    for run_id in RUNS:
        [results] = (folder / "traces" / run_id).glob("multi_model_results_*.json")
        shutil.copy(results, folder / "results" / f"{run_id}.json")
    (folder / "outputs").mkdir()
    for name, output in OUTPUTS.items():
        printed = assay(folder, *output.command)
        if not output.files:
            (folder / "outputs" / f"{name}.json").write_text(printed, "utf-8")
    (folder / "variance.png").unlink()


def make_killed_run(folder: Path) -> None:
    """Make a killed run with stored sessions, finished journals and unfinished journals."""
    whole, killed = folder / "whole", (*KILLED, "--run-id", "killed")
    whole.mkdir()
    write_inputs(whole)
    with playing() as player:
        assay(whole, *killed, player=player)
        (whole / "asked.json").write_text(json.dumps(player.requests), "utf-8")
    assert len(set(player.requests)) == len(player.requests) == 6 * 8
    export = ("--format", "jsonl", "--output", "sessions.jsonl", "--database", "killed.duckdb")
    assay(whole, "traces", "export", *export)
    for path in [*whole.iterdir()]:
        if path.name not in ("asked.json", "sessions.jsonl"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    database, journals = folder / "killed.duckdb", folder / "killed.duckdb.journal" / "killed"
    with playing(16) as player, started(folder, *killed, player=player) as process:
        # Two sessions are stored; while the database is locked two more end.
        until(lambda: stored_sessions(database) == 2, "two stored sessions")
        with duckdb.connect(str(database), read_only=True):
            player.allow(32)
            until(lambda: ended(journals) == 2, "two sessions that ended")
            player.allow(37)
            until(lambda: len(player.requests) == 39, "two requests without an answer")
            time.sleep(0.5)
            kill(process)
    assert stored_sessions(database) == 2
    rename_machine(folder)


def make_configurations(folder: Path) -> None:
    """Make an unfinished run of each configuration, with the ids it gets."""
    ids = {}
    database = folder / "unfinished.duckdb"
    assay(folder, "traces", "import", "logs", "--database", database.name)
    for name, options in CONFIGURATIONS.items():
        address = ELSEWHERE if name == "chosen" else "127.0.0.1:0"
        command = ("run", *options, "--run-id", name, "--database", "whole.duckdb")
        with playing(address=address) as player:
            assay(folder, *command, player=player)
        ids[name] = ids_of(folder / "whole.duckdb", name)
        # Nothing is stored while the database is locked.
        command = ("run", *options, "--run-id", name, "--database", database.name)
        with (
            duckdb.connect(str(database), read_only=True),
            playing(0, address) as player,
            started(folder, *command, player=player) as process,
        ):
            until(lambda player=player: bool(player.requests), "a request")  # type: ignore[misc]
            time.sleep(0.5)
            kill(process)
    (folder / "ids.json").write_text(json.dumps(ids, indent=1), "utf-8")
    (folder / "whole.duckdb").unlink()
    shutil.rmtree(folder / "traces_multi_model")
    rename_machine(folder)


def ids_of(database: Path, run_id: str) -> dict[str, Any]:
    """Return the fingerprints and ids of a run, and its configuration."""
    with duckdb.connect(str(database), read_only=True) as connection:
        experiments = connection.execute(
            "SELECT model, id, series, fingerprint, tags FROM experiments WHERE run_id = ? "
            "ORDER BY position",
            [run_id],
        ).fetchall()
        sessions = connection.execute(
            "SELECT subject, seed, episode, session_id FROM session_traces WHERE run_id = ? "
            "ORDER BY subject, episode",
            [run_id],
        ).fetchall()
        stored = connection.execute(
            "SELECT configuration FROM runs WHERE id = ?", [run_id]
        ).fetchall()
    return {
        "experiments": [list(row) for row in experiments],
        "sessions": [list(row) for row in sessions],
        "configuration": json.loads(stored[0][0]),
    }


def assay(folder: Path, *arguments: str, player: Player | None = None) -> str:
    """Run a command to its end and return its output."""
    done = subprocess.run(
        [*_ASSAY, *arguments],
        cwd=folder,
        env=environment(player),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"assay {' '.join(arguments)}: {done.returncode}: {done.stderr}")
    return done.stdout


def started(folder: Path, *arguments: str, player: Player) -> "subprocess.Popen[bytes]":
    """Start a command that will be killed."""
    return subprocess.Popen(
        [*_ASSAY, *arguments],
        cwd=folder,
        env=environment(player),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill(process: "subprocess.Popen[bytes]") -> None:
    assert process.poll() is None, "it has ended already"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def environment(player: Player | None) -> Mapping[str, str]:
    more = {} if player is None else {BASE_URL: player.url}
    return {**os.environ, **ENVIRONMENT, **more}


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.01)


def stored_sessions(database: Path) -> int:
    """Return the number of stored sessions; 0 while the run locks the file."""
    try:
        with duckdb.connect(str(database), read_only=True) as connection:
            found = connection.execute("SELECT count(*) FROM session_traces").fetchall()
    except duckdb.Error:
        return 0
    return int(found[0][0])


def ended(journals: Path) -> int:
    return sum(b'"kind":"end"' in path.read_bytes() for path in journals.glob("*.jsonl"))


def check_commit(database: Path) -> None:
    with duckdb.connect(str(database), read_only=True) as connection:
        [(text,), *_] = connection.execute("SELECT provenance FROM runs").fetchall()
    made = json.loads(text)
    if not made["commit"].startswith(COMMIT) or made["dirty"]:
        raise SystemExit(f"this is not a clean checkout of {COMMIT}: {text}")


def rename_machine(folder: Path) -> None:
    for lock in folder.glob("*.journal/*/lock"):
        lock.write_text("1 machine\n", "utf-8")


def check_anonymous(folder: Path) -> None:
    """Stop if a file names this machine, its folders or its user."""
    paths = {str(Path.home()), str(Path.cwd()), tempfile.gettempdir(), "/home/"}
    names = {socket.gethostname(), getpass.getuser()}
    personal = re.compile(
        "|".join([*map(re.escape, paths), *(rf"\b{re.escape(name)}\b" for name in names)])
    )
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (found := personal.search(text_of(path))):
            raise SystemExit(f"{path} names this machine: {found[0]}")
        raw = path.read_bytes() if path.is_file() else b""
        if any(folder.encode() in raw for folder in paths):
            raise SystemExit(f"{path} holds a path of this machine")


def text_of(path: Path) -> str:
    """Return all text in a file, including the rows of databases and Parquet files."""
    binary = path.suffix in (".duckdb", ".parquet")
    return rows_of(path) if binary else path.read_text("utf-8")


def rows_of(path: Path) -> str:
    """Return all rows of a database or a Parquet file as text."""
    with duckdb.connect() as connection:
        if path.suffix == ".parquet":
            return repr(connection.execute(f"FROM '{path}'").fetchall())
        connection.execute(f"ATTACH '{path}' AS golden (READ_ONLY)")
        connection.execute("USE golden")
        tables = connection.execute("SELECT table_name, sql FROM duckdb_tables()").fetchall()
        rows = [connection.execute(f"FROM {name}").fetchall() for name, _ in tables]
        return repr((tables, rows))


def pack(folder: Path) -> bytes:
    """Pack a folder into one file; equal content gives equal bytes."""
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            if path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            else:
                content = path.read_bytes()
                entry.size = len(content)
                archive.addfile(entry, BytesIO(content))
    return lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME)


if __name__ == "__main__":
    main()
