"""Docker specifics: engine, containers and leftovers."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.bench.run import bench_run
from assay.core.aio import run_in_own_loop
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.backends import choose_backend
from assay.sandboxes.base import Command, ResourceLimits, Sandbox
from assay.sandboxes.docker.backend import DockerBackend
from assay.sandboxes.docker.engine import DockerEngine
from assay.sandboxes.dockerfile import Dockerfile, ignored_paths

from .boxes import MARK, containers, found, in_sandbox, leftovers, marked, run, spec, usable

TASK = Path(__file__).parents[2] / "examples" / "bench" / "tasks" / "fix-bookings"
PLANTED = "sk-planted-0123456789abcdefghijkl"


# Without an engine


def test_missing_docker_engine_error_explains_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(SandboxUnavailable, match=r"none\.sock.*apt install docker\.io"):
        choose_backend("docker").enforcement(ResourceLimits())


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:2375", "ssh://somewhere", "unix://relative"])
def test_remote_docker_engine_is_rejected(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(UsageError, match=f"{host}.*unix:///path"):
        choose_backend("docker").enforcement(ResourceLimits())


@contextmanager
def engine_that_says(folder: Path, answer: bytes) -> Iterator[str]:
    """A server on a Unix socket that gives every request the same answer."""
    path = str(folder / "fake.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.recv(65536)
                    client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"unix://{path}"
        server.shutdown(socket.SHUT_RDWR)


def engine_info(**told: object) -> bytes:
    able = {"OSType": "linux", "MemoryLimit": True, "PidsLimit": True, "CpuCfsQuota": True}
    body = json.dumps({**able, **told}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"OSType": "windows"}, "runs windows containers"),
        ({"MemoryLimit": False}, "memory limit"),
        ({"PidsLimit": False}, "process limit"),
        ({"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}, "rootless"),
        ({"SecurityOptions": ["name=userns"]}, "userns"),
    ],
    ids=["windows", "memory", "processes", "rootless", "userns"],
)
def test_docker_engine_without_all_limits_is_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: dict[str, object], reason: str
) -> None:
    with engine_that_says(tmp_path, engine_info(**told)) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        with pytest.raises(SandboxUnavailable, match=reason):
            DockerBackend().enforcement(ResourceLimits())


# Files of a build


def test_the_images_a_dockerfile_needs_are_found_and_replaced() -> None:
    text = (
        "# syntax=docker/dockerfile:1\nARG TAG=12\nARG \\\n  NAME\n"
        "FROM --platform=linux/amd64 ${NAME:-debian}:$TAG \\\n  AS one\n"
        "RUN echo FROM nobody \\\n  && true\nFROM one\nFROM scratch\n"
        "COPY --from=one /a /b\nCOPY --from=tools:1 /c /d\nCOPY --from=0 /e /f\n"
    )
    file = Dockerfile(text, {"TAG": "13"})
    assert file.bases == ["debian:13", "tools:1"]
    made = file.replace_bases({"debian:13": "sha256:a", "tools:1": "sha256:b"}).splitlines()
    assert "FROM --platform=linux/amd64 sha256:a AS one" in made
    assert "COPY --from=sha256:b /c /d" in made
    assert {"FROM one", "FROM scratch", "RUN echo FROM nobody \\", "  && true"} <= {*made}
    with pytest.raises(UsageError, match="no FROM"):
        Dockerfile("RUN true\n", {})
    with pytest.raises(UsageError, match="give its ARG a value"):
        Dockerfile("ARG BASE\nFROM $BASE\n", {})


def test_copied_files_with_a_mode_come_from_a_prepared_tree() -> None:
    text = 'FROM a\nCOPY x y /d/\nCOPY --chown=1 --chmod=0755 x /d\nADD ["a b", "/c"]\n'
    file = Dockerfile(f"{text}COPY --chmod=644 --from=a /x /y\nADD https://a/b /c\n", {})
    assert file.trees == {"given": None, "given-755": 0o755}
    assert file.replace_bases({}).splitlines()[1:] == [
        'COPY ["given/x", "given/y", "/d/"]',
        'COPY --chown=1 ["given-755/x", "/d"]',
        'ADD ["given/a b", "/c"]',
        "COPY --chmod=644 --from=a /x /y",
        'ADD ["https://a/b", "/c"]',
    ]
    assert Dockerfile("FROM a\nCOPY x y\n", {}).trees == {"": None}


def test_dockerignore_is_honoured(tmp_path: Path) -> None:
    for name in ("a.log", "keep.log", "sub/b.log", "secret/x/y", "Dockerfile"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert ignored_paths(tmp_path, keep="Dockerfile") == set()
    (tmp_path / ".dockerignore").write_text(
        "# logs\n**/*.log\n!keep.log\n/secret\nDockerfile\n"
    )
    left = {"a.log", "sub/b.log", "secret", "secret/x", "secret/x/y"}
    assert ignored_paths(tmp_path, keep="Dockerfile") == left


# With an engine

KILLED = """
import asyncio, sys
from pathlib import Path
from assay.sandboxes.base import Command
from tests.sandboxes.boxes import spec, usable

async def main():
    async with usable("docker").open(spec(Path(sys.argv[1]))) as sandbox:
        print("open", flush=True)
        while True:
            script = "sleep 1000 & sleep 0.3; echo " + sys.argv[2]
            await sandbox.run(Command(argv=("sh", "-c", script), timeout_s=60))

