import json
from pathlib import Path
from typing import Any

import pytest

from assay.bench.base import Allowed
from assay.bench.tasks import load_task, make_workspace, overrides_problems
from assay.core.wildcards import Wildcards
from assay.errors import UsageError
from tests.bench.tasks import RUBRIC, TEST, git, make_repository, make_task, write


def overrides_file(folder: Path, **keys: Any) -> Path:
    path = folder / "mine.json"
    path.write_text(json.dumps(keys), "utf-8")
    return path


def test_task_is_loaded_from_its_folder(tmp_path: Path) -> None:
    folder = make_task(
        tmp_path / "task",
        {
            "overlay_files/data/input.txt": "1\n",
            "overlay_repo_files/src/extra.py": "e = 1\n",
            "evaluation/cases.json": "{}",
            "evaluation/measure.py": "print()\n",
            "diff.patch": "the patch",
        },
        task_id="t1",
        metadata={"title": "Do it", "tags": ["small"]},
        evaluation={
            "rubrics": [{**RUBRIC, "weight": 2, "evaluation_criteria": ["clear"]}],
            "test_scripts": [TEST],
            "script": {"path": "measure.py"},
        },
        limits={"cpus": 2, "memory_mb": 512, "network": True},
        environment_variables={"MODE": "fast"},
        sensitivity={"level": "safe"},
    )
    task = load_task(folder)
    assert (task.task_id, task.title, task.tags) == ("t1", "Do it", ("small",))
    assert task.instructions == "Do it.\n"
    assert (task.rubrics[0].weight, task.rubrics[0].evaluation_criteria) == (2.0, ("clear",))
    assert task.test_scripts[0].content == TEST["content"]
    assert task.metrics_script is not None
    assert task.metrics_script.content == "print()\n"
    assert task.evaluation_files == {"cases.json": b"{}"}
    assert task.overlay_files == {"data/input.txt": b"1\n"}
    assert task.overlay_repo_files == {"src/extra.py": b"e = 1\n"}
    assert task.reference_patch == b"the patch"
    assert task.limits == {"cpus": 2.0, "memory_mb": 512.0, "network": 1.0}
    assert task.environment == {"MODE": "fast"}


def test_files_of_other_tools_are_not_in_the_instructions(tmp_path: Path) -> None:
    hidden = ("diff.patch", "tb_meta.json", "repo_info.json", "notes.md", "overrides.json")
    folder = make_task(
        tmp_path / "task",
        {
            "overlay_files/LM_INSTRUCTIONS.md": "Do this.\n",
            "overlay_files/box_bootstrap.sh": "true\n",
            **{f"overlay_files/{name}": "SOLUTION" for name in hidden},
        },
    )
    task = load_task(folder)
    assert task.instructions == "Do this.\n"
    assert task.reference_patch == b"SOLUTION"
    workspace = make_workspace(task, tmp_path / "workspace")
    seen = {path.name for path in workspace.app.rglob("*") if ".git" not in path.parts}
    assert seen == {
        *("LM_INSTRUCTIONS.md", "box_bootstrap.sh"),
        *("repo", "app.py", "src", "util.py"),
    }


