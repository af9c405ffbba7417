import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import json

from program import text_file, words


def test_json_has_the_counts_in_their_order(tmp_path):
    code, output, _ = words("--json", text_file(tmp_path, b"b a b c"))
    assert code == 0
    assert list(json.loads(output).items()) == [("b", 2), ("a", 1), ("c", 1)]


def test_json_of_the_first_ones_only(tmp_path):
    code, output, _ = words("--json", "--top", "1", text_file(tmp_path, b"b a b c"))
    assert (code, json.loads(output)) == (0, {"b": 2})
