"""Hooks from a user's file and from installed packages."""

from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.metrics import DEFAULT_HOOKS, Watch, gather_hooks, installed_hooks, load_hooks
from tests.support import run_python

from .episodes import play

GOOD = '''
from dataclasses import dataclass, field
from assay.metrics import BaseHook, HookRecord, hook

class Helper(BaseHook):
    """Not marked, so not taken."""

@hook
@dataclass
class Hungry(Helper):
    told: list = field(default_factory=list)

    def on_step(self, seen):
        if seen.inventory["food"] < 9 and not self.told:
            self.told.append(seen.step.index)
            yield HookRecord(name="hungry", code="F", priority=9, step=seen.step.index)

@hook
class Turns(Helper):
    def on_turn(self, played):
        return [HookRecord(name="turn", code="T", priority=0, step=None)]

Same = Turns
class Heir(Turns):
    """An heir of a marked class is not marked itself."""
'''


def write(tmp_path: Path, text: str | bytes, name: str = "my_hooks.py") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_marked_classes_of_a_file_are_loaded_in_order(tmp_path: Path) -> None:
    found = load_hooks(write(tmp_path, GOOD))
    assert [kind.__name__ for kind in found.classes] == ["Hungry", "Turns"]


def test_hooks_of_a_file_see_real_episodes(tmp_path: Path) -> None:
    hooks = load_hooks(write(tmp_path, GOOD)).classes
    session = play(turns=20, hooks=hooks)
    names = [found.name for turn in session.played for found in turn.hooks]
    assert names.count("turn") == 20
    assert names.count("hungry") == 1


def test_sha_depends_only_on_the_text(tmp_path: Path) -> None:
    first = load_hooks(write(tmp_path, GOOD))
    second = load_hooks(write(tmp_path, GOOD, "copy.py"))
    third = load_hooks(write(tmp_path, GOOD + "\n# changed\n"))
    assert first.sha == second.sha != third.sha


def test_a_run_has_the_built_in_hooks_and_those_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    with_file, without = gather_hooks(path), gather_hooks()
    assert without.classes == DEFAULT_HOOKS
    assert [kind.__name__ for kind in with_file.classes[len(DEFAULT_HOOKS) :]] == [
        "Hungry",
        "Turns",
    ]
    assert with_file.sha != without.sha == gather_hooks().sha
    Watch(with_file.classes)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        pytest.param("x = 1\ndef f(:\n", 2, "not valid Python", id="syntax"),
        pytest.param("\n\nimport no_such_module\n", 3, "ModuleNotFoundError", id="import"),
        pytest.param("def f():\n    return 1/0\n\nf()\n", 2, "ZeroDivisionError", id="raises"),
        pytest.param("import sys\nsys.exit(3)\n", 2, "SystemExit", id="leaves"),
        pytest.param(
            "from assay.metrics import hook\n\n@hook\nclass Mine:\n    pass\n",
            3,
            "hook 'Mine' has no on_step(self, seen)",
            id="not a hook",
        ),
    ],
)
def test_errors_in_a_file_are_reported_with_the_line(
    text: str, line: int, words: str, tmp_path: Path
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as error:
        load_hooks(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("x = 1\n", "has no hooks", id="no hooks"),
        pytest.param("", "has no hooks", id="empty"),
        pytest.param(b"\xff\xfe\x00", "not valid Python", id="not text"),
    ],
)
def test_error_for_a_file_without_hooks_shows_the_expected_form(
    text: str | bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        load_hooks(write(tmp_path, text))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.py.*No such file"):
        load_hooks(tmp_path / "missing.py")
    with pytest.raises(UsageError, match="Is a directory"):
        load_hooks(tmp_path)


def package(tmp_path: Path, target: str) -> None:
    write(tmp_path, GOOD, "their_hooks.py")
    info = tmp_path / "their_hooks-1.0.dist-info"
    info.mkdir()
    write(info, "Metadata-Version: 2.1\nName: their-hooks\nVersion: 1.0\n", "METADATA")
    write(info, f"[assay.hooks]\ntheirs = their_hooks:{target}\n", "entry_points.txt")


def test_installed_packages_offer_hooks_as_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = installed_hooks()
    package(tmp_path, "Turns")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = installed_hooks()
    assert [kind.__name__ for kind in found.classes] == ["Turns"]
    assert before.classes == ()
    assert found.sha != before.sha


@pytest.mark.parametrize("target", ["GOLD", "dataclass"])
def test_entry_point_that_is_not_a_hook_is_reported_with_its_package(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, target)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"entry point 'theirs'.*package 'their-hooks'"):
        installed_hooks()


def test_loading_hooks_does_not_import_the_compiler() -> None:
    code = "import sys, assay.metrics; print('numba' in sys.modules)"
    done = run_python("-c", code)
    assert done.output == "False\n"
