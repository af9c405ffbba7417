import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from program import text_file, words


def test_without_a_file_it_reads_standard_input():
    assert words(stdin=b"a b a")[:2] == (0, "2 a\n1 b\n")


def test_a_dash_is_standard_input_among_files(tmp_path):
    path = text_file(tmp_path, b"a c")
    assert words(path, "-", stdin=b"a b")[:2] == (0, "2 a\n1 b\n1 c\n")


def test_nothing_in_nothing_out():
    assert words(stdin=b"")[:2] == (0, "")
