"""A trainer that takes no time: JSON lines into a folder, a curve that depends on --rate."""

import argparse
import json
import os
import time
from pathlib import Path

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--total-steps", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--pause", type=float, default=0.0)
    options = parser.parse_args()
    if options.rate < 0:
        print("rate is negative")
        raise SystemExit(3)
    options.folder.mkdir(parents=True, exist_ok=True)
    level = 1 - (options.rate - 0.3) ** 2 + options.seed / 1000
    with (options.folder / "metrics.jsonl").open("w") as file:
        for part in range(11):
            value = level * part / 10
            row = {"step": options.total_steps * part // 10, "overview/reward": value}
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
            time.sleep(options.pause)
