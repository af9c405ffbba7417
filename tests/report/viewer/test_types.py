"""The types in the comments of the viewer's modules, checked by TypeScript's compiler."""

import shutil
import subprocess
from pathlib import Path

import pytest

import assay.report.viewer

pytestmark = pytest.mark.extras
COMPILER = "typescript@7.0.2"
STRICT = (
    *("--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022"),
    *("--module", "es2022", "--moduleResolution", "bundler"),
    *("--lib", "es2023,dom,dom.iterable"),
)


def test_the_modules_of_the_page_have_consistent_types(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm on the PATH")
    install = [npm, "install", "--silent", "--no-audit", "--prefix", str(tmp_path), COMPILER]
    subprocess.run(install, check=True, cwd=tmp_path)
    static = Path(assay.report.viewer.__file__).parent / "static"
    modules = sorted(static.glob("*.js"))
    assert modules
    checked = subprocess.run(
        [tmp_path / "node_modules/.bin/tsc", *STRICT, *modules],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert checked.returncode == 0, checked.stdout
