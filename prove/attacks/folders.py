"""Task folders and working directories from the internet, which run code or read the host."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.bench.harbor_tasks import harbor_task
from tests.sandboxes.rootfs import make_root

from .scene import KNOB, Attack, NotAvailable, Scene, run_git

__all__ = ["ATTACKS"]


def _attack_promisor(scene: Scene) -> str:
    scene.without_sandbox()
    got = scene.folder / "ran"
    commit, origin = _make_repository(scene.folder / "made", {"lib/a.py": "x = 1\n"})
    bare = scene.task(repo={"git_url": "origin.git", "start_commit_sha": commit}) / "origin.git"
    run_git(origin, "clone", "-q", "--bare", "--no-hardlinks", str(origin), str(bare))
    tree = run_git(bare, "rev-parse", f"{commit}:lib")
    (bare / "objects" / tree[:2] / tree[2:]).unlink()
    with (bare / "config").open("a") as config:
        config.write(
            "[core]\nrepositoryformatversion = 1\n[extensions]\npartialClone = origin\n"
            f'[remote "origin"]\nurl = .\npromisor = true\n'
            f'uploadpack = "id >> {got}; false"\n[core]\nsshCommand = "id >> {got}; false"\n'
        )
    (scene.folder / "bench.toml").write_text(
        '[[tasks]]\nprepared_dir = "task"\nagent = "nop"\n'
    )
    for command in (
        ("run", "bench.toml", "--dry-run"),
        ("check", "task"),
        ("prepare", "task"),
        ("run", "bench.toml"),
    ):
        scene.is_refused(scene.assay("bench", *command))
        if got.exists():
            return f"'bench {' '.join(command)}' ran id: {got.read_text().splitlines()[0]}"
    return ""


def _attack_working_directory(scene: Scene) -> str:
    scene.without_sandbox()
    _, work = _make_repository(
        scene.folder / "work", {"a.py": "x = 1\n", ".gitattributes": "* filter=x\n"}
    )
    kinds = ("fsmonitor", "filter", "hook", "submodule")
    run = {kind: f"touch {scene.folder}/{kind}.ran" for kind in kinds}
    _, inner = _make_repository(work / "inner", {"b.py": "y = 1\n"})
    run_git(work, "add", "inner")
    run_git(work, "commit", "-qm", "A repository in it")
    run_git(work, "config", "core.fsmonitor", f"{run['fsmonitor']}; false")
    run_git(inner, "config", "core.fsmonitor", f"{run['submodule']}; false")
    run_git(work, "config", "filter.x.clean", f"{run['filter']}; cat")
    hook = work / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{run['hook']}\n")
    hook.chmod(0o755)
    (work / "a.py").write_text("x = 2\n")
    for path in scene.folder.glob("*.ran"):
        path.unlink()
    scene.task({"app.py": "x = 1\n"})
    (work / "bench.toml").write_text('[[tasks]]\nprepared_dir = "../task"\nagent = "nop"\n')
    done = scene.assay("bench", "run", "bench.toml", "--quiet", cwd=work)
    if not list(work.glob("data/rollouts/*/*/manifest.json")):
        raise RuntimeError(f"the benchmark did not run: {done.output[-600:]}")
    ran = sorted(path.stem for path in scene.folder.glob("*.ran"))
    return f"commands of the repository ran: {', '.join(ran)}" if ran else ""


def _attack_linked_instructions(scene: Scene) -> str:
    secret = scene.folder / "secret.txt"
    secret.write_text(f"host-{scene.token}\n")
    task = scene.task({"app.py": "x = 1\n"})
    (task / "LM_INSTRUCTIONS.md").unlink()
    (task / "LM_INSTRUCTIONS.md").symlink_to(secret)
    return _find_leak(scene, f'echo tried-{scene.token}; echo "$ASSAY_INSTRUCTIONS"', task)


def _attack_absolute_repository(scene: Scene) -> str:
    commit, own = _make_repository(scene.folder / "own", {"s.txt": f"host-{scene.token}\n"})
    task = scene.task(repo={"git_url": str(own), "start_commit_sha": commit})
    return _find_leak(scene, f"echo tried-{scene.token}; cat *", task)


def _attack_alternates(scene: Scene) -> str:
    commit, own = _make_repository(scene.folder / "own", {"s.txt": f"host-{scene.token}\n"})
    task = scene.task(repo={"git_url": "origin.git", "start_commit_sha": commit})
    run_git(task, "init", "-q", "--bare", "origin.git")
    info = task / "origin.git" / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_text(f"{own}/.git/objects\n")
    return _find_leak(scene, f"echo tried-{scene.token}; cat *", task)


def _attack_harbor_variable(scene: Scene) -> str:
    name = "ASSAY_ATTACK_DATABASE_URL"
    task = harbor_task(scene.folder / "task", f'[environment.env]\nSEEN = "${{{name}}}"')
    return _find_harbor_leak(scene, "echo $SEEN", task, {name: f"db://u:host-{scene.token}@h/"})


def _attack_harbor_link(scene: Scene) -> str:
    secret = scene.folder / "secret.txt"
    secret.write_text(f"host-{scene.token}\n")
    task = harbor_task(scene.folder / "task")
    (task / "instruction.md").unlink()
    (task / "instruction.md").symlink_to(secret)
    return _find_harbor_leak(scene, 'echo "$ASSAY_INSTRUCTIONS"', task)


def _attack_image_root(scene: Scene) -> str:
    """Root of an image writes a setting of the whole kernel, if it can."""
    before = KNOB.read_text()
    task = harbor_task(scene.folder / "task")
    write = f"id -u; echo {int(before) + 1} > {KNOB}; mount -o remount,rw /proc/sys"
    _run_harbor_task(scene, f"{write}; echo {int(before) + 1} > {KNOB}", task)
    after = KNOB.read_text()
    KNOB.write_text(before)
    return "" if after == before else f"{KNOB} of the host went to {after.strip()}"


def _find_harbor_leak(
    scene: Scene, command: str, task: Path, variables: Mapping[str, str] | None = None
) -> str:
    log = _run_harbor_task(scene, command, task, variables)
    return "the value of the host is in agent.log" if f"host-{scene.token}" in log else ""


def _run_harbor_task(
    scene: Scene, command: str, task: Path, variables: Mapping[str, str] | None = None
) -> str:
    """Let a command be the agent of a task with an image; what it printed."""
    if scene.place != "docker":
        raise NotAvailable("a task with an image needs Docker")
    root = _make_root(scene.folder.parent)
    (scene.folder / "bench.toml").write_text(
        f'name = "attack"\n[[tasks]]\nprepared_dir = "{task}"\nagent = "command"\n'
        f'sandbox = "docker"\ncommand = {json.dumps(f"echo tried; {command}")}\n'
    )
    done = scene.assay(
        *("bench", "run", "bench.toml", "--quiet", "--base-image", f"base:1={root}"),
        variables=variables,
    )
    logs = [path.read_text() for path in scene.folder.glob("data/runs/**/agent.log")]
    if not any("tried" in log for log in logs) and not scene.is_refused(done):
        raise RuntimeError(f"the attack did not start: {done.output[-600:]}")
    return "".join(logs)


@cache
def _make_root(folder: Path) -> Path:
    return make_root(folder / "rootfs", python=False)


def _find_leak(scene: Scene, command: str, task: Path) -> str:
    trial = scene.trial(command, task=task, may_be_refused=True)
    return (
        "the secret of the host is in agent.log" if f"host-{scene.token}" in trial.log else ""
    )


def _make_repository(folder: Path, files: dict[str, str]) -> tuple[str, Path]:
    """Make a repository with one commit; the commit, and where it is."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    run_git(folder, "init", "-q", "-b", "trunk")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-qm", "The start")
    return run_git(folder, "rev-parse", "HEAD"), folder