def test_old_task_format_is_read(tmp_path: Path) -> None:
    start, _ = make_repository(tmp_path / "there")
    folder = make_task(
        tmp_path / "task",
        {"evaluation/score.py": "print()\n"},
        with_repo=False,
        id="old",
        repository={"clone_url": str(tmp_path / "there"), "branch": "trunk", "commit": start},
        evaluation={"script": "score.py", "content_rubric": {}, "rubrics": None},
        lm={"instructions": "not this"},
    )
    task = load_task(folder, allowed=Allowed((str(tmp_path / "there"),)))
    assert (task.task_id, task.repo.start_commit, task.repo.branch) == ("old", start, "trunk")
    assert task.metrics_script is not None
    assert task.rubrics == ()


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        pytest.param({"task_id": 7}, "task_id: 7 is not allowed", id="type"),
        pytest.param({"task_id": "a\nb"}, "one line of 1 to 200", id="lines in a name"),
        pytest.param(
            {"evaluation": {"rubrics": [{**RUBRIC, "weight": 0}]}},
            r"evaluation.rubrics\[0\].weight: 0 is not allowed.*greater than 0",
            id="weight",
        ),
        pytest.param(
            {"evaluation": {"rubrics": [{**RUBRIC, "weight": "1"}]}},
            r"rubrics\[0\].weight: '1' is not allowed",
            id="weight as text",
        ),
        pytest.param(
            {"evaluation": {"rubrics": [RUBRIC, RUBRIC]}},
            "evaluation.rubrics: 2 entries have the id 'right'",
            id="two of a name",
        ),
        pytest.param(
            {"evaluation": {"rubrics": [RUBRIC], "test_scripts": [TEST, TEST]}},
            "2 entries have the path 'test_it.py'",
            id="two tests of a path",
        ),
        pytest.param(
            {"evaluation": {"rubrics": [RUBRIC], "test_scripts": [{**TEST, "rubric_id": "x"}]}},
            r"test_scripts\[0\].rubric_id: no rubric 'x'; choose from: right",
            id="test of no rubric",
        ),
        pytest.param(
            {
                "evaluation": {
                    "rubrics": [RUBRIC],
                    "test_scripts": [{**TEST, "path": "../t.py"}],
                }
            },
            r"test_scripts\[0\].path: '../t.py' is not allowed.*without '\.\.'",
            id="path that leaves",
        ),
        pytest.param(
            {"evaluation": {"rubrics": [RUBRIC], "test_scripts": [{**TEST, "path": "/t.py"}]}},
            "not absolute",
            id="absolute path",
        ),
        pytest.param(
            {"evaluation": {"rubrics": [RUBRIC], "test_scripts": [{**TEST, "path": "t.txt"}]}},
            "a pytest file",
            id="no test",
        ),
        pytest.param(
            {
                "evaluation": {
                    "rubrics": [RUBRIC],
                    "test_scripts": [{"path": "test_gone.py", "rubric_id": "right"}],
                }
            },
            "no file evaluation/test_gone.py",
            id="missing file",
        ),
        pytest.param(
            {"limits": {"ram": 1}}, "unknown key of limits 'ram'; .*memory_mb", id="limit"
        ),
        pytest.param(
            {"limits": {"cpus": 0}}, "limits.cpus: 0 is not allowed", id="no processor"
        ),
        pytest.param(
            {"environment_variables": {"A B": "1"}}, "environment_variables.A B", id="variable"
        ),
        pytest.param({"repo": {"git_url": "ext::sh -c true"}}, "repo.git_url", id="a command"),
        pytest.param({"repo": {"subdir": "../x"}}, "repo.subdir", id="folder that leaves"),
        pytest.param({"repo": {"subdir": "none"}}, "no folder 'none'", id="no such folder"),
        pytest.param(
            {"repo": {"sparse_checkout": ["*.rs"]}},
            r"'\*\.rs' matches nothing",
            id="no such files",
        ),
    ],
)
def test_a_wrong_task_is_an_error_that_names_it(
    tmp_path: Path, meta: dict[str, Any], said: str
) -> None:
    folder = make_task(tmp_path / "task", **meta)
    with pytest.raises(UsageError, match=said):
        load_task(folder)


def test_missing_parts_of_a_task_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"neither tb_meta\.json"):
        load_task(tmp_path)
    folder = make_task(tmp_path / "task", with_repo=False)
    with pytest.raises(UsageError, match="no repository"):
        load_task(folder)
    assert load_task(folder, repository=False).checksum == ""
    (folder / "LM_INSTRUCTIONS.md").unlink()
    with pytest.raises(UsageError, match="no instructions"):
        load_task(folder, repository=False)
    (folder / "tb_meta.json").write_text('{"task_id": "a", "task_id": "b"}', "utf-8")
    with pytest.raises(UsageError, match="duplicate key 'task_id'"):
        load_task(folder)
    (folder / "tb_meta.json").write_text("[]", "utf-8")
    with pytest.raises(UsageError, match="not a JSON object"):
        load_task(folder)


def test_password_in_a_url_is_not_recorded(tmp_path: Path) -> None:
    repo = {"git_url": "https://ada:secret@example.org/x.git", "start_commit_sha": "1" * 40}
    task = load_task(make_task(tmp_path / "task", with_repo=False, repo=repo))
    assert task.repo.origin == "https://example.org/x.git"