asyncio.run(main())
"""


@pytest.mark.docker
def test_killing_assay_ends_its_containers_and_the_next_run_removes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable("docker")
    (tmp_path / "repo").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arguments = [sys.executable, "-c", KILLED, str(tmp_path / "repo"), MARK]
    pids = []
    for number in range(5):
        with subprocess.Popen(
            arguments, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            # At any moment of a command: while it is set up, runs, or is cleared up.
            time.sleep(0.25 * number)
            process.kill()
        pids.append(process.pid)
        assert not _processes()
    assert containers(f"assay-box-{pids[-1]}-")
    run(usable("docker"), spec(tmp_path / "repo"), "true")
    assert not [left for pid in pids for left in containers(f"assay-box-{pid}-")]
    assert [path.name for path in tmp_path.iterdir()] == ["repo"]


def _processes() -> list[str]:
    return [left for left in leftovers(MARK) if left.startswith("process")]


@pytest.mark.docker
def test_container_of_a_running_process_is_kept(tmp_path: Path) -> None:
    usable("docker")

    async def main() -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        # The second one begins by removing what it thinks is nobody's.
        async with (
            DockerBackend().open(spec(tmp_path / "a")) as first,
            DockerBackend().open(spec(tmp_path / "b")) as second,
        ):
            for sandbox in (first, second):
                end = await sandbox.run(Command(argv=("true",), timeout_s=30))
                assert end.exit_code == 0

    asyncio.run(main())
    assert not leftovers()


@pytest.mark.docker
def test_orphaned_processes_are_reaped_and_not_counted(tmp_path: Path) -> None:
    ten = "; ".join(["(true &)"] * 10)
    orphans = f"for i in 1 2 3 4 5; do {ten}; sleep 0.3; done; echo done"
    end = run(usable("docker"), spec(tmp_path), "sh", "-c", orphans)
    assert end.output == b"done\n"
    assert not end.findings


@pytest.mark.docker
def test_resource_usage_is_measured_per_command(tmp_path: Path) -> None:
    async def measured(sandbox: Sandbox) -> None:
        eat = "kept = bytearray(b'x') * 80_000_000; print(sum(range(5_000_000)))"
        first = Command(argv=("/usr/bin/python3", "-c", eat), timeout_s=30)
        large = await sandbox.run(first)
        small = await sandbox.run(Command(argv=("sleep", "0.2"), timeout_s=30))
        assert large.peak_memory_mb > 75
        assert small.peak_memory_mb < 40
        assert small.cpu_s < large.cpu_s
        fork = (
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26; do"
        )
        crowd = await sandbox.run(
            Command(argv=("sh", "-c", f"{fork} sleep 1 & done; wait"), timeout_s=30)
        )
        assert "process_limit" in found(crowd)
        calm = await sandbox.run(Command(argv=("true",), timeout_s=30))
        assert not calm.findings

    in_sandbox(usable("docker"), spec(tmp_path), measured)


@pytest.mark.docker
def test_key_is_not_in_images_containers_files_logs_or_process_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable("docker")
    monkeypatch.setenv("OPENAI_API_KEY", PLANTED)
    monkeypatch.setenv("SANDBOX_BACKEND", "docker")
    config = tmp_path / "bench.toml"
    look = "env; cat /proc/*/environ /proc/*/cmdline; sleep 1; true"
    entry = f"[[tasks]]\nprepared_dir = '{TASK}'\nagent = 'command'\n"
    config.write_text(f'{entry}command = """{look}"""\n')
    seen: list[str] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.extend(run_in_own_loop(_all_of_the_engine))
            seen.extend(_command_lines())
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        ended = bench_run(config, data_dir=tmp_path / "data", database=tmp_path / "t.duckdb")
    finally:
        stop.set()
        watcher.join()
    (trial,) = ended.manifest.results
    assert trial.agent_stop == "completed"
    assert any("assay-box-" in text for text in seen)
    assert not [text for text in seen if PLANTED in text]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "agent.log" for path in files)
    assert not [path for path in files if PLANTED.encode() in path.read_bytes()]
    if (log := os.environ.get("ASSAY_TEST_ENGINE_LOG")) is not None:
        logged = Path(log).read_text("utf-8", errors="replace")
        assert "ASSAY_INSTRUCTIONS=" in logged, "it has the variables of every request"
        assert PLANTED not in logged


async def _all_of_the_engine() -> list[str]:
    """Return the engine's description of every container and image."""
    told = []
    async with DockerEngine.connect() as engine:
        for container in await engine.call("GET", "/containers/json", query={"all": "1"}):
            path = f"/containers/{container['Id']}"
            about = await engine.call("GET", f"{path}/json", accept=(404,))
            told.append(json.dumps(about))
            for execution in (about or {}).get("ExecIDs") or ():
                found = await engine.call("GET", f"/exec/{execution}/json", accept=(404,))
                told.append(json.dumps(found))
        for image in await engine.call("GET", "/images/json"):
            told.append(
                json.dumps(
                    await engine.call("GET", f"/images/{image['Id']}/json", accept=(404,))
                )
            )
            history = f"/images/{image['Id']}/history"
            told.append(json.dumps(await engine.call("GET", history, accept=(404,))))
    return told


def _command_lines() -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((folder / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


@pytest.mark.docker
def test_interrupted_benchmark_leaves_no_container(tmp_path: Path) -> None:
    usable("docker")
    config = tmp_path / "bench.toml"
    entry = f"[[tasks]]\nprepared_dir = '{TASK}'\nagent = 'command'\nsandbox = 'docker'\n"
    config.write_text(f"{entry}command = 'echo {MARK}; sleep 100'\n")
    with subprocess.Popen(
        [sys.executable, "-m", "assay", "bench", "run", "bench.toml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        deadline = time.monotonic() + 60
        while not marked(MARK):
            assert time.monotonic() < deadline, "the agent works"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert not _processes()
    assert not containers(f"assay-box-{process.pid}-")
