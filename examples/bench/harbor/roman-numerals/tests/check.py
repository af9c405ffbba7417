"""Runs the tests and writes their rewards."""

import json
import sys
import unittest

sys.path.insert(0, "/app")


class Numerals(unittest.TestCase):
    def test_plain_ones_are_added(self):
        from roman import to_number

        self.assertEqual([to_number(text) for text in ("III", "MDC")], [3, 1600])
        self.assertEqual(to_number("IV"), 4, "and this needs the work that was asked for")

    def test_a_smaller_one_before_a_larger_one_is_taken_away(self):
        from roman import to_number

        self.assertEqual(
            [to_number(text) for text in ("IV", "XC", "MCMXCIV")], [4, 90, 1994]
        )

    def test_what_is_none_is_refused(self):
        from roman import to_number

        for text in ("", "IIX", "IC", "ABC", "VV"):
            with self.assertRaises(ValueError):
                to_number(text)


result = unittest.TextTestRunner(stream=sys.stdout).run(
    unittest.defaultTestLoader.loadTestsFromTestCase(Numerals)
)
passed = result.testsRun - len(result.failures) - len(result.errors)
rewards = {"reward": passed / result.testsRun, "tests": result.testsRun}
with open("/logs/verifier/reward.json", "w", encoding="utf-8") as file:
    json.dump(rewards, file)
