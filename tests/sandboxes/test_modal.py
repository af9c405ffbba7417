"""Modal sandboxes: the real client with a local service that implements its protocols.

How Modal itself keeps to what it is asked for cannot be tested without an account.
"""

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from modal_proto import api_pb2

from assay.bench.run import BenchResult, bench_run
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.base import (
    SHARED,
    Command,
    CommandEnd,
    ImageRecipe,
    ImageSandbox,
    Mount,
    ResourceLimits,
    Sandbox,
    SandboxSpec,
)
from assay.sandboxes.modal.backend import ModalBackend

from .boxes import found, in_sandbox, run, spec
from .modal_server import TOKEN, FakeModal

pytestmark = pytest.mark.docker

TASKS = Path(__file__).parents[2] / "examples" / "bench" / "tasks"


@pytest.fixture
def backend(modal_service: FakeModal) -> Iterator[ModalBackend]:
    yield ModalBackend()
    assert not modal_service.sandboxes, "a sandbox outlived its test"


def shell(script: str, timeout_s: float = 30, stdin: bytes = b"") -> Command:
    return Command(argv=("sh", "-c", script), timeout_s=timeout_s, stdin=stdin)


# Commands


def test_command_runs_as_an_unprivileged_user_and_its_files_are_returned(
    backend: ModalBackend, tmp_path: Path
) -> None:
    (tmp_path / "kept").write_text("1\n")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "deep").touch()
    (tmp_path / "program").write_text("#!/bin/sh\necho runs\n")
    (tmp_path / "program").chmod(0o755)
    script = (
        "id -u; pwd; ./program; cat; echo error >&2; rm -r gone; echo 2 >> kept; "
        "mkdir new; ln -s /etc/passwd new/link; echo x > 'new/a\nb'; exit 7"
    )
    end = run(backend, spec(tmp_path), "sh", "-c", script, stdin=b"given\n")
    assert end.output == b"1000\n/app/repo\nruns\ngiven\nerror\n"
    assert (end.exit_code, end.timed_out, end.findings) == (7, False, ())
    assert (tmp_path / "kept").read_text() == "1\n2\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "new", "program"]
    assert os.readlink(tmp_path / "new/link") == "/etc/passwd"
    assert (tmp_path / "new/a\nb").read_text() == "x\n"
    assert (tmp_path / "program").stat().st_mode & 0o777 == 0o755


