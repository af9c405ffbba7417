import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assay.bench.base import Allowed
from assay.bench.tasks import apply_patch, load_task, make_workspace, new_task, prepare_task
from assay.errors import UsageError
from tests.bench.tasks import git, make_repository, make_task, write

NOW = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    make_repository(tmp_path / "there")
    return tmp_path / "there"


def anywhere(tmp_path: Path) -> Allowed:
    return Allowed((str(tmp_path),))


def test_task_is_captured_from_two_commits(there: Path, tmp_path: Path) -> None:
    git(there, "remote", "add", "origin", "https://ada:secret@example.org/calc.git")
    folder = new_task(there, "HEAD~1", "HEAD", tmp_path / "created", tags=["bug"], now=NOW)
    assert folder == tmp_path / "created" / "add-what-is-added_20260203_040506"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {
        *("tb_meta.json", "LM_INSTRUCTIONS.md", "repo_info.json", "diff.patch", "notes.md"),
        *("evaluation/tests/test_calc.py", "evaluation/tests/numbers.txt"),
    }
    task = load_task(folder, allowed=anywhere(tmp_path))
    assert (task.title, task.tags) == ("Add what is added", ("bug",))
    assert "It was taken away before." in task.instructions
    assert [(rubric.id, rubric.weight) for rubric in task.rubrics] == [("test_calc", 1.0)]
    assert [(test.path, test.rubric_id) for test in task.test_scripts] == [
        ("tests/test_calc.py", "test_calc")
    ]
    assert task.evaluation_files == {"tests/numbers.txt": b"1 2 3\n"}
    info = json.loads((folder / "repo_info.json").read_text("utf-8"))
    assert info["remote_urls"] == ["https://example.org/calc.git"]
    assert info["start_commit"] == git(there, "rev-parse", "HEAD~1")
    assert info["touched_files"] == ["lib/calc.py", "tests/numbers.txt", "tests/test_calc.py"]
    notes = (folder / "notes.md").read_text("utf-8")
    assert "## Hidden from the agent" in notes
    assert "- `tests/numbers.txt`" in notes


def test_hidden_tests_are_neither_in_the_reference_patch_nor_in_the_workspace(
    there: Path, tmp_path: Path
) -> None:
    task = load_task(
        new_task(there, "HEAD~1", "HEAD", tmp_path / "created"), allowed=anywhere(tmp_path)
    )
    assert task.reference_patch is not None
    assert b"test_calc" not in task.reference_patch
    workspace = make_workspace(task, tmp_path / "workspace")
    assert [path.name for path in (workspace.repo / "tests").iterdir()] == ["test_old.py"]
    apply_patch(workspace, task.reference_patch)
    assert "return a + b" in (workspace.repo / "lib/calc.py").read_text("utf-8")


def test_custom_texts_and_rubrics_are_used(there: Path, tmp_path: Path) -> None:
    folder = new_task(
        there,
        "HEAD~1",
        "trunk",
        tmp_path,
        title="Mend: the sum/it!",
        instructions="Mend it.",
        rubrics={"style": "It is plain", "calc": "It adds"},
        now=NOW,
    )
    assert folder.name == "mend-the-sumit_20260203_040506"
    task = load_task(folder, allowed=anywhere(tmp_path))
    assert task.instructions == "Mend it.\n"
    assert [rubric.id for rubric in task.rubrics] == ["style", "calc"]
    assert task.test_scripts[0].rubric_id == "calc"
    again = new_task(there, "HEAD~1", "trunk", tmp_path, title="Mend the sumit", now=NOW)
    assert again != folder


def test_task_is_captured_from_one_folder_of_a_repository(there: Path, tmp_path: Path) -> None:
    folder = new_task(
        there, "HEAD~1", "HEAD", tmp_path, subdir="lib", rubrics={"sum": "It adds"}
    )
    task = load_task(folder, allowed=anywhere(tmp_path))
    workspace = make_workspace(task, tmp_path / "workspace")
    apply_patch(workspace, task.reference_patch or b"")
    assert "return a + b" in (workspace.repo / "calc.py").read_text("utf-8")


