"""Child process that runs one hidden script, in the same process as the code under test or not.

The repository comes last on the path, after the standard library and installed packages, so
that its files cannot replace pytest or a standard module. Only names that it had before the
patch take precedence over installed packages. A script that tests a program from outside cannot
import the repository. The reports of this process are not trusted without a cross-check.
"""

import contextlib
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import json
import linecache
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .programs import connect

_MAX_MESSAGE_LENGTH = 600
_SET_DUMPABLE = 4


def main() -> None:
    """Run the script given by the arguments, with pytest or directly."""
    if sys.platform == "linux":
        # Programs started by tests cannot inspect this process or open its pipes.
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    settings: dict[str, Any] = json.loads(sys.argv[1])
    reports, programs = map(int, sys.argv[2:])
    os.set_inheritable(reports, False)
    connect(programs) if settings["separate"] else os.close(programs)
    if settings["tests"]:
        code = _run_tests(settings, reports)
        sys.stdout.flush()
        sys.stderr.flush()
        # Exit handlers of the code under test must not change the exit code.
        os._exit(code)
    _add_repository(settings)
    runpy.run_path(settings["script"], run_name="__main__")


class _RepositoryFinder(importlib.abc.MetaPathFinder):
    """Import finder that prefers the repository's original modules to installed ones."""

    def __init__(self, names: frozenset[str], path: list[str]) -> None:
        self._names, self._path = names, path

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or name not in self._names:
            return None
        return importlib.machinery.PathFinder.find_spec(name, self._path)


def _add_repository(settings: dict[str, Any]) -> None:
    folders = [folder for folder in settings["folders"] if os.path.isdir(folder)]
    sys.path += [os.path.dirname(settings["script"]), *folders]
    own_names = frozenset(settings["own_names"]) - sys.stdlib_module_names - set(sys.modules)
    sys.meta_path.insert(0, _RepositoryFinder(own_names, folders))


def _run_tests(settings: dict[str, Any], reports: int) -> int:
    os.environ.pop("PYTEST_ADDOPTS", None)
    os.environ.pop("PYTEST_PLUGINS", None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    with contextlib.suppress(ImportError):  # pytest would load it from the repository later
        importlib.import_module("pygments")
    _add_repository(settings)
    script, root = settings["script"], settings["root"]
    options = [
        "-p",
        "no:cacheprovider",
        "-c",
        f"{root}/assay_grading/pytest.ini",
        "--import-mode=importlib",
    ]
    options += [f"--rootdir={os.path.dirname(script)}", f"--confcutdir={root}/tests", "-q"]
    return int(pytest.main([*options, script], plugins=[_Reporter(settings, reports)]))


class _Reporter:
    """Sends the result of each test through the pipe, as JSON lines."""

    def __init__(self, settings: dict[str, Any], reports: int) -> None:
        self._scripts, self._reports = settings["scripts"], reports
        self._subtests: dict[str, tuple[str, str]] = {}
        """Results of tests with a subtest that did not pass."""

    def pytest_collection_finish(self) -> None:
        """Delete the scripts, so that programs started by the tests cannot read them."""
        for script in self._scripts:
            with open(script, encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
            # For messages; entries without a time are not checked against the file.
            linecache.cache[script] = sum(map(len, lines)), None, lines, script
            os.unlink(script)

    def pytest_runtest_logreport(self, report: Any) -> None:
        status, message = report.outcome, _format_reason(report)
        if hasattr(report, "context"):  # a subtest
            if status != "passed":
                self._subtests[report.nodeid] = status, message
            return
        if status == "passed":
            if report.when != "call":
                return
            status, message = self._subtests.get(report.nodeid, (status, message))
        if status == "failed" and report.when != "call":
            status = "error"
        if hasattr(report, "wasxfail"):
            # An expected failure gives no evidence, whether it occurs or not.
            status, message = "skipped", f"xfail: {report.wasxfail}"
        self._send_report(name=report.nodeid.partition("::")[2], status=status, message=message)

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            status = "skipped" if report.outcome == "skipped" else "error"
            self._send_report(name="", status=status, message=_format_reason(report))

    def _send_report(self, **report: str) -> None:
        line = memoryview(json.dumps(report).encode() + b"\n")
        while line:
            line = line[os.write(self._reports, line) :]


def _format_reason(report: Any) -> str:
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash else report.longrepr or "")
    if not crash:  # the file cannot be loaded: keep the lines that give the reason
        errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E  ")]
        text = " ".join(errors) or text
    return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[: _MAX_MESSAGE_LENGTH - 1]}…"


if __name__ == "__main__":
    main()
