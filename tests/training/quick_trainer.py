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
    asked = parser.parse_args()
    if asked.rate < 0:
        print("rate is negative")
        raise SystemExit(3)
    asked.folder.mkdir(parents=True, exist_ok=True)
    level = 1 - (asked.rate - 0.3) ** 2 + asked.seed / 1000
    with (asked.folder / "metrics.jsonl").open("w") as file:
        for part in range(11):
            value = level * part / 10
            row = {"step": asked.total_steps * part // 10, "overview/reward": value}
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
            time.sleep(asked.pause)
