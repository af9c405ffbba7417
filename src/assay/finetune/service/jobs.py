"""Jobs and uploaded files of the service, on disk so that they survive a restart.

A job is a folder: `job.json` is the object that clients receive, `events.jsonl` has its events,
and `training` has checkpoints and the model. The training process writes its events; everything
else is written by the service. Uploaded files are in a folder of bounded size. Ids are
generated here and looked up; they are never used as paths.
"""

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

from assay.core.files import atomic_file, atomic_write
from assay.errors import AssayError

ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
"""Final states of a job."""
_SLUG_PATTERN: Final = re.compile(r"[^a-z0-9-]+")


class Job:
    """A fine-tuning job."""

    def __init__(self, folder: Path, order: int, fields: dict[str, Any]) -> None:
        self.folder = folder
        self.order = order
        """Creation time in nanoseconds; the protocol has only seconds."""
        self.fields = fields
        """The job object of the protocol."""

    @property
    def id(self) -> str:
        """Id of the job."""
        return str(self.fields["id"])

    @property
    def status(self) -> str:
        """Status in the terms of the protocol."""
        return str(self.fields["status"])

    @property
    def ended(self) -> bool:
        """Whether the status is final."""
        return self.status in ENDED

    @property
    def training(self) -> Path:
        """Folder for checkpoints and the model."""
        return self.folder / "training"

    def change(self, message: str | None = None, **changes: Any) -> None:
        """Set fields, and add an event with the message."""
        if changes.get("status") in ENDED:
            changes["finished_at"] = int(time.time())
        # Event first: a client that sees the final status must also find the last event.
        if message is not None:
            append_event(self.folder, message, level="error" if "error" in changes else "info")
        stored = {"order": self.order, "told": self.fields | changes}
        atomic_write(self.folder / "job.json", json.dumps(stored).encode())
        self.fields |= changes

    def list_events(self) -> list[dict[str, Any]]:
        """Return the events, the newest first."""
        return list(self._read_events())[::-1]

    def _read_events(self) -> Iterator[dict[str, Any]]:
        path = self.folder / "events.jsonl"
        if not path.exists():
            return
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # incomplete line of a killed process
                yield {
                    "id": f"ftevent-{self.id.removeprefix('ftjob-')}-{number}",
                    "object": "fine_tuning.job.event",
                    **event,
                }

    def list_checkpoints(self) -> list[dict[str, Any]]:
        """Return the checkpoints recorded in the events, the newest first."""
        checkpoints, model = [], self.make_model_name()
        for event in self._read_events():
            data = event.get("data") or {}
            if data.get("checkpoint"):
                step = data["step"]
                metric_names = ("train_loss", "valid_loss", "valid_mean_token_accuracy")
                checkpoints.append(
                    {
                        "id": f"ftckpt-{self.id.removeprefix('ftjob-')}-{step}",
                        "object": "fine_tuning.job.checkpoint",
                        "created_at": event["created_at"],
                        "fine_tuning_job_id": self.id,
                        "fine_tuned_model_checkpoint": f"{model}:ckpt-step-{step}",
                        "step_number": step,
                        "metrics": {"step": step}
                        | {name: data[name] for name in metric_names if name in data},
                    }
                )
        return checkpoints[::-1]

    def make_model_name(self) -> str:
        """Return the name for the new model."""
        suffix = _SLUG_PATTERN.sub(
            "-", (self.fields["user_provided_suffix"] or "").lower()
        ).strip("-")
        return f"ft:{self.fields['model']}:assay:{suffix}:{self.id.removeprefix('ftjob-')[:8]}"


def append_event(
    folder: Path,
    message: str,
    data: Mapping[str, Any] | None = None,
    *,
    level: str = "info",
) -> None:
    """Append an event to the job in a folder, in one write."""
    event = {
        "created_at": int(time.time()),
        "level": level,
        "message": message,
        "type": "message" if data is None else "metrics",
        "data": data or {},
    }
    with (folder / "events.jsonl").open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        # End a line that a killed process left incomplete.
        newline = b"" if file.read(1) in (b"", b"\n") else b"\n"
        file.write(newline + json.dumps(event).encode() + b"\n")


