"""Logs runs as TensorBoard event files: JSON in, JSON out.

In: a list of {"folder", "kind", "rows": [[step, {metric: value}], ...], "purge_step"}. Kind
"scalar" logs numbers with tensorboardX, "tensor" the same as tensors with tensorboard's own
writer, as TensorFlow 2 does; "hparams" logs rows[0][1] as hyperparameters.
"""

import json
import sys
from typing import Any

import tensorboard
import tensorboardX
from tensorboard.compat.proto import event_pb2, tensor_pb2
from tensorboard.plugins.scalar import metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def number(value: Any) -> float:
    return float(value)


def log_scalars(asked: Any, place: int) -> None:
    writer = tensorboardX.SummaryWriter(
        asked["folder"], purge_step=asked.get("purge_step"), filename_suffix=f".{place}"
    )
    for step, values in asked["rows"]:
        for metric, value in values.items():
            if value == "histogram":
                writer.add_histogram(metric, [1.0, 2.0, 2.0, 3.0], step)
            elif value == "text":
                writer.add_text(metric, "some words", step)
            else:
                writer.add_scalar(metric, number(value), step)
    writer.close()


def log_tensors(asked: Any) -> None:
    writer = EventFileWriter(asked["folder"])
    kinds = (
        (1, "float_val"),
        (2, "double_val"),
        (1, "tensor_content"),
        (9, "int64_val"),
    )
    for step, values in asked["rows"]:
        for place, (metric, value) in enumerate(values.items()):
            dtype, field = kinds[place % len(kinds)]
            tensor = tensor_pb2.TensorProto(dtype=dtype)
            if field == "tensor_content":
                import numpy as np

                tensor.tensor_content = np.float32(value).tobytes()
            else:
                getattr(tensor, field).append(int(value) if field == "int64_val" else value)
            about = metadata.create_summary_metadata(display_name="", description="")
            event = event_pb2.Event(step=step, wall_time=1.7e9 + step)
            event.summary.value.add(tag=metric, tensor=tensor, metadata=about)
            writer.add_event(event)
    writer.close()


def log_hyperparameters(asked: Any) -> None:
    writer = tensorboardX.SummaryWriter(asked["folder"])
    writer.add_hparams(asked["rows"][0][1], {"final": 1.0}, name="hparams")
    writer.close()


if __name__ == "__main__":
    for place, asked in enumerate(json.load(sys.stdin)):
        if asked["kind"] == "scalar":
            log_scalars(asked, place)
        elif asked["kind"] == "tensor":
            log_tensors(asked)
        else:
            log_hyperparameters(asked)
    versions = {one.__name__: one.__version__ for one in (tensorboard, tensorboardX)}
    print(json.dumps(versions))
