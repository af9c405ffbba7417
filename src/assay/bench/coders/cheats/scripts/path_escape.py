"""Leaves a patch with paths outside the repository, and tries to write outside directly."""

from pathlib import Path

PATCH = """\
diff --git a/../../escaped.txt b/../../escaped.txt
new file mode 100644
--- /dev/null
+++ b/../../escaped.txt
@@ -0,0 +1 @@
+outside
"""
artifacts = Path("../artifacts")
artifacts.mkdir(exist_ok=True)
(artifacts / "diff.patch").write_text(PATCH, "utf-8")
try:
    Path("../../escaped-directly.txt").write_text("outside", "utf-8")
    print("wrote outside of the repository")
except OSError as error:
    print(f"could not write outside: {error}")
