"""A user's trainer: logs metrics, saves checkpoints, resumes, and fails on request."""

import json
import sys
import time
from pathlib import Path
from random import Random


def main(seed: int, folder: Path, pause: float, fails: str) -> None:
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    start = max((int(path.name.split("-")[1]) for path in checkpoints.iterdir()), default=0)
    with (folder / "starts").open("a") as file:
        file.write(f"{start}\n")
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    kept = [line for line in lines if json.loads(line)["step"] <= start]
    metrics.write_text("".join(f"{line}\n" for line in kept))
    with metrics.open("a", buffering=1) as file:
        for step in range(start + 10, 101, 10):
            time.sleep(pause)
            reward = step / 100 + Random(f"{seed} {step}").random()
            file.write(json.dumps({"step": step, "overview/reward": reward}) + "\n")
            if step == 50:
                (checkpoints / "step-50").mkdir()
                while fails == "waits" and not (folder.parent / "go").exists():
                    time.sleep(0.01)
            if step == 70 and (fails == "always" or (fails == "once" and start == 0)):
                sys.exit(5)


main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
