"""A reset of the PyPI package `crafter` where numba is not installed: one JSON line.

Imports crafter and the standard library only. The package's noise is compiled wherever
numba can be imported, so that import is made to fail.
"""

import json
import sys
import time

sys.modules["numba"] = None  # type: ignore[assignment]

import crafter  # noqa: E402


class Undrawn(crafter.Env):  # type: ignore[misc]
    def render(self, size: object = None) -> None:
        """Draw nothing."""


def main() -> None:
    env = Undrawn(seed=int(sys.argv[1]))
    started = time.process_time()
    env.reset()
    print(json.dumps({"seconds": time.process_time() - started}))


if __name__ == "__main__":
    main()
