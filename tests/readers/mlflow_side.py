"""Logs runs with MLflow into ./mlflow.db, or into ./mlruns: JSON in, JSON out.

In: {"store": "sqlite" or "files", "runs": [{"name", "experiment", "params", "rows",
"status"}]}; "status" is FINISHED, FAILED, KILLED, RUNNING, or "deleted". Out: the ids.
"""

import json
import os
import sys
from typing import Any

os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "LOGNAME": "somebody"}
import mlflow
from mlflow.entities import Metric, Param

URIS = {"sqlite": "sqlite:///mlflow.db", "files": "file:./mlruns"}


def log(client: Any, asked: Any) -> str:
    experiment = client.get_experiment_by_name(asked["experiment"])
    if experiment is None:
        client.create_experiment(asked["experiment"], artifact_location="s3://nowhere")
        experiment = client.get_experiment_by_name(asked["experiment"])
    tags = {"mlflow.source.git.commit": "c0ffee", "mlflow.user": "somebody"}
    run = client.create_run(experiment.experiment_id, tags=tags, run_name=asked["name"])
    run_id = str(run.info.run_id)
    params = [Param(key, str(value)) for key, value in asked["params"].items()]
    points = [
        Metric(metric, float(value), 1_700_000_000_000 + place, step)
        for place, (step, values) in enumerate(asked["rows"])
        for metric, value in values.items()
    ]
    client.log_batch(run_id, params=params)
    for start in range(0, len(points), 1_000):
        client.log_batch(run_id, metrics=points[start : start + 1_000])
    if asked["status"] == "deleted":
        client.delete_run(run_id)
    elif asked["status"] != "RUNNING":
        client.set_terminated(run_id, asked["status"])
    return run_id


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    client = mlflow.MlflowClient(tracking_uri=URIS[asked["store"]])
    ids = [log(client, one) for one in asked["runs"]]
    print(json.dumps({"ids": ids, "mlflow": mlflow.__version__}))