def test_invalid_capture_is_an_error(there: Path, tmp_path: Path) -> None:
    into = tmp_path / "created"
    for start, end, subdir, said in (
        ("HEAD", "HEAD", None, "nothing changed"),
        ("HEAD~1", "none", None, "end: no commit 'none'"),
        ("HEAD~1", "HEAD", "lib", "no test file changed"),
        ("HEAD~1", "HEAD", "../lib", r"subdir: '\.\./lib'"),
    ):
        with pytest.raises(UsageError, match=said):
            new_task(there, start, end, into, subdir=subdir)
    with pytest.raises(UsageError, match="not a git repository"):
        new_task(tmp_path, "a", "b", into)
    assert not into.exists()


@pytest.mark.bench
def test_prepared_task_does_not_need_its_repository(there: Path, tmp_path: Path) -> None:
    created = new_task(there, "HEAD~1", "HEAD", tmp_path / "created", now=NOW)
    write(created, {".env": "KEY=sk-1", "overrides.json": '{"prompt": "x"}'})
    start = git(there, "rev-parse", "HEAD~1")
    baseline = make_workspace(
        load_task(created, allowed=anywhere(tmp_path)), tmp_path / "w1"
    ).baseline
    folder = prepare_task(created, tmp_path / "prepared", allow_repos=[str(tmp_path)])
    assert folder == tmp_path / "prepared" / "add-what-is-added"
    shutil.rmtree(there)
    task = load_task(folder, allowed=anywhere(tmp_path))
    assert task.repo.start_commit == start
    assert task.repo.origin == str(there)
    assert task.repo.git_url == str(folder / "repo.bundle")
    workspace = make_workspace(task, tmp_path / "w2")
    assert workspace.baseline == baseline
    assert not (folder / ".env").exists()
    assert (folder / "overrides.json").is_file()
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == [folder.name]


@pytest.mark.bench
def test_preparing_never_overwrites_another_task(there: Path, tmp_path: Path) -> None:
    first = new_task(there, "HEAD~1", "HEAD", tmp_path / "created", now=NOW)
    second = new_task(
        there, "HEAD~1", "HEAD", tmp_path / "created", instructions="Other.", now=NOW
    )
    into = tmp_path / "prepared"
    assert prepare_task(first, into, allow_repos=[str(tmp_path)]).name == "add-what-is-added"
    for _ in range(2):
        assert (
            prepare_task(first, into, allow_repos=[str(tmp_path)]).name == "add-what-is-added"
        )
        assert (
            prepare_task(second, into, allow_repos=[str(tmp_path)]).name
            == "add-what-is-added-2"
        )
    assert load_task(into / "add-what-is-added").instructions != "Other.\n"
    assert len(list(into.iterdir())) == 2


def test_task_of_plain_files_is_prepared_by_copying(tmp_path: Path) -> None:
    created = make_task(tmp_path / "mine", task_id="mine")
    folder = prepare_task(
        created, tmp_path / "prepared", name="ready", allow_repos=[str(tmp_path)]
    )
    assert folder.name == "ready"
    assert (
        load_task(folder, allowed=anywhere(tmp_path)).checksum
        == load_task(created, allowed=anywhere(tmp_path)).checksum
    )


def test_task_with_a_reference_patch_that_does_not_apply_is_not_prepared(
    tmp_path: Path,
) -> None:
    created = make_task(
        tmp_path / "mine", {"diff.patch": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"}
    )
    with pytest.raises(UsageError, match=r"diff\.patch' does not apply to the repository"):
        prepare_task(created, tmp_path / "prepared", allow_repos=[str(tmp_path)])
    bare = make_task(tmp_path / "bare", evaluation={})
    with pytest.raises(UsageError, match=r"no evaluation\.rubrics"):
        prepare_task(bare, tmp_path / "prepared", allow_repos=[str(tmp_path)])
    assert list((tmp_path / "prepared").iterdir()) == []
