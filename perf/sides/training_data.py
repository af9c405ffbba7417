"""`assay sft filter` and `validate` in a separate process: seconds, rows, peak memory."""

import json
import sys
import time
from pathlib import Path

import assay
import assay.finetune.datasets.validate
from assay.api.sft import measure_peak_memory


def main(what: str, source: str, target: str = "") -> None:
    if what == "filter":
        assay.sft_filter(None, database=source, seeds="0")  # what it needs is loaded then
    started = time.perf_counter()
    if what == "filter":
        rows = assay.sft_filter(Path(target), database=source, min_achievements=1).rows
    else:
        report = assay.sft_validate(source)
        assert report.ok, report.findings
        rows = report.rows
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "rows": rows, "peak": measure_peak_memory()}))


main(*sys.argv[1:])