def test_sandbox_is_requested_with_limits_and_without_secrets(
    backend: ModalBackend,
    modal_service: FakeModal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-machine")
    limits = ResourceLimits(cpus=0.5, memory_mb=256)
    end = run(backend, spec(tmp_path, limits), "sh", "-c", "env; cat /proc/net/dev")
    asked = modal_service.asked(api_pb2.SandboxCreateV2Request)[-1].definition
    assert (asked.resources.milli_cpu, asked.resources.milli_cpu_max) == (500, 500)
    assert (asked.resources.memory_mb, asked.resources.memory_mb_max) == (256, 256)
    assert asked.network_access.network_access_type == api_pb2.NetworkAccess.BLOCKED
    assert asked.idle_timeout_secs == 600
    assert b"eth0" not in end.output
    told = [bytes(str(request), "utf-8") for request in modal_service.requests]
    for secret in (b"sk-of-this-machine", TOKEN[1].encode()):
        assert secret not in end.output
        assert not [request for request in told if secret in request]
    run(backend, spec(tmp_path, replace(limits, network=("public",))), "true")
    asked = modal_service.asked(api_pb2.SandboxCreateV2Request)[-1].definition
    assert asked.network_access.network_access_type == api_pb2.NetworkAccess.OPEN


def test_read_only_mount_is_not_writable_for_its_owner(
    backend: ModalBackend, tmp_path: Path
) -> None:
    for name in ("repo", "hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "hidden/test").write_text("here\n")
    (tmp_path / "hidden/test").chmod(0o600)
    given = spec(tmp_path / "repo", ResourceLimits(), Mount(tmp_path / "hidden", "/hidden"))
    end = run(
        backend, given, "sh", "-c", "cat /hidden/test; echo x > /hidden/test; rm -r /hidden"
    )
    assert end.output.startswith(b"here\n")
    assert b"ermission denied" in end.output
    assert (tmp_path / "hidden/test").read_text() == "here\n"


def test_commands_run_sequentially_without_leftovers(
    backend: ModalBackend, tmp_path: Path
) -> None:
    async def two(sandbox: Sandbox) -> tuple[CommandEnd, CommandEnd, CommandEnd]:
        first = await sandbox.run(shell("echo 1 > /tmp/a; setsid sleep 1000 & true"))
        slow = await sandbox.run(shell("echo begun; sleep 1000", timeout_s=1))
        return (
            first,
            slow,
            await sandbox.run(shell("cat /tmp/a; echo /proc/[0-9]*/comm | xargs cat")),
        )

    first, slow, last = in_sandbox(backend, spec(tmp_path), two)
    assert first.exit_code == 0
    assert found(first) == {"left_processes"}
    assert "sleep" in first.findings[0].detail
    assert (slow.exit_code, slow.timed_out, slow.output) == (None, True, b"begun\n")
    assert slow.seconds >= 1
    lines = last.output.decode().split()
    assert lines[0] == "1"
    assert lines.count("sleep") == 1, "its own first process"


def test_fast_forking_processes_are_killed(backend: ModalBackend, tmp_path: Path) -> None:
    hops = "import os\nif os.fork() == 0:\n    while 1:\n        os.fork() and os._exit(0)"

    async def two(sandbox: Sandbox) -> CommandEnd:
        await sandbox.run(Command(argv=("python3", "-c", hops), timeout_s=10))
        return await sandbox.run(shell("sleep 0.5; echo /proc/[0-9]*/comm | xargs cat"))

    assert b"python" not in in_sandbox(backend, spec(tmp_path), two).output


def test_cancelled_command_leaves_no_process(backend: ModalBackend, tmp_path: Path) -> None:
    async def given_up(sandbox: Sandbox) -> CommandEnd:
        running = asyncio.ensure_future(sandbox.run(shell("sleep 999; echo late > late")))
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        return await sandbox.run(shell("echo /proc/[0-9]*/cmdline | xargs cat | tr '\\0' ' '"))

    assert b"sleep 999" not in in_sandbox(backend, spec(tmp_path), given_up).output
    assert not (tmp_path / "late").exists()


def test_start_failures_long_output_and_large_files_are_reported(
    backend: ModalBackend, tmp_path: Path
) -> None:
    async def three(sandbox: Sandbox) -> list[CommandEnd]:
        missing = Command(argv=("no-such-program",), timeout_s=10)
        return [
            await sandbox.run(command)
            for command in (
                missing,
                shell("head -c 3000000 /dev/zero"),
                shell("exec head -c 100000000 /dev/zero > large"),
                shell("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"),
            )
        ]

    limits = ResourceLimits(disk_mb=10)
    missing, long, large, busy = in_sandbox(backend, spec(tmp_path, limits), three)
    assert missing.exit_code == 127
    assert found(long) == {"output_cut"}
    assert len(long.output) < 2**21
    assert found(large) == {"disk_limit"}
    assert (tmp_path / "large").stat().st_size == 10 << 20
    assert busy.cpu_s > 0.05


def test_number_of_processes_is_limited(backend: ModalBackend, tmp_path: Path) -> None:
    text = "import os\nwhile True:\n    if os.fork() == 0:\n        import time; time.sleep(99)"
    end = run(backend, spec(tmp_path, ResourceLimits(processes=20)), "python3", "-c", text)
    assert b"Resource temporarily unavailable" in end.output
    assert found(end) == {"left_processes"}


def test_lost_sandbox_is_not_a_failure_of_the_command(
    backend: ModalBackend, modal_service: FakeModal, tmp_path: Path
) -> None:
    async def end_it(sandbox: Sandbox) -> None:
        running = asyncio.ensure_future(sandbox.run(shell("sleep 999")))
        await asyncio.sleep(1)
        (name,) = modal_service.sandboxes
        future = asyncio.run_coroutine_threadsafe(modal_service.end(name), modal_service.loop)
        await asyncio.wrap_future(future)
        await running

    with pytest.raises(SandboxUnavailable, match="Modal"):
        in_sandbox(backend, spec(tmp_path), end_it)


def test_local_sockets_are_forwarded_to_a_modal_sandbox(
    backend: ModalBackend, tmp_path: Path
) -> None:
    shared, repo = tmp_path / "s", tmp_path / "repo"
    shared.mkdir()
    repo.mkdir()
    text = """
import socket, threading
def ask(number):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect('/run/assay/model.sock')
        s.sendall(b'%d ' % number * 50_000 + b'.')
        s.shutdown(socket.SHUT_WR)
        answer = b''.join(iter(lambda: s.recv(65536), b''))
        assert answer == (b'%d ' % number * 50_000 + b'.')[::-1], answer[:50]
        print('answered')
all = [threading.Thread(target=ask, args=[i]) for i in range(12)]
[thread.start() for thread in all]
[thread.join() for thread in all]
"""

    async def main() -> CommandEnd:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.read())[::-1])
            await writer.drain()
            writer.close()

        async with backend.open(spec(repo, ResourceLimits(), Mount(shared, SHARED))) as sandbox:
            # What is put there later is there as well.
            (shared / "script.py").write_text(text)
            async with await asyncio.start_unix_server(answer, shared / "model.sock"):
                argv = ("python3", f"{SHARED}/script.py")
                return await sandbox.run(Command(argv=argv, timeout_s=60))

    end = asyncio.run(main())
    assert end.output == b"answered\n" * 12
    assert not end.findings


