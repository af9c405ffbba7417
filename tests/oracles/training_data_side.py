"""Training data as `datasets` of Hugging Face loads it: its rows, by the names of files."""

import json
import os
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=tempfile.mkdtemp())

from datasets import disable_progress_bars, load_dataset

disable_progress_bars()
loaded = {
    name: list(
        load_dataset(
            "parquet" if path.endswith(".parquet") else "json", data_files=path, split="train"
        )
    )
    for name, path in json.load(sys.stdin).items()
}
print(json.dumps(loaded))
