"""Training of waiting jobs, one at a time, each in its own process.

Parallel jobs would only compete for the CPU. A process can be killed at any time; the next one
resumes from its last checkpoint.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from assay.core.text import cut
from assay.finetune.service.jobs import Job, JobStore

_GRACE_S: Final = 5.0
_MAX_ERROR_TEXT: Final = 2000
_MEMORY_ENVIRONMENT: Final = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "20000000000",
}
"""For glibc: reuse the memory of the previous step instead of allocating it again."""


class Worker:
    """Trains waiting jobs until it is closed."""

    def __init__(self, jobs: JobStore, files: Path, threads: int) -> None:
        self._jobs, self._files, self._threads = jobs, files, threads
        self._wake = threading.Event()
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._job: Job | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="finetune-worker", daemon=True)

    def start(self) -> None:
        """Start the thread; it begins with jobs that an earlier service left unfinished."""
        self._thread.start()

    def wake(self) -> None:
        """Notify the worker of a new job."""
        self._wake.set()

    def cancel(self, job: Job) -> None:
        """Cancel a job."""
        with self._lock:
            if job.ended:
                return
            job.change("The job was cancelled", status="cancelled")
            if self._job is job:
                self._terminate()

    def close(self) -> None:
        """Stop the worker; an unfinished job is resumed by the next service."""
        with self._lock:
            self._closed = True
            self._terminate()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _terminate(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def _run(self) -> None:
        while not self._closed:
            self._wake.clear()
            job = self._jobs.find_waiting()
            if job is None:
                self._wake.wait()
            else:
                self._train(job)

    def _train(self, job: Job) -> None:
        with self._lock:
            if job.ended or self._closed:
                return
            resumed = job.status == "running"
            job.change("Training is resumed" if resumed else "The job starts", status="running")
            with (job.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "assay.finetune.service.job_process"),
                        *(str(job.folder), str(self._files), str(self._threads)),
                    ],
                    env={**_MEMORY_ENVIRONMENT, **os.environ},
                    # Closes when this process exits for any reason.
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._job = job
        code = self._wait_for_process()
        with self._lock:
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = self._job = None
            if job.ended or (self._closed and code):
                return
            self._finish(job, code)

    def _wait_for_process(self) -> int:
        assert self._process is not None
        while True:
            try:
                return self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                should_end = self._closed or (self._job is not None and self._job.ended)
                if should_end:
                    self._process.kill()

    def _finish(self, job: Job, code: int) -> None:
        path = job.folder / "result.json"
        result = json.loads(path.read_bytes()) if path.exists() else {}
        if code == 0 and "trained_tokens" in result:
            name = job.make_model_name()
            job.change(
                f"The job produced the model {name}",
                status="succeeded",
                fine_tuned_model=name,
                trained_tokens=result["trained_tokens"],
            )
            return
        message = f"training ended with exit code {code}: {_read_last_line(job.folder / 'log')}"
        server_error = {"code": "server_error", "message": message, "param": None}
        error = result.get("error") or server_error
        job.change(f"The job failed: {error['message']}", status="failed", error=error)


def _read_last_line(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").strip().splitlines() if path.exists() else []
    return cut(lines[-1], _MAX_ERROR_TEXT) if lines else "it printed nothing"
