import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from assay.bench.base import Allowed, CodingTask, Patch
from assay.bench.task_checks import exposed_files
from assay.bench.tasks import tree
from assay.bench.tasks.creation import prepare_task
from assay.bench.tasks.loading import load_task
from assay.bench.tasks.workspace import Workspace, apply_patch, capture, make_workspace
from assay.errors import PatchRejected, ServiceError, UsageError
from tests.bench.tasks import git, make_repository, make_task, write
from tests.support import run_python

MakeWorkspace = Callable[[], Workspace]


@pytest.fixture
def task(tmp_path: Path) -> CodingTask:
    return load_task(make_task(tmp_path / "task"))


@pytest.fixture
def fresh(task: CodingTask, tmp_path: Path) -> MakeWorkspace:
    numbers = iter(range(100))
    return lambda: make_workspace(task, tmp_path / f"workspace-{next(numbers)}")


def named(patch: Patch) -> dict[str, str]:
    return {finding.name: finding.detail for finding in patch.findings}


def contents(root: Path) -> dict[str, tuple[object, int]]:
    """Return all files below a folder except those of git, with their modes."""
    return {
        os.fsdecode(os.path.relpath(os.fsencode(path), os.fsencode(root))): (
            os.readlink(path) if path.is_symlink() else path.read_bytes(),
            path.lstat().st_mode & 0o100,
        )
        for path in root.rglob("*")
        if ".git" not in path.parts and not (path.is_dir() and not path.is_symlink())
    }


# The workspace of an agent


def test_an_agent_gets_one_commit_without_history_or_remotes(tmp_path: Path) -> None:
    start, end = make_repository(tmp_path / "there")
    git(tmp_path / "there", "remote", "add", "origin", "https://example.org/x.git")
    folder = make_task(
        tmp_path / "task",
        with_repo=False,
        repo={"git_url": str(tmp_path / "there"), "start_commit_sha": start},
    )
    task = load_task(folder, allowed=Allowed((str(tmp_path / "there"),)))
    workspace = make_workspace(task, tmp_path / "workspace")
    assert git(workspace.repo, "rev-list", "--all") == workspace.baseline
    assert git(workspace.repo, "remote") == ""
    assert git(workspace.repo, "status", "--short") == ""
    assert git(workspace.repo, "fsck") == ""
    kept = git(workspace.repo, "cat-file", "--batch-check", "--batch-all-objects")
    assert end not in kept
    assert git(tmp_path / "there", "rev-parse", f"{end}:lib/calc.py") not in kept


def test_start_commit_is_the_same_on_every_machine(fresh: MakeWorkspace) -> None:
    # The name of a commit is a hash of its files, its author and its time.
    assert {fresh().baseline for _ in range(2)} == {"b819a98b838558894586de37d6afe0eccde449d8"}


def test_a_bundle_a_repository_and_files_give_the_same_start(tmp_path: Path) -> None:
    start, _ = make_repository(tmp_path / "there")
    bundle = tmp_path / "all.bundle"
    git(tmp_path / "there", "bundle", "create", "-q", str(bundle), "--all")
    commits = set()
    for number, url in enumerate(
        (str(tmp_path / "there"), f"file://{bundle}", "../all.bundle")
    ):
        repo = {"git_url": url, "start_commit_sha": start, "branch": "trunk"}
        folder = make_task(tmp_path / f"task-{number}", with_repo=False, repo=repo)
        task = load_task(folder, allowed=Allowed((str(tmp_path),)))
        workspace = make_workspace(task, tmp_path / f"workspace-{number}")
        commits.add(workspace.baseline)
    folder = make_task(tmp_path / "task-files", with_repo=False)
    git(tmp_path / "there", "worktree", "add", "-q", str(folder / "repo"), start)
    commits.add(make_workspace(load_task(folder), tmp_path / "workspace").baseline)
    assert len(commits) == 1


