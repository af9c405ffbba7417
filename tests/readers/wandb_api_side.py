"""Reads runs of a project through the wandb package: JSON in, JSON out.

In: {"project", "ids"}. The server is that of WANDB_BASE_URL; assay is taken from PYTHONPATH.
"""

import json
import sys
from typing import Any

from assay.errors import UsageError
from assay.training.readers.wandb import WandbProject

if __name__ == "__main__":
    asked = json.load(sys.stdin)
    project = WandbProject(asked["project"])
    found: list[Any] = []
    for run_id in asked["ids"]:
        try:
            run = project.find(run_id)
        except UsageError as error:
            found.append({"error": str(error)})
            continue
        found.append(
            run
            and {
                "id": run.id,
                "seed": run.seed,
                "series": run.series,
                "status": run.status,
                "commit": run.commit,
                "configuration": run.configuration,
                "notes": run.notes,
                "curves": {
                    metric: [curve.steps_P.tolist(), curve.values_P.tolist(), curve.dropped]
                    for metric, curve in run.curves.items()
                },
            }
        )
    print(json.dumps(found))