class JobStore:
    """All jobs, by id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._jobs: dict[str, Job] = {}
        for path in folder.glob("ftjob-*/job.json"):
            stored = json.loads(path.read_bytes())
            fields = stored["told"]
            self._jobs[fields["id"]] = Job(path.parent, stored["order"], fields)

    def create(self, fields: Mapping[str, Any]) -> Job:
        """Add a job to the queue."""
        name = f"ftjob-{secrets.token_hex(12)}"
        folder = self._folder / name
        folder.mkdir()
        job = Job(
            folder,
            time.time_ns(),
            {
                "id": name,
                "object": "fine_tuning.job",
                "created_at": int(time.time()),
                "finished_at": None,
                "fine_tuned_model": None,
                "organization_id": "assay",
                "status": "validating_files",
                "trained_tokens": None,
                "result_files": [],
                "error": None,
                **fields,
            },
        )
        job.change("The job was created and is queued")
        self._jobs[name] = job
        return job

    def list_all(self) -> list[Job]:
        """Return all jobs, the newest first."""
        return sorted(self._jobs.values(), key=lambda job: -job.order)

    def find(self, name: str) -> Job | None:
        """Return the job with this id, if any."""
        return self._jobs.get(name)

    def find_waiting(self) -> Job | None:
        """Return the oldest job that has not ended."""
        return next((job for job in self.list_all()[::-1] if not job.ended), None)

    def remove_model(self, job: Job) -> None:
        """Delete the model of a job; the job itself is kept."""
        shutil.rmtree(job.training, ignore_errors=True)

    def find_models(self) -> dict[str, Job]:
        """Return the jobs whose model exists, by model name."""
        return {
            job.fields["fine_tuned_model"]: job
            for job in self._jobs.values()
            if job.fields["fine_tuned_model"] and job.training.exists()
        }


class NoRoom(AssayError):
    """The quota of the folder is used up."""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """An uploaded file, with the fields that clients receive."""

    id: str
    filename: str
    bytes: int
    purpose: str
    created_at: int

    def as_response(self) -> dict[str, Any]:
        """Return the file object of the protocol."""
        return {**asdict(self), "object": "file", "status": "processed", "status_details": None}


class UploadStore:
    """The uploaded files of a service.

    Args:
        folder: Folder of the files.
        home: Folder to which the quota applies; it contains the files.
        quota: Maximum size of `home` in bytes.
    """

    def __init__(self, folder: Path, *, home: Path, quota: int) -> None:
        self._folder, self._home, self._quota = folder, home, quota
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {file.id: file for file in self._read_files()}

    def _read_files(self) -> Iterator[UploadedFile]:
        for path in sorted(self._folder.glob("file-*.json")):
            # Skip files that are incomplete because the process was killed.
            with suppress(OSError, ValueError, TypeError):
                file = UploadedFile(**json.loads(path.read_bytes()))
                if self._get_content_path(file.id).stat().st_size == file.bytes:
                    yield file

    @property
    def free_bytes(self) -> int:
        """Number of bytes that may still be added."""
        used = sum(path.stat().st_size for path in self._home.rglob("*") if path.is_file())
        return max(0, min(self._quota - used, shutil.disk_usage(self._home).free))

    @contextmanager
    def add(self, filename: str, purpose: str) -> Iterator["_NewFile"]:
        """Write a file; it is added when the block ends without an error."""
        name = f"file-{secrets.token_hex(12)}"
        path = self._get_content_path(name)
        with atomic_file(path) as stream:
            new_file = _NewFile(stream, self.free_bytes)
            yield new_file
        file = UploadedFile(name, filename, new_file.size, purpose, int(time.time()))
        atomic_write(path.with_suffix(".json"), json.dumps(asdict(file)).encode())
        self._files[name] = new_file.file = file

    def list_all(self) -> list[UploadedFile]:
        """Return all files, the newest first."""
        return sorted(self._files.values(), key=lambda file: -file.created_at)

    def find(self, name: str) -> UploadedFile | None:
        """Return the file with this id, if any."""
        return self._files.get(name)

    def get_path(self, file: UploadedFile) -> Path:
        """Return the path of the content."""
        return self._get_content_path(file.id)

    def remove(self, file: UploadedFile) -> None:
        """Delete a file."""
        del self._files[file.id]
        for suffix in (".json", ".jsonl"):
            self._get_content_path(file.id).with_suffix(suffix).unlink(missing_ok=True)

    def _get_content_path(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"


class _NewFile:
    """A file that is being written."""

    file: UploadedFile

    def __init__(self, stream: IO[bytes], free_bytes: int) -> None:
        self._stream, self._free_bytes = stream, free_bytes
        self.size = 0

    def write(self, part: bytes) -> None:
        """Append a part; raise NoRoom if the file becomes too large."""
        self.size += len(part)
        if self.size > self._free_bytes:
            raise NoRoom("not enough space for this file; delete files or models first")
        self._stream.write(part)