def test_branch_or_head_is_the_start_if_no_commit_is_named(tmp_path: Path) -> None:
    start, end = make_repository(tmp_path / "there")
    git(tmp_path / "there", "branch", "earlier", start)
    allowed = Allowed((str(tmp_path / "there"),))
    for branch, commit in (("earlier", start), (None, end)):
        repo = {"git_url": "../there", "branch": branch}
        folder = make_task(tmp_path / f"task-{branch}", with_repo=False, repo=repo)
        assert load_task(folder, allowed=allowed).repo.start_commit == commit
    repo = {"git_url": "../there", "branch": "none"}
    folder = make_task(tmp_path / "task", with_repo=False, repo=repo)
    with pytest.raises(UsageError, match=r"repo\.branch: no commit 'none'"):
        load_task(folder, allowed=allowed)


def test_workspace_of_a_folder_and_some_files_of_a_repository(tmp_path: Path) -> None:
    folder = make_task(
        tmp_path / "task",
        {"repo/pkg/a.py": "a", "repo/pkg/b.txt": "b", "repo/pkg/deep/c.py": "c"},
        repo={"subdir": "pkg", "sparse_checkout": ["**/*.py"]},
    )
    workspace = make_workspace(load_task(folder), tmp_path / "workspace")
    assert set(contents(workspace.repo)) == {"a.py", "deep/c.py"}