_PLAIN = "task files are read as plain files inside the task"
_OWN_GIT = (
    "git reads foreign objects through a git directory of ours; no promisor, no alternates"
)
_WORD = "what lies outside the task needs the user's word"
ATTACKS: tuple[Attack, ...] = (
    Attack(
        "promisor",
        "a task's repository runs a command when it is read",
        _OWN_GIT,
        _attack_promisor,
    ),
    Attack(
        "working-directory",
        "a repository as working directory runs commands on `assay run`",
        "provenance reads HEAD and changes without settings of that repository",
        _attack_working_directory,
    ),
    Attack(
        "linked-instructions",
        "instructions link to a file of the host",
        _PLAIN,
        _attack_linked_instructions,
    ),
    Attack(
        "absolute-repository",
        "a task names a repository of the host",
        _WORD,
        _attack_absolute_repository,
    ),
    Attack(
        "alternates",
        "a task's repository borrows objects of the host's",
        _OWN_GIT,
        _attack_alternates,
    ),
    Attack(
        "harbor-variable",
        "a Harbor task asks for a variable of the host",
        _WORD,
        _attack_harbor_variable,
    ),
    Attack(
        "harbor-link",
        "instructions of Harbor link to a file of the host",
        _PLAIN,
        _attack_harbor_link,
    ),
    Attack(
        "image-root",
        "root of an image in Docker writes a setting of the kernel",
        "few capabilities, `/proc/sys` read-only",
        _attack_image_root,
    ),
)
