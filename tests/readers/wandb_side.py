"""Logs runs with wandb's offline mode into ./wandb: JSON in, JSON out.

In: a list of {"id", "name", "group", "config", "rows": [[step, {metric: value}], ...], "end"};
"end" is "finish", an exit code, or "kill", which ends all of wandb in the middle of the run.
Values are numbers, words such as "nan", objects, or "histogram".
"""

import json
import os
import signal
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import wandb

SETTINGS = {
    "mode": "offline",
    "silent": True,
    "host": "somewhere",
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
    "disable_code": True,
    "disable_git": True,
    "console": "off",
}
WORDS = {"nan": float("nan"), "inf": float("inf"), "histogram": wandb.Histogram([1, 2, 2, 3])}


def log(asked: Any) -> None:
    os.setpgid(0, 0)
    run = wandb.init(
        entity="team",
        project="crafter",
        id=asked["id"],
        name=asked["name"],
        group=asked.get("group"),
        config=asked["config"],
        settings=wandb.Settings(**SETTINGS),
    )
    for step, values in asked["rows"]:
        known = {
            name: WORDS.get(value, value) if isinstance(value, str) else value
            for name, value in values.items()
        }
        run.log(known, step=step)
    if asked["end"] == "kill":
        # What was logged is written by another process, which goes too.
        file = next(Path("wandb").glob(f"*-{asked['id']}/*.wandb"))
        size = -1
        while size != (size := file.stat().st_size):
            time.sleep(0.5)
        os.killpg(0, signal.SIGKILL)
    run.finish(exit_code=0 if asked["end"] == "finish" else asked["end"])


if __name__ == "__main__":
    for asked in json.load(sys.stdin):
        process = get_context("fork").Process(target=log, args=[asked])
        process.start()
        process.join()
    print(json.dumps({"wandb": wandb.__version__}))
