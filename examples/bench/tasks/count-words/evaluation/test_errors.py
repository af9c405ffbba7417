import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from program import text_file, words


def test_a_missing_file_is_one_line_and_exit_code_2(tmp_path):
    code, output, errors = words(text_file(tmp_path, b"a"), tmp_path / "no_such.txt")
    assert (code, output) == (2, "")
    assert "no_such.txt" in errors
    assert len(errors.splitlines()) == 1


def test_top_of_less_than_one_is_refused(tmp_path):
    path = text_file(tmp_path, b"a b")
    code, output, errors = words("--top", "0", path)
    assert (code, output) == (2, "")
    assert "0" in errors
    assert words("--top", "1", path)[:2] == (0, "1 a\n")
