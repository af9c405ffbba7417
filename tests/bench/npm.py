"""A program named npm that installs a fake agent, so that no network is needed."""

import os
import sys
from pathlib import Path

import pytest

__all__ = ["fake_npm"]

_NPM = """\
import json, pathlib, sys
given = sys.argv[1:]
folder = pathlib.Path(given[given.index("--prefix") + 1]) / "node_modules"
package, _, version = given[-1].rpartition("@")
if version == "9.9.9":
    sys.exit("npm error notarget No matching version found for " + given[-1])
about = folder / package / "package.json"
about.parent.mkdir(parents=True)
about.write_text(json.dumps({"version": "1.0.0" if version == "latest" else version}))
binary = folder / "@openai/codex-any/vendor/any/bin/codex"
binary.parent.mkdir(parents=True)
binary.write_text(AGENT + "# " + version)
binary.chmod(0o755)
"""


def fake_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, agent: str = "") -> None:
    """Put the fake npm first on PATH; `agent` is the source of the codex that it installs."""
    folder.mkdir()
    script = folder / "npm"
    script.write_text(f"#!{sys.executable}\nAGENT = {agent!r}\n{_NPM}", "utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