def test_link_in_a_task_folder_is_rejected(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task")
    (folder / "overlay_files").mkdir()
    (folder / "overlay_files" / "keys").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="not a plain file"):
        load_task(folder)


def test_every_override_applies_and_the_task_folder_is_unchanged(tmp_path: Path) -> None:
    folder = make_task(
        tmp_path / "task",
        {"repo/logs/a.log": "a", "repo/logs/b.log": "b", "repo/logs/keep.txt": "k"},
        environment_variables={"MODE": "fast", "A": "1"},
    )
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    mine = overrides_file(
        tmp_path,
        lm_instructions="Do something else.\n",
        overlay_files={"hint.md": "a hint\n"},
        overlay_repo_files={"src/util.py": "u = 2\n"},
        inject_files=[{"path": "data/new.txt", "content": "new\n"}],
        remove_repo_paths=["logs/*.log"],
        rubrics=[{"id": "other", "criterion": "c", "weight": 3}],
        test_scripts=[{"path": "test_o.py", "rubric_id": "other", "content": "x"}],
        repo={"subdir": "."},
        environment_variables={"MODE": "slow"},
    )
    task = load_task(folder, mine)
    assert task.instructions == "Do something else.\n"
    assert [rubric.id for rubric in task.rubrics] == ["other"]
    assert [script.path for script in task.test_scripts] == ["test_o.py"]
    assert task.environment == {"MODE": "slow", "A": "1"}
    workspace = make_workspace(task, tmp_path / "workspace")
    assert (workspace.app / "hint.md").read_text("utf-8") == "a hint\n"
    assert (workspace.app / "LM_INSTRUCTIONS.md").read_text("utf-8") == "Do something else.\n"
    assert (workspace.repo / "src/util.py").read_text("utf-8") == "u = 2\n"
    assert (workspace.repo / "data/new.txt").read_text("utf-8") == "new\n"
    assert [path.name for path in (workspace.repo / "logs").iterdir()] == ["keep.txt"]
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before
    assert load_task(folder).instructions == "Do it.\n"


def test_evaluation_override_replaces_the_one_of_the_task(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task")
    evaluation = {"rubrics": [{"id": "new", "criterion": "c"}], "test_scripts": []}
    task = load_task(folder, overrides_file(tmp_path, evaluation=evaluation))
    assert [rubric.id for rubric in task.rubrics] == ["new"]
    assert task.test_scripts == ()


def test_repository_override_is_checked_out(tmp_path: Path) -> None:
    start, end = make_repository(tmp_path / "there")
    folder = make_task(tmp_path / "task")
    mine = overrides_file(
        tmp_path,
        repo={"git_url": str(tmp_path / "there"), "start_commit_sha": start[:10]},
    )
    with pytest.raises(UsageError, match="--allow-repo"):
        load_task(folder, mine)
    task = load_task(folder, mine, allowed=Allowed((str(tmp_path / "there"),)))
    assert task.repo.start_commit == start
    workspace = make_workspace(task, tmp_path / "workspace")
    assert (workspace.repo / "lib/calc.py").is_file()
    assert not (workspace.repo / "app.py").exists()
    with pytest.raises(UsageError, match="has no commits, only plain files"):
        load_task(folder, overrides_file(tmp_path, repo={"start_commit_sha": end}))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        pytest.param({"promt": "x"}, "unknown key 'promt'; did you mean 'prompt'", id="key"),
        pytest.param({"prompt": 3}, "prompt: 3 is not allowed", id="type"),
        pytest.param(
            {"prompt": "a", "lm_instructions": "b"}, "lm_instructions differ", id="both"
        ),
        pytest.param({"overlay_files": {"../x": "y"}}, "without '..'", id="leaves"),
        pytest.param({"overlay_files": {"diff.patch": "y"}}, "must not see it", id="hidden"),
        pytest.param({"overlay_repo_files": {".git/config": "y"}}, "'.git'", id="git"),
        pytest.param(
            {"inject_files": [{"path": "/etc/x", "content": "y"}]}, "absolute", id="absolute"
        ),
        pytest.param({"inject_files": [{"path": "x"}]}, "content is missing", id="missing"),
        pytest.param(
            {"inject_files": [{"path": "x", "content": "", "mode": "1"}]},
            r"unknown key of inject_files\[0\] 'mode'; .*path, content",
            id="key of a file",
        ),
        pytest.param({"repo": {"sha": "x"}}, "unknown key of repo 'sha'", id="key of repo"),
        pytest.param({"remove_repo_paths": "*.log"}, "remove_repo_paths: '[*].log'", id="text"),
        pytest.param(
            {"evaluation": {}, "rubrics": []},
            "combined with rubrics or test_scripts",
            id="twice",
        ),
        pytest.param({"rubrics": []}, "no rubric 'right'", id="tests without rubrics"),
        pytest.param(
            {"environment_variables": {"A": 1}}, "environment_variables.A", id="value"
        ),
    ],
)
def test_invalid_overrides_are_an_error_and_a_reported_problem(
    tmp_path: Path, keys: dict[str, Any], said: str
) -> None:
    folder = make_task(tmp_path / "task")
    mine = overrides_file(tmp_path, **keys)
    with pytest.raises(UsageError, match=said) as raised:
        load_task(folder, mine)
    assert str(mine) in str(raised.value)
    assert overrides_problems(folder, mine) == (str(raised.value),)


