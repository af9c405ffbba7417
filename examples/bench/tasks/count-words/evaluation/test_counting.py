import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from program import text_file, words


def test_the_most_frequent_come_first_and_equal_ones_by_the_alphabet(tmp_path):
    path = text_file(tmp_path, b"b a c a, B? a! d it's IT'S")
    assert words(path)[:2] == (0, "3 a\n2 b\n2 it's\n1 c\n1 d\n")


def test_top_prints_the_first_ones_only(tmp_path):
    path = text_file(tmp_path, b"x x y y z")
    assert words("--top", 2, path)[:2] == (0, "2 x\n2 y\n")


def test_the_counts_of_files_are_added_up(tmp_path):
    first = text_file(tmp_path, b"one two", "first.txt")
    second = text_file(tmp_path, b"two 3", "second.txt")
    assert words(first, second)[:2] == (0, "2 two\n1 3\n1 one\n")


def test_letters_of_any_language_and_bytes_that_are_none(tmp_path):
    path = text_file(tmp_path, "Äpfel äpfel".encode() + b" \xff pear")
    assert words(path)[:2] == (0, "2 äpfel\n1 pear\n")
