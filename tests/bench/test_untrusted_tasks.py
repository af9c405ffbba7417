"""An untrusted task folder runs nothing on the host, and reads no file outside."""

import ast
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.bench.base import Allowed
from assay.bench.harbor.task import find_task_problems, load_harbor_task
from assay.bench.task_layouts import load_any_task
from assay.bench.tasks import load_task, make_workspace, new_task, prepare_task
from assay.bench.tasks.tree import write_blob, write_commit
from assay.core.git import (
    create_temporary_repository,
    find_working_copy,
    has_changes,
    run_own_git,
)
from assay.errors import UsageError

from .harbor_tasks import harbor_task
from .tasks import git, make_repository, make_task, write

SOURCE = Path(__file__).parents[2] / "src" / "assay"
SECRET = "the secret of the host\n"
LINK = "symbolic link"


def dry_run(folder: Path, *options: str, settings: str = "", cwd: Path | None = None) -> str:
    """Return the output of `assay bench run --dry-run` for a task."""
    file = folder.parent / "benchmark.toml"
    command = 'agent = "command"\ncommand = "true"\n'
    file.write_text(f'{settings}\n[[tasks]]\nprepared_dir = "{folder}"\n{command}')
    argv = [sys.executable, "-m", "assay", "bench", "run", str(file), "--dry-run", *options]
    where = cwd or folder.parent
    done = subprocess.run(argv, capture_output=True, text=True, cwd=where, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert SECRET.strip() not in done.stdout + done.stderr
    return done.stdout + done.stderr


def private_repository(folder: Path) -> str:
    """Make a private repository that no task may see; return its commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    write(folder, {"secret.txt": SECRET})
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Private")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def host_file(tmp_path: Path) -> Path:
    """Make a private file outside of every task."""
    file = tmp_path / "host.txt"
    file.write_text(SECRET)
    return file


# Programs that git would run


Trap = Callable[[Path, Path], None]


def _partial(origin: Path, settings: str) -> None:
    """Remove a folder from a bare repository, so that git fetches it when it is listed."""
    for pack in (origin / "objects" / "pack").glob("*.pack"):
        moved = pack.rename(origin / "moved.pack")
        pack.with_suffix(".idx").unlink()
        with moved.open("rb") as file:
            command = ["git", "--git-dir", str(origin), "unpack-objects", "-q"]
            subprocess.run(command, stdin=file, check=True)
        moved.unlink()
    tree = git(origin, "rev-parse", "HEAD:lib")
    (origin / "objects" / tree[:2] / tree[2:]).unlink()
    (origin / "config").write_text(
        "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tpartialClone = "
        f'origin\n[remote "origin"]\n\tpromisor = true\n{settings}'
    )


def promisor(origin: Path, mark: Path) -> None:
    _partial(origin, f'\turl = .\n\tuploadpack = "id > {mark}; false"\n')


def ssh_command(origin: Path, mark: Path) -> None:
    ssh = f'[core]\n\tsshCommand = "id > {mark}; false"\n'
    _partial(origin, f"\turl = ssh://localhost/x\n{ssh}")


def commands(origin: Path, mark: Path) -> None:
    """Add hooks, filters and other commands to a complete repository."""
    hook = f"#!/bin/sh\nid > {mark}\n"
    names = ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc")
    write(origin, {f"hooks/{name}": hook for name in names})
    for name in names:
        (origin / "hooks" / name).chmod(0o755)
    run = f'"id > {mark}; cat"'
    with (origin / "config").open("a") as file:
        file.write(
            f"[core]\n\tfsmonitor = {run}\n\tpager = {run}\n\thooksPath = {origin}/hooks\n"
            f'[filter "x"]\n\tsmudge = {run}\n\tclean = {run}\n\tprocess = {run}\n'
            f'\trequired = true\n[diff]\n\texternal = {run}\n[diff "x"]\n\ttextconv = {run}\n'
            f"[include]\n\tpath = {origin}/more\n[uploadpack]\n\tpackObjectsHook = {run}\n"
        )
    write(origin, {"info/attributes": "* filter=x diff=x\n", "more": "[core]\n"})


@pytest.mark.parametrize(
    ("trap", "said"),
    [(promisor, "partial clone"), (ssh_command, "partial clone"), (commands, "")],
)
def test_a_repository_in_a_task_runs_nothing(trap: Trap, said: str, tmp_path: Path) -> None:
    make_repository(tmp_path / "there")
    task = make_task(tmp_path / "task", with_repo=False, repo={"git_url": "origin.git"})
    origin, mark = task / "origin.git", tmp_path / "PWNED"
    git(tmp_path, "clone", "-q", "--bare", str(tmp_path / "there"), str(origin))
    trap(origin, mark)
    if said:
        if trap is promisor:
            printed = dry_run(task)
            assert not mark.exists()
            assert said in printed
        with pytest.raises(UsageError, match=said):
            prepare_task(task, tmp_path / "prepared")
        with pytest.raises(UsageError, match=said):
            new_task(origin, "HEAD~1", "HEAD", tmp_path / "created")
    else:
        load_task(task)
        assert not mark.exists()
        prepared = prepare_task(task, tmp_path / "prepared")
        make_workspace(load_task(prepared), tmp_path / "workspace")
        new_task(origin, "HEAD~1", "HEAD", tmp_path / "created")
    assert not mark.exists()


def _file_monitor(project: Path, mark: Path) -> None:
    with (project / ".git" / "config").open("a") as file:
        file.write(f'[core]\n\tfsmonitor = "id > {mark}; false"\n')


def _clean_filter(project: Path, mark: Path) -> None:
    with (project / ".git" / "config").open("a") as file:
        file.write(f'[filter "x"]\n\tclean = "id > {mark}; cat"\n\trequired = true\n')
    write(project, {".gitattributes": "* filter=x\n", "README.md": "y = 1\n"})


def _submodule(project: Path, mark: Path) -> None:
    """Add a folder with its own git directory, which `git status` would query."""
    make_repository(project / "inner")
    git(project, "add", "inner")
    git(project, "commit", "-qm", "Inner")
    _clean_filter(project / "inner", mark)


@pytest.mark.parametrize("trap", [_file_monitor, _clean_filter, _submodule])
def test_a_repository_as_working_directory_runs_nothing(trap: Trap, tmp_path: Path) -> None:
    project, mark = tmp_path / "project", tmp_path / "PWNED"
    make_repository(project)
    trap(project, mark)
    program = (
        "from assay.core.provenance import collect_provenance\n"
        "print(collect_provenance().project)"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=project, check=True)
    assert done.stdout.startswith(git(project, "rev-parse", "HEAD")[:12])
    assert not mark.exists()
    changed = trap is _clean_filter
    assert done.stdout.endswith("changed since\n") == changed
    if trap is _file_monitor:
        dry_run(make_task(tmp_path / "task"), cwd=project)
    assert not mark.exists()


def test_every_form_of_working_copy_is_read(tmp_path: Path) -> None:
    there = tmp_path / "there"
    _, end = make_repository(there)
    git(there, "worktree", "add", "-q", str(tmp_path / "tree"), "HEAD")
    git(there, "pack-refs", "--all")
    for place, root in ((there / "lib", there), (tmp_path / "tree", tmp_path / "tree")):
        copy = find_working_copy(place)
        assert copy is not None
        assert (copy.root, copy.commit) == (root, end)
        assert not has_changes(copy, untracked=True)
        # As after a copy: different times, the same content.
        os.utime(root / "README.md", (1, 1))
        assert not has_changes(copy, untracked=False)
        write(root, {"new.txt": "x"})
        assert has_changes(copy, untracked=True)
        assert not has_changes(copy, untracked=False)
        write(root, {"README.md": "CALC\n"})
        assert has_changes(copy, untracked=False)
    assert find_working_copy(tmp_path) is None
    # An unreadable file counts as changed.
    git(there, "checkout", "-q", "README.md")
    git(there, "update-index", "--split-index")
    copy = find_working_copy(there)
    assert copy is not None
    assert has_changes(copy, untracked=False)


# Reads outside of a task


def test_linked_file_of_a_task_is_rejected(tmp_path: Path, host_file: Path) -> None:
    for name in ("LM_INSTRUCTIONS.md", "diff.patch", "overrides.json", "tb_meta.json"):
        task = make_task(tmp_path / name)
        (task / name).unlink(missing_ok=True)
        (task / name).symlink_to(host_file)
        with pytest.raises(UsageError, match=LINK):
            load_task(task, task / name if name == "overrides.json" else None)
    assert LINK in dry_run(tmp_path / "LM_INSTRUCTIONS.md")
    for name in ("notes.md", "repo_info.json"):
        task = make_task(tmp_path / name)
        (task / name).symlink_to(host_file)
        with pytest.raises(UsageError, match=LINK):
            prepare_task(task, tmp_path / "prepared")


@pytest.mark.parametrize("name", ["overlay_files", "evaluation", "overlay_repo_files", "repo"])
def test_linked_folder_of_a_task_is_rejected(
    name: str, tmp_path: Path, host_file: Path
) -> None:
    outside = tmp_path / "outside"
    write(outside, {"secret.txt": SECRET})
    task = make_task(tmp_path / "task", with_repo=name != "repo")
    (task / name).symlink_to(outside)
    with pytest.raises(UsageError, match=name):
        load_task(task)


def test_repository_outside_of_a_task_needs_permission_of_the_user(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private_repository(private)
    task = make_task(tmp_path / "task", with_repo=False, repo={"git_url": str(private)})
    assert f"--allow-repo {private}" in dry_run(task)
    assert "nothing was started" in dry_run(task, "--allow-repo", str(private))
    loaded = load_task(task, allowed=Allowed((str(private),)))
    workspace = make_workspace(loaded, tmp_path / "workspace")
    assert (workspace.repo / "secret.txt").read_text() == SECRET
    assert "nothing was started" in dry_run(task, settings=f'allow_repos = ["{private}"]')


def _link(task: Path, private: Path) -> None:
    (task / "origin").symlink_to(private)


def _git_file(task: Path, private: Path) -> None:
    write(task / "origin", {".git": f"gitdir: {private}/.git\n"})


def _common_folder(task: Path, private: Path) -> None:
    write(task / "origin/.git", {"commondir": f"{private}/.git\n", "HEAD": "ref: refs/x\n"})


def _objects(task: Path, private: Path) -> None:
    git(task, "init", "-q", "origin")
    (task / "origin/.git/objects/info").rmdir()
    (task / "origin/.git/objects/pack").rmdir()
    (task / "origin/.git/objects").rmdir()
    (task / "origin/.git/objects").symlink_to(private / ".git" / "objects")


def _alternates(task: Path, private: Path) -> None:
    git(task, "init", "-q", "origin")
    write(task, {"origin/.git/objects/info/alternates": f"{private}/.git/objects\n"})


def _linked_object(task: Path, private: Path) -> None:
    git(task, "init", "-q", "origin")
    for folder in (private / ".git" / "objects").glob("??"):
        (task / "origin/.git/objects" / folder.name).symlink_to(folder)


@pytest.mark.parametrize(
    "way", [_link, _git_file, _common_folder, _objects, _alternates, _linked_object]
)
def test_repository_in_a_task_cannot_refer_to_another_one(
    way: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    private = tmp_path / "private"
    commit = private_repository(private)
    repo = {"git_url": "origin", "start_commit_sha": commit}
    task = make_task(tmp_path / "task", with_repo=False, repo=repo)
    way(task, private)
    with pytest.raises(UsageError, match=r"outside (of )?the task|uses objects|a link"):
        load_task(task)


def test_linked_bundle_is_rejected(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private_repository(private)
    git(private, "bundle", "create", "-q", str(tmp_path / "private.bundle"), "--all")
    task = make_task(tmp_path / "task", with_repo=False)
    (task / "repo.bundle").symlink_to(tmp_path / "private.bundle")
    with pytest.raises(UsageError, match="outside the task"):
        load_task(task)


def test_repository_with_outside_paths_writes_nothing_outside(tmp_path: Path) -> None:
    """Trees can contain '..', which git itself would not check out."""
    task = make_task(tmp_path / "task", with_repo=False, repo={"git_url": "origin.git"})
    origin = task / "origin.git"
    git(tmp_path, "init", "-q", "--bare", str(origin))
    blob = write_blob(origin, b"def test(): pass\n")
    inner = b"100644 test_x.py\0" + bytes.fromhex(blob)
    for name in (b"..", b"..", b"tests"):
        inner = b"40000 %s\0%s" % (name, bytes.fromhex(_tree(origin, inner)))
    (origin / "refs/heads").mkdir(exist_ok=True)
    end = write_commit(origin, _tree(origin, inner))
    start = write_commit(origin, _tree(origin, b""))
    git(origin, "update-ref", "refs/heads/main", end)
    git(origin, "symbolic-ref", "HEAD", "refs/heads/main")
    for use in (
        lambda: make_workspace(load_task(task), tmp_path / "deep/er/workspace"),
        lambda: new_task(origin, start, end, tmp_path / "created"),
    ):
        with pytest.raises(UsageError, match=r"\.\."):
            use()
    assert not [*tmp_path.rglob("test_x.py")]


def _tree(origin: Path, content: bytes) -> str:
    done = subprocess.run(
        ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"],
        cwd=origin,
        input=content,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


# Harbor


def test_linked_file_of_a_harbor_task_is_rejected(tmp_path: Path, host_file: Path) -> None:
    before = host_file.stat().st_mode
    for name in ("instruction.md", "tests/test.sh", "solution/solve.sh", "environment/data"):
        task = harbor_task(tmp_path / name.replace("/", "-"))
        (task / name).unlink(missing_ok=True)
        (task / name).symlink_to(host_file)
        assert f"{name} is a link" in "".join(find_task_problems(task))
        with pytest.raises(UsageError, match=f"{name} is a link"):
            load_any_task(task)
    assert host_file.stat().st_mode == before
    task = harbor_task(tmp_path / "config")
    (task / "task.toml").unlink()
    (task / "task.toml").symlink_to(host_file)
    with pytest.raises(UsageError, match=LINK):
        load_any_task(task)
    task = harbor_task(tmp_path / "folder")
    (task / "environment").rename(tmp_path / "elsewhere")
    (task / "environment").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="environment is a link"):
        load_any_task(task)


def test_host_variable_needs_permission_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://ada:hunter2@db/x")
    config = '[environment.env]\nURL = "${DATABASE_URL}"\nB = "${DATABASE_URL:-x}"\n'
    task = harbor_task(tmp_path / "task", config)
    said = dry_run(task)
    assert "--allow-variable DATABASE_URL" in said
    assert "looks like a secret" in said
    assert "hunter2" not in said
    loaded = load_harbor_task(task, Allowed(variables=("DATABASE_URL",)))
    assert loaded.environment["URL"] == "postgres://ada:hunter2@db/x"
    written = harbor_task(tmp_path / "two", '[environment.env]\nA = "a://b:c@d"\n')
    assert "looks like a secret" in "".join(find_task_problems(written))


# Sizes


def test_oversized_commit_is_rejected_before_it_is_unpacked(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", with_repo=False, repo={"git_url": "origin.git"})
    origin = task / "origin.git"
    git(tmp_path, "init", "-q", "--bare", str(origin))
    # 1 KB of data with a header that declares 8 EiB.
    whole = b"blob %d\0" % (1 << 62) + bytes(1000)
    sha = "0123456789" * 4
    write_blob(origin, b"")
    (origin / "objects" / sha[:2]).mkdir(exist_ok=True)
    (origin / "objects" / sha[:2] / sha[2:]).write_bytes(zlib.compress(whole))
    tree = _tree(origin, b"100644 bomb\0" + bytes.fromhex(sha))
    git(origin, "update-ref", "refs/heads/main", write_commit(origin, tree))
    git(origin, "symbolic-ref", "HEAD", "refs/heads/main")
    with pytest.raises(UsageError, match="exceeds a limit at 'bomb'"):
        load_task(task)


def test_commit_with_too_many_folders_is_rejected(tmp_path: Path) -> None:
    """Ten folders in each folder, thirty levels deep: 10^30 files from 30 objects."""
    task = make_task(tmp_path / "task", with_repo=False, repo={"git_url": "origin.git"})
    origin = task / "origin.git"
    git(tmp_path, "init", "-q", "--bare", str(origin))
    tree = _tree(origin, b"100644 f\0" + bytes.fromhex(write_blob(origin, b"x")))
    for _ in range(30):
        rows = (b"40000 %d%s\0%s" % (n, b"x" * 90, bytes.fromhex(tree)) for n in range(10))
        tree = _tree(origin, b"".join(rows))
    git(origin, "update-ref", "refs/heads/main", write_commit(origin, tree))
    git(origin, "symbolic-ref", "HEAD", "refs/heads/main")
    with pytest.raises(UsageError, match="printed more than"):
        load_task(task)


def test_git_is_stopped_if_it_prints_too_much_or_takes_too_long() -> None:
    with create_temporary_repository() as own:
        end = run_own_git(own, "help", "-a", max_bytes=100)
        assert (end.code, end.output) == (-1, b"")
        assert b"more than 100 bytes" in end.errors
        end = run_own_git(own, "-c", "alias.wait=!sleep 60", "wait", seconds=0.2)
        assert b"longer than 0.2 s" in end.errors


# Only one module runs git


def _git_starts(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr):
            continue
        parts = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        parts = node.args if isinstance(node, ast.Call) else parts
        first = parts[0] if parts else None
        text = first.value if isinstance(first, ast.Constant) else None
        if isinstance(text, str) and re.fullmatch(r"(\S*/)?git( .*)?", text, re.DOTALL):
            yield node.lineno


def test_only_one_module_starts_git() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if [*_git_starts(ast.parse(path.read_text("utf-8")))]
    }
    # The oracle runs git in the sandbox; provenance checks whether git is installed.
    assert found == {"core/git.py", "core/provenance.py", "bench/coders/scripted.py"}
