"""`datasets.load_dataset` on a data file, with a separate cache."""

import json
import sys
import tempfile
import time

from datasets import load_dataset


def main(source: str) -> None:
    with tempfile.TemporaryDirectory() as cache:
        started = time.perf_counter()
        rows = load_dataset("json", data_files=source, split="train", cache_dir=cache)
        seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "rows": len(rows)}))


main(*sys.argv[1:])