# Images

DOCKERFILE = """
ARG NAME=world
FROM base:1
ARG NAME
COPY given some /srv/
RUN echo hello $NAME > /srv/built; mkdir /srv/old; touch /srv/old/a /srv/b; chmod 777 /srv
ENV GREETING=hello
USER ada
WORKDIR /srv
ENTRYPOINT ["false"]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> ImageRecipe:
    context = tmp_path / "environment"
    (context / "some").mkdir(parents=True)
    (context / "Dockerfile").write_text(DOCKERFILE)
    (context / "given").write_text("for the image\n")
    (context / "some/more").write_text("more\n")
    return ImageRecipe(context=context, network=True, arguments={"NAME": "you"})


def on_image(
    backend: ModalBackend, given: SandboxSpec, *scripts: str, export: Path | None = None
) -> list[CommandEnd]:
    async def work(sandbox: Sandbox) -> list[CommandEnd]:
        ends = [await sandbox.run(shell(script)) for script in scripts]
        if export is not None:
            made: ImageSandbox = sandbox  # type: ignore[assignment]
            await made.export(export, exclude=["/srv/left out"])
        return ends

    return in_sandbox(backend, given, work)


def entries(file: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(file) as tar:
        return {entry.name: entry for entry in tar if not entry.isdir()}


def test_image_follows_its_dockerfile_and_its_user_has_a_home(
    backend: ModalBackend, modal_service: FakeModal, recipe: ImageRecipe
) -> None:
    image = asyncio.run(backend.build(recipe))
    before = len(modal_service.images)
    assert asyncio.run(backend.build(recipe)) == image
    assert len(modal_service.images) == before, "it is built once"
    given = SandboxSpec(mounts=(), image=image, workdir="")
    script = "id -un; echo $HOME $GREETING; pwd; cat given more built"
    (end,) = on_image(backend, given, script)
    assert end.output == b"ada\n/home/ada hello\n/srv\nfor the image\nmore\nhello you\n"
    root, team = (
        on_image(backend, replace(given, user=user), "id -u; id -g; echo $HOME")[0].output
        for user in ("root", "ada:team")
    )
    assert root == b"0\n0\n/root\n"
    assert team == b"1234\n77\n/home/ada\n"
    with pytest.raises(UsageError, match="no user 'eve'; it has: root, ada"):
        on_image(backend, replace(given, user="eve"), "true")


def test_changes_are_exported_and_layered_over_the_next_sandbox(
    backend: ModalBackend, recipe: ImageRecipe, tmp_path: Path
) -> None:
    image = asyncio.run(backend.build(recipe))
    given = SandboxSpec(mounts=(), image=image, workdir="", user="0")
    changes, again = tmp_path / "changes.tar", tmp_path / "again.tar"
    change = (
        "rm -r old given; echo new > new; touch -r built stamp; echo hullo me > built; "
        "touch -r stamp built; rm stamp; chmod 600 more; ln -s built link; mkdir dir; "
        "touch dir/f; echo > 'left out'; rm b; mkdir b; touch b/c; touch /tmp/t; "
        "echo 'odd' > 'a\n\\n b'"
    )
    (end,) = on_image(backend, given, change, export=changes)
    assert end.exit_code == 0
    changed = entries(changes)
    assert set(changed) == {
        *("srv/.wh.given", "srv/.wh.old", "srv/new", "srv/built", "srv/more", "srv/link"),
        *("srv/dir/f", "srv/b/c", "srv/a\n\\n b", "tmp/t"),
    }
    assert changed["srv/more"].mode == 0o600
    (end,) = on_image(
        backend,
        replace(given, layer=changes),
        "ls; cat built; rm -r dir",
        export=again,
    )
    assert b"hullo me" in end.output
    assert b"given" not in end.output
    assert set(entries(again)) == set(changed) - {"srv/dir/f"}


@pytest.mark.parametrize(
    "breaks",
    [
        "printf '#!/bin/sh\\necho garbage; echo garbage\\n' > /usr/bin/tar",
        "printf '#!/bin/sh\\necho no list\\n' > /usr/bin/gzip",
        "printf '#!/bin/sh\\nwhile :; do head -c 9999999 /dev/zero; done\\n' > /usr/bin/tar",
        "rm /usr/bin/find",
        "rm /usr/bin/dash /usr/bin/sh /usr/bin/bash",
    ],
    ids=["garbage", "no-list", "endless", "no-find", "no-shell"],
)
def test_damaged_export_programs_leave_a_removed_shell_in_the_export(
    breaks: str, backend: ModalBackend, recipe: ImageRecipe, tmp_path: Path
) -> None:
    image = asyncio.run(backend.build(recipe))
    limits = ResourceLimits(disk_mb=10)
    given = SandboxSpec(mounts=(), image=image, workdir="", user="0", limits=limits)
    (end,) = on_image(backend, given, f"{breaks}; true", export=tmp_path / "changes.tar")
    told = found(end)
    assert told == ({"supervisor_killed"} if "dash" in breaks else set())
    assert set(entries(tmp_path / "changes.tar")) == {"bin/.wh.sh"}


def test_image_that_modal_cannot_build_is_rejected(
    backend: ModalBackend, recipe: ImageRecipe, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="allow it with --build-network"):
        asyncio.run(backend.build(replace(recipe, network=False)))
    with pytest.raises(UsageError, match=r"omit --base-image base:1=\.\.\."):
        asyncio.run(backend.build(replace(recipe, base_images={"base:1": str(tmp_path)})))
    (recipe.context / "Dockerfile").write_text("FROM base:1\nRUN echo why >&2; exit 3\n")
    with pytest.raises(SandboxUnavailable, match="returned a non-zero code: 3"):
        asyncio.run(backend.build(recipe))


# Benchmarks


def bench(folder: Path, *agents: str) -> BenchResult:
    tables = [
        f'[[tasks]]\nprepared_dir = "{TASKS / "fix-bookings"}"\nagent = "{agent}"\n'
        f'label = "{number}"\n'
        for number, agent in enumerate(agents)
    ]
    file = folder / "bench.toml"
    file.write_text('parallel = 4\n[defaults]\nsandbox = "modal"\n' + "\n".join(tables))
    return bench_run(file, data_dir=folder / "data", database=folder / "t.duckdb")


def test_task_is_solved_and_graded_at_modal(modal_service: FakeModal, tmp_path: Path) -> None:
    results = bench(
        tmp_path, "oracle", "nop", "cheat/daemon", "cheat/conftest"
    ).manifest.results
    assert [result.outcome for result in results][:2] == ["solved", "empty_patch"]
    assert [result.score for result in results] == [1.0, 0.0, 0.0, 0.0]
    assert "left_processes" in dict(results[2].findings)
    record = json.loads(Path(results[0].run_dir, "agent.json").read_text())
    assert record["enforcement"]["network"] == "blocked by modal"
    assert not modal_service.sandboxes


# Without an account


def assay(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MODAL")}
    file = folder / "bench.toml"
    file.write_text(f'[[tasks]]\nprepared_dir = "{TASKS / "fix-bookings"}"\nagent = "oracle"\n')
    command = (sys.executable, "-m", "assay", "bench", "run", str(file), "--sandbox", "modal")
    return subprocess.run(
        [*command, "--data-dir", str(folder / "data"), *words],
        env={**clean, "HOME": str(folder), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_command_runs_against_the_service_and_rejects_a_wrong_token(
    modal_service: FakeModal, tmp_path: Path
) -> None:
    account = {"MODAL_SERVER_URL": modal_service.url, "MODAL_TOKEN_ID": TOKEN[0]}
    wrong = assay(tmp_path, **account, MODAL_TOKEN_SECRET="as-planted-in-the-test")
    assert wrong.returncode == 1
    assert "Modal rejects the token" in wrong.stderr
    assert "modal token new" in wrong.stderr
    assert "planted" not in wrong.stdout + wrong.stderr
    right = assay(tmp_path, **account, MODAL_TOKEN_SECRET=TOKEN[1])
    assert right.returncode == 0, right.stderr
    assert "solved" in right.stdout
    assert not modal_service.sandboxes
