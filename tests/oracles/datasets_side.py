"""Exports as `datasets` of Hugging Face loads them: the way docs/traces.md says it."""

import json
import os
import sys
import tempfile
from glob import glob
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=tempfile.mkdtemp())

from datasets import Features, Json, Value, disable_progress_bars, load_dataset

disable_progress_bars()
PARTS = ("run", "experiment", "session", "messages", "calls", "played", "end")
features = Features(
    {"format": Value("string"), "source": Value("string"), **{part: Json() for part in PARTS}}
)
asked = json.load(sys.stdin)
traces = {
    name: load_dataset("json", data_files=asked[name], features=features, split="train")
    for name in ("json", "jsonl")
}
tables = {
    Path(path).stem: load_dataset("parquet", data_files=path, split="train").num_rows
    for path in glob(asked["parquet"])
}
print(json.dumps({**{name: list(rows) for name, rows in traces.items()}, "parquet": tables}))
