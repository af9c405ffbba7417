"""Files in a patch that a test runner reads without being told to.

They may be honest, as may a `setup.cfg` that gets a new dependency; whoever reads a score
should know of them all the same.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from assay._util.files import read_plain_file
from assay.bench.sandboxes.base import TrialFinding
from assay.bench.tasks.tree import shown_path

__all__ = ["shadowing_findings"]

_MODULES = {
    *("_pytest", "conftest", "pluggy", "pytest", "sitecustomize", "unittest", "usercustomize"),
}
_SETTINGS = {".pytest.ini", ".pytest.toml", "pytest.ini", "pytest.toml", "setup.cfg", "tox.ini"}
_CODE = (".py", ".pyc", ".so")
_TABLE = b"[tool.pytest"


def shadowing_findings(root: Path, paths: Iterable[str]) -> Iterator[TrialFinding]:
    """A finding for each path that changes how tests run, or what runs them."""
    for path in paths:
        *folders, name = path.split("/")
        stem = name.partition(".")[0]
        if (
            name in _SETTINGS
            or name.endswith(".pth")
            or (stem in _MODULES and name.endswith(_CODE))
            or not _MODULES.isdisjoint(folders)
            or (name == "pyproject.toml" and _configures_pytest(root / path))
        ):
            yield TrialFinding("test_runner_shadowed", shown_path(path))


def _configures_pytest(path: Path) -> bool:
    try:
        return _TABLE in read_plain_file(path)
    except OSError:
        return False