def test_attributes_and_settings_of_a_repository_do_not_change_its_bytes(
    tmp_path: Path,
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    git(there, "init", "-q")
    write(there, {"a.txt": "one\ntwo\n", "run.sh": "true\n"})
    (there / "run.sh").chmod(0o755)
    (there / "link").symlink_to("a.txt")
    git(there, "add", "-A")
    git(there, "commit", "-qm", "Start")
    write(there, {".gitattributes": "*.txt text eol=crlf ident export-ignore\n"})
    git(there, "add", "-A")
    git(there, "commit", "-qm", "Attributes")
    folder = make_task(tmp_path / "task", with_repo=False, repo={"git_url": "../there"})
    task = load_task(folder, allowed=Allowed((str(there),)))
    workspace = make_workspace(task, tmp_path / "workspace")
    assert (workspace.repo / "a.txt").read_bytes() == b"one\ntwo\n"
    assert os.access(workspace.repo / "run.sh", os.X_OK)
    assert os.readlink(workspace.repo / "link") == "a.txt"
    assert capture(workspace).diff == b""


def test_cached_repository_is_out_of_reach_of_agents(task: CodingTask, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(4) as pool:
        workspaces = list(
            pool.map(
                lambda number: make_workspace(task, tmp_path / f"w{number}", cache=cache),
                range(4),
            )
        )
    assert [path.name for path in cache.iterdir()] == [task.checksum]
    (workspaces[0].repo / "app.py").write_text("changed\n", "utf-8")
    (task.folder / "repo" / "app.py").write_text("too late\n", "utf-8")
    later = make_workspace(task, tmp_path / "later", cache=cache)
    assert (later.repo / "app.py").read_text("utf-8") == "x = 1\ny = 2\nz = 3\n"
    assert {workspace.baseline for workspace in workspaces} == {later.baseline}


def test_overlay_does_not_follow_a_link_of_the_repository(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", {"overlay_repo_files/out/keys": "k"})
    (folder / "repo" / "out").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="'out' is a link"):
        make_workspace(load_task(folder), tmp_path / "workspace")
    assert not (tmp_path / "keys").exists()


def test_workspace_needs_an_empty_folder(task: CodingTask, tmp_path: Path) -> None:
    write(tmp_path / "taken", {"a": "a"})
    with pytest.raises(UsageError, match="already exists"):
        make_workspace(task, tmp_path / "taken")


def test_hidden_files_that_an_agent_would_see_are_reported(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", {"evaluation/data.csv": "1,2\n"})
    write(folder, {"repo/copy.csv": "1,2\n", "overlay_files/test.py": "def test_it(): pass\n"})
    task = load_task(folder)
    workspace = make_workspace(task, tmp_path / "workspace")
    assert exposed_files(task, workspace) == ("repo/copy.csv", "test.py")


@pytest.mark.bench
def test_a_repository_on_a_server_is_fetched_at_any_of_its_commits(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    start, end = make_repository(tmp_path / "served" / "there")
    with serve(tmp_path / "served", unused_tcp_port) as url:
        for commit, branch in ((start, "trunk"), (start, None), (end, None), (None, "trunk")):
            repo = {"git_url": url, "start_commit_sha": commit, "branch": branch}
            name = f"{commit}-{branch}"
            task = load_task(make_task(tmp_path / f"task-{name}", with_repo=False, repo=repo))
            assert task.repo.start_commit == (commit or end)
            workspace = make_workspace(task, tmp_path / f"workspace-{name}")
            added = "a + b" in (workspace.repo / "lib/calc.py").read_text("utf-8")
            assert added is (commit != start)
        repo = {"git_url": url, "start_commit_sha": "1" * 40}
        task = load_task(make_task(tmp_path / "none", with_repo=False, repo=repo))
        with pytest.raises(UsageError, match="no commit '1111"):
            make_workspace(task, tmp_path / "workspace-none")
        created = make_task(tmp_path / "far", with_repo=False, repo={"git_url": url})
        prepared = prepare_task(created, tmp_path / "prepared")
    assert make_workspace(load_task(prepared), tmp_path / "near").repo.is_dir()
    with pytest.raises(ServiceError, match="cannot fetch"):
        load_task(created)


@pytest.fixture
def unused_tcp_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serve(folder: Path, port: int) -> Iterator[str]:
    """Serve the repositories of a folder with the git daemon."""
    where = (f"--base-path={folder}", f"--port={port}", "--listen=127.0.0.1")
    server = subprocess.Popen(["git", "daemon", "--export-all", "--reuseaddr", *where])
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield f"git://127.0.0.1:{port}/there"
    finally:
        server.terminate()
        server.wait()


# Patches of an agent


def test_a_patch_has_renames_modes_binary_files_and_links(fresh: MakeWorkspace) -> None:
    workspace = fresh()
    root = workspace.repo
    (root / "app.py").rename(root / "main.py")
    (root / "src/util.py").chmod(0o755)
    (root / "raw.bin").write_bytes(bytes(range(256)))
    (root / "link").symlink_to("src/util.py")
    (root / "empty.txt").touch()
    patch = capture(workspace)
    assert b"rename from app.py" in patch.diff
    assert b"new mode 100755" in patch.diff
    assert b"GIT binary patch" in patch.diff
    assert set(patch.files) == {
        *("app.py", "main.py", "src/util.py", "raw.bin", "link", "empty.txt"),
    }
    assert patch.findings == ()
    graded = fresh()
    apply_patch(graded, patch.diff)
    assert contents(graded.repo) == contents(root)
    assert capture(graded).diff == patch.diff


def test_unchanged_workspace_gives_an_empty_patch(fresh: MakeWorkspace) -> None:
    workspace = fresh()
    write(workspace.repo, {"src/__pycache__/util.cpython-311.pyc": "x", ".pytest_cache/v": "x"})
    assert capture(workspace) == Patch(diff=b"")
    apply_patch(workspace, b"")


def test_ignored_files_are_excluded_unless_they_were_in_the_start_commit(
    tmp_path: Path,
) -> None:
    folder = make_task(
        tmp_path / "task", {"repo/.gitignore": "*.log\nbuild/\n", "repo/old.log": "1\n"}
    )
    workspace = make_workspace(load_task(folder), tmp_path / "workspace")
    write(
        workspace.repo,
        {
            "old.log": "2\n",
            "new.log": "n",
            "build/out/x": "x",
            "src/.gitignore": "*.tmp\n",
            "src/a.tmp": "a",
            "b.tmp": "b",
        },
    )
    assert set(capture(workspace).files) == {"old.log", "src/.gitignore", "b.tmp"}


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(
            lambda root: subprocess.run(["rm", "-rf", root / ".git"]), id="deleted git"
        ),
        pytest.param(
            lambda root: [git(root, "add", "-A"), git(root, "commit", "-qm", "done")],
            id="committed",
        ),
        pytest.param(lambda root: git(root, "checkout", "-q", "--orphan", "o"), id="branch"),
        pytest.param(
            lambda root: (root / ".git/index").write_bytes(b"junk"), id="broken index"
        ),
        pytest.param(lambda root: write(root, {".git/info/exclude": "*\n"}), id="excludes"),
        pytest.param(
            lambda root: git(root, "update-index", "--assume-unchanged", "app.py"), id="flags"
        ),
    ],
)
def test_git_state_of_the_agent_does_not_change_the_patch(
    fresh: MakeWorkspace, deed: Callable[[Path], object]
) -> None:
    workspace = fresh()
    write(workspace.repo, {"app.py": "x = 2\n", "new.py": "n = 1\n"})
    deed(workspace.repo)
    patch = capture(workspace)
    assert set(patch.files) == {"app.py", "new.py"}
    assert patch.findings == ()


def test_files_of_an_agent_cannot_make_git_run_a_program(
    fresh: MakeWorkspace, tmp_path: Path
) -> None:
    workspace = fresh()
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n", "utf-8")
    trap.chmod(0o755)
    settings = (
        f"[core]\n\tfsmonitor = {trap}\n\thooksPath = {tmp_path}/hooks\n\tpager = {trap}\n"
        f'[diff]\n\texternal = {trap}\n[diff "x"]\n\ttextconv = {trap}\n'
        f'[filter "x"]\n\tclean = {trap}\n\tsmudge = {trap}\n'
    )
    with (workspace.repo / ".git/config").open("a", encoding="utf-8") as stream:
        stream.write(settings)
    for hook in ("pre-commit", "post-index-change", "post-checkout"):
        write(tmp_path / "hooks", {hook: trap.read_text("utf-8")})
        (tmp_path / "hooks" / hook).chmod(0o755)
    write(workspace.repo, {".gitattributes": "* filter=x diff=x text eol=crlf\n"})
    write(workspace.repo, {"app.py": "x = 5\n", "inner/file.txt": "f\n"})
    git(workspace.repo / "inner", "init", "-q")
    with (workspace.repo / "inner/.git/config").open("a", encoding="utf-8") as stream:
        stream.write(settings)
    patch = capture(workspace)
    assert b"+x = 5\n" in patch.diff
    apply_patch(fresh(), patch.diff)
    assert not (tmp_path / "sprung").exists()
    assert named(patch) == {"nested_repository": "inner"}
    assert set(patch.files) == {".gitattributes", "app.py", "inner/file.txt"}


def test_pipes_sockets_and_outside_links_are_reported_and_excluded(
    fresh: MakeWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = fresh()
    root = workspace.repo
    os.mkfifo(root / "pipe")
    os.mkfifo(root / ".gitignore")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
    (root / "a").symlink_to("/etc/passwd")
    (root / "b").symlink_to("../../outside")
    (root / "src/c").symlink_to("../..")
    (root / "inside").symlink_to("/app/repo/app.py")
    (root / "loop").symlink_to("loop")
    (root / "src/deep").symlink_to("../src")
    (root / "d").symlink_to("src/deep/../../x")
    (root / ".gitmodules").symlink_to("app.py")
    began = time.monotonic()
    patch = capture(workspace)
    assert time.monotonic() - began < 5
    assert named(patch) == {
        "special_file": ".gitignore, .gitmodules, pipe, sock",
        "symlink_outside": "a, b, d, src/c",
    }
    assert set(patch.files) == {"inside", "loop", "src/deep"}
    apply_patch(fresh(), patch.diff)


def test_file_replaced_by_a_link_is_a_deletion(fresh: MakeWorkspace) -> None:
    workspace = fresh()
    (workspace.repo / "app.py").unlink()
    (workspace.repo / "app.py").symlink_to("/etc/passwd")
    patch = capture(workspace)
    assert b"deleted file mode 100644" in patch.diff
    assert b"/etc/passwd" not in patch.diff
    assert named(patch) == {"symlink_outside": "app.py"}


def test_repository_replaced_by_a_link_is_not_read(
    fresh: MakeWorkspace, tmp_path: Path
) -> None:
    workspace = fresh()
    workspace.repo.rename(tmp_path / "elsewhere")
    workspace.repo.symlink_to("/etc")
    patch = capture(workspace)
    assert set(patch.files) == {"app.py", "src/util.py"}
    assert named(patch) == {"repository_removed": "."}


def test_long_odd_and_undecodable_file_names_are_in_the_patch(fresh: MakeWorkspace) -> None:
    workspace, graded = fresh(), fresh()
    names = [
        b"n" * 255,
        b"\xff\xfe.txt",
        b'new\nline "q".txt',
        b"-rf",
        b"git~1",
        b"a\\b",
        b"\t",
    ]
    for name in names:
        path = Path(os.fsdecode(os.path.join(os.fsencode(workspace.repo), name)))
        path.write_text("odd\n", "utf-8")
    patch = capture(workspace)
    assert len(patch.files) == len(names)
    assert "\\xff\\xfe.txt" in patch.files
    apply_patch(graded, patch.diff)
    assert contents(graded.repo) == contents(workspace.repo)


def test_folders_deeper_than_the_path_limit_are_reported_and_removed(
    fresh: MakeWorkspace,
) -> None:
    workspace = fresh()
    deep = (
        "import os, sys\nos.chdir(sys.argv[1])\n"
        "for _ in range(300):\n    os.mkdir('d' * 20)\n    os.chdir('d' * 20)\n"
        "open('end', 'w').close()\n"
    )
    run_python("-c", deep, workspace.repo)
    patch = capture(workspace)
    assert patch.diff == b""
    assert list(named(patch)) == ["path_too_long"]
    workspace.remove()
    assert not workspace.folder.exists()


def test_files_without_permissions_are_read(fresh: MakeWorkspace) -> None:
    workspace = fresh()
    write(workspace.repo, {"closed/a.txt": "a\n", "b.txt": "b\n"})
    (workspace.repo / "b.txt").chmod(0)
    (workspace.repo / "closed").chmod(0)
    patch = capture(workspace)
    assert set(patch.files) == {"closed/a.txt", "b.txt"}
    assert patch.findings == ()


def test_file_above_the_patch_limit_is_reported_and_excluded(fresh: MakeWorkspace) -> None:
    workspace = fresh()
    with (workspace.repo / "huge").open("wb") as stream:
        stream.truncate(10**12)
    write(workspace.repo, {"small": "s\n"})
    patch = capture(workspace)
    assert patch.files == ("small",)
    assert named(patch) == {"large_file": "huge"}


def test_too_many_files_are_reported_and_small_changes_are_kept(
    fresh: MakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_MAX_CHANGED_BYTES", 5_000)
    workspace = fresh()
    write(workspace.repo, {f"aaa{number}": "x" * 3_000 for number in range(4)})
    write(workspace.repo, {"src/util.py": "u = 2\n", "zzz.py": "z = 1\n"})
    patch = capture(workspace)
    assert set(patch.files) == {"aaa0", "aaa1", "src/util.py", "zzz.py"}
    assert named(patch) == {"patch_too_large": "aaa2, aaa3"}


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("conftest.py", ""),
        ("tests/conftest.py", ""),
        ("sitecustomize.py", ""),
        ("lib/usercustomize.py", ""),
        ("evil.pth", "import os"),
        ("pytest.ini", "[pytest]\n"),
        ("tox.ini", "[pytest]\n"),
        ("setup.cfg", "[tool:pytest]\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\n"),
        ("pytest.py", ""),
        ("_pytest/runner.py", ""),
        ("unittest/__init__.py", ""),
    ],
)
def test_files_that_a_test_runner_loads_are_reported(
    fresh: MakeWorkspace, path: str, content: str
) -> None:
    workspace = fresh()
    write(workspace.repo, {path: content})
    patch = capture(workspace)
    assert patch.files == (path,)
    assert patch.findings == (("test_runner_shadowed", path),)


def test_other_files_are_not_reported_as_test_runner_files(fresh: MakeWorkspace) -> None:
    workspace = fresh()
    names = ("pyproject.toml", "test_pytest.py", "pytest_notes.md", "docs/unittest.md")
    write(workspace.repo, dict.fromkeys(names, "x = 1\n"))
    assert capture(workspace).findings == ()


# Untrusted patches


def new_file(path: str, content: str = "x", mode: str = "100644") -> bytes:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{content}\n\\ No newline at end of file\n"
    ).encode()


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        pytest.param(b"no patch at all", "No valid patches", id="nonsense"),
        pytest.param(new_file("../out.txt"), "invalid path", id="above"),
        pytest.param(new_file("src/../../out.txt"), "invalid path", id="above from below"),
        pytest.param(new_file("/tmp/out.txt"), "invalid path", id="absolute"),
        pytest.param(new_file(".git/hooks/pre-commit"), "invalid path", id="git"),
        pytest.param(new_file("src/.GIT/config"), "invalid path", id="git in capitals"),
        pytest.param(new_file("app.py"), "already exists", id="there already"),
        pytest.param(
            new_file("l", "/etc", "120000"), "links 'l' to '/etc', outside", id="link"
        ),
        pytest.param(new_file("src/l", "../../x", "120000"), "outside", id="link above"),
        pytest.param(
            new_file("l", "src", "120000") + new_file("l/new.txt"), "l/new.txt", id="own link"
        ),
        pytest.param(new_file("in/new.txt"), "beyond a symbolic link", id="through a link"),
        pytest.param(
            b"--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-not there\n+y\n",
            "patch failed: app.py:1",
            id="other text",
        ),
        pytest.param(
            b"diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..1111111\n"
            b"--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n+Subproject commit " + b"1" * 40 + b"\n",
            "submodule",
            id="submodule",
        ),
    ],
)
def test_patch_that_does_not_apply_or_leaves_the_repository_is_rejected_completely(
    tmp_path: Path, diff: bytes, said: str
) -> None:
    folder = make_task(tmp_path / "task")
    (folder / "repo" / "in").symlink_to("src")
    workspace = make_workspace(load_task(folder), tmp_path / "workspace")
    before = contents(tmp_path)
    with pytest.raises(PatchRejected, match=said):
        apply_patch(workspace, new_file("first.txt") + diff if diff[:2] != b"no" else diff)
    after = {name: what for name, what in contents(tmp_path).items() if "/git/" not in name}
    assert after == {name: what for name, what in before.items() if "/git/" not in name}


def test_a_patch_turns_files_into_folders_and_back(fresh: MakeWorkspace) -> None:
    workspace, graded = fresh(), fresh()
    root = workspace.repo
    (root / "app.py").unlink()
    write(root, {"app.py/inner.py": "i = 1\n"})
    (root / "src/util.py").unlink()
    (root / "src").rmdir()
    write(root, {"src": "now a file\n"})
    apply_patch(graded, capture(workspace).diff)
    assert contents(graded.repo) == contents(root)


def test_patches_apply_one_after_another(fresh: MakeWorkspace) -> None:
    workspace = fresh()
    apply_patch(workspace, new_file("one.txt"))
    apply_patch(workspace, new_file("two.txt"))
    assert set(capture(workspace).files) == {"one.txt", "two.txt"}
