"""Files and requests that take memory or time without end, or are stored though wrong."""

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from .scene import Attack, Scene

__all__ = ["ATTACKS"]

_ENOUGH_MB: Final = 2_000


def _attack_parquet(scene: Scene) -> str:
    scene.without_sandbox()
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.array([0] * 1_000_000)
    with pq.ParquetWriter(
        scene.folder / "bomb.parquet", pa.schema([("step", pa.int64())])
    ) as out:
        for _ in range(300):
            out.write_table(pa.table({"step": rows}))
    peak, done = _measure_peak_mb(scene, "curves", "import", "bomb.parquet")
    if "MemoryError" in done or peak > _ENOUGH_MB:
        return f"it took {peak:,.0f} MB: {done.strip().splitlines()[-1][:100] if done else ''}"
    return ""


def _attack_columns(scene: Scene) -> str:
    scene.without_sandbox()
    names = ["step", *(f"m{number}" for number in range(50_000))]
    (scene.folder / "wide.csv").write_text(
        ",".join(names) + "\n" + ",".join(["1"] * len(names))
    )
    return _find_hang(scene, 60, "curves", "import", "wide.csv")


def _attack_fifo(scene: Scene) -> str:
    scene.without_sandbox()
    os.mkfifo(scene.folder / "f.duckdb")
    return _find_hang(scene, 30, "traces", "list", "--database", "f.duckdb")


def _attack_dangling_link(scene: Scene) -> str:
    scene.without_sandbox()
    (scene.folder / "link.duckdb").symlink_to("real.duckdb")
    run = ("run", "--models", "builtin/random", "--no-baselines", "--episodes", "1")
    done = scene.assay(*run, "--max-turns", "2", "--database", "link.duckdb", seconds=400)
    if done.code == 0 or (done.code == 2 and "link" in done.output):
        return ""
    return f"exit code {done.code}: {done.output.strip().splitlines()[-1][:160]}"


def _attack_negative_cost(scene: Scene) -> str:
    scene.without_sandbox()
    trajectory = {
        "schema_version": "ATIF-v1.6",
        "session_id": "s1",
        "agent": {"name": "a", "version": "1", "model_name": "m"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "go"},
            {"step_id": 2, "source": "agent", "message": "done", "model_name": "m"},
        ],
        "final_metrics": {"total_cost_usd": -5.0, "total_steps": 2},
    }
    (scene.folder / "t.json").write_text(json.dumps(trajectory))
    scene.assay("traces", "import", "t.json", "--database", "s.duckdb")
    if not (scene.folder / "s.duckdb").exists():
        return ""
    listed = scene.assay("traces", "list", "--json", "--database", "s.duckdb").output
    return "a cost of -5 dollars is stored" if "-5" in listed else ""


def _attack_garbage(scene: Scene) -> str:
    scene.without_sandbox()
    folder = scene.folder / "wandb" / "offline-run-20260101_000000-abcd1234"
    folder.mkdir(parents=True)
    (folder / "run-abcd1234.wandb").write_bytes(b":W&B\xe1\xbe\x00" + os.urandom(4096))
    done = scene.assay("curves", "import", "wandb", "--database", "c.duckdb")
    return f"exit code 0: {done.output.strip()[:160]}" if done.code == 0 else ""


def _attack_half_bodies(scene: Scene) -> str:
    """Send incomplete bodies to a proxy in a separate process, and measure its memory."""
    scene.without_sandbox()
    path = scene.folder / "s"
    server = subprocess.Popen([sys.executable, "-m", "prove.attacks.proxy", str(path)])
    try:
        while not path.exists():
            if server.poll() is not None:
                raise RuntimeError("the proxy did not start")
            time.sleep(0.05)
        before = _read_memory_mb(server.pid)
        asyncio.run(_send_half_bodies(path))
        grew = _read_memory_mb(server.pid) - before
    finally:
        server.kill()
        server.wait()
    return f"the proxy took {grew:,.0f} MB more" if grew > 2 * 128 + 64 else ""


async def _send_half_bodies(path: Path) -> None:
    """Send 30 bodies of 60 MB, each without its last bytes."""
    head = b"POST /v1/responses HTTP/1.1\r\nHost: p\r\nContent-Length: %d\r\n\r\n" % (60 << 20)

    async def send() -> None:
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(head)
        for _ in range(59):
            writer.write(bytes(1 << 20))
            await writer.drain()

    sent = [asyncio.ensure_future(send()) for _ in range(30)]
    await asyncio.wait(sent, timeout=20)
    for task in sent:
        task.cancel()
    await asyncio.gather(*sent, return_exceptions=True)


def _read_memory_mb(pid: int) -> float:
    """The most that a process had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _find_hang(scene: Scene, seconds: float, *arguments: str) -> str:
    done = scene.assay(*arguments, seconds=seconds)
    return f"it did not end in {seconds:g} s" if done.code is None else ""


def _measure_peak_mb(scene: Scene, *arguments: str) -> tuple[float, str]:
    """Run a command that may take 8 GB; the most memory that it had, and what it said."""
    with (scene.folder / "said").open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "assay", *arguments],
            cwd=scene.folder,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)),
        )
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0  # which is waited for already
    output = (scene.folder / "said").read_text("utf-8", "replace")
    return usage.ru_maxrss / 1024, output


_BOUND: Final = "rows and columns are counted before they are read"
_REGULAR: Final = "the path of a store is checked first"
ATTACKS: tuple[Attack, ...] = (
    Attack(
        "half-bodies",
        "30 bodies of 60 MB that never end, at a trial's proxy",
        "all bodies of a proxy together have at most 128 MiB",
        _attack_half_bodies,
    ),
    Attack("parquet-rows", "a small Parquet file of 300 million rows", _BOUND, _attack_parquet),
    Attack("csv-columns", "a CSV file of 50,000 columns", _BOUND, _attack_columns),
    Attack("fifo-store", "a FIFO as database", _REGULAR, _attack_fifo),
    Attack("dangling-store", "a link to nothing as database", _REGULAR, _attack_dangling_link),
    Attack(
        "negative-cost",
        "a trajectory that cost -5 dollars",
        "numbers of other programs are checked",
        _attack_negative_cost,
    ),
    Attack(
        "garbage-wandb",
        "a .wandb file without one readable record",
        "a file without a record is damaged",
        _attack_garbage,
    ),
)