def test_override_path_without_matches_is_a_problem(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task")
    mine = overrides_file(tmp_path, remove_repo_paths=["src/*.py", "*.log", "src/"])
    (problem,) = overrides_problems(folder, mine)
    assert "'*.log' matches nothing" in problem
    assert overrides_problems(folder, overrides_file(tmp_path)) == ()


def test_checksum_depends_on_everything_that_defines_a_task(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", {"evaluation/data.txt": "1"})
    first = load_task(folder).checksum
    assert load_task(folder).checksum == first
    seen = {first}
    for path, content in {
        "repo/src/util.py": "u = 3\n",
        "LM_INSTRUCTIONS.md": "Do it well.\n",
        "evaluation/data.txt": "2",
        "overlay_files/more.txt": "m",
        "overlay_repo_files/more.txt": "m",
        "diff.patch": "d",
    }.items():
        write(folder, {path: content})
        seen.add(load_task(folder).checksum)
    (folder / "repo" / "app.py").chmod(0o755)
    seen.add(load_task(folder).checksum)
    seen.add(load_task(folder, overrides_file(tmp_path, remove_repo_paths=["src"])).checksum)
    assert len(seen) == 9


def test_checksum_does_not_depend_on_the_path(tmp_path: Path) -> None:
    start, _ = make_repository(tmp_path / "there")
    git(tmp_path / "there", "checkout", "-q", start)
    from_git = make_task(
        tmp_path / "one",
        with_repo=False,
        task_id="t",
        repo={"git_url": str(tmp_path / "there"), "start_commit_sha": start},
    )
    plain = make_task(tmp_path / "two", with_repo=False, task_id="t")
    allowed = Allowed((str(tmp_path / "there"),))
    (tmp_path / "there").rename(plain / "repo")
    with pytest.raises(UsageError, match=r"repository or bundle .* not found"):
        load_task(from_git, allowed=allowed)
    (plain / "repo").rename(tmp_path / "there")
    checksum = load_task(from_git, allowed=allowed).checksum
    (tmp_path / "there").rename(plain / "repo")
    assert load_task(plain).checksum == checksum


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.log", "a.log", True),
        ("*.log", "logs/a.log", False),
        ("**/*.log", "logs/deep/a.log", True),
        ("**/*.log", "a.log", True),
        ("logs", "logs/deep/a.log", True),
        ("logs", "logs2/a.log", False),
        ("lo?s/[ab].*", "logs/b.txt", True),
        ("lo?s/[!ab].*", "logs/b.txt", False),
        ("src/**", "src/a/b.py", True),
        ("src/*/b.py", "src/a/b.py", True),
        ("src/*/b.py", "src/a/a/b.py", False),
        ("a.c", "abc", False),
        ("*", ".env", True),
    ],
)
def test_wildcards_work_as_in_the_shell(pattern: str, path: str, matches: bool) -> None:
    assert Wildcards([pattern]).match(path) is matches
