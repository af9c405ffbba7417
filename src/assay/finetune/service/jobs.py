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
_SLUG: Final = re.compile(r"[^a-z0-9-]+")


class Job:
    """A fine-tuning job."""

    def __init__(self, folder: Path, order: int, told: dict[str, Any]) -> None:
        self.folder = folder
        self.order = order
        """Creation time in nanoseconds; the protocol has only seconds."""
        self.told = told
        """The job object of the protocol."""

    @property
    def id(self) -> str:
        """Id of the job."""
        return str(self.told["id"])

    @property
    def status(self) -> str:
        """Status in the terms of the protocol."""
        return str(self.told["status"])

    @property
    def ended(self) -> bool:
        """Whether the status is final."""
        return self.status in ENDED

    @property
    def training(self) -> Path:
        """Folder for checkpoints and the model."""
        return self.folder / "training"

    def change(self, message: str | None = None, **fields: Any) -> None:
        """Set fields, and add an event with the message."""
        if fields.get("status") in ENDED:
            fields["finished_at"] = int(time.time())
        # Event first: a client that sees the final status must also find the last event.
        if message is not None:
            append_event(self.folder, message, level="error" if "error" in fields else "info")
        kept = {"order": self.order, "told": self.told | fields}
        atomic_write(self.folder / "job.json", json.dumps(kept).encode())
        self.told |= fields

    def events(self) -> list[dict[str, Any]]:
        """Return the events, the newest first."""
        return list(self._events())[::-1]

    def _events(self) -> Iterator[dict[str, Any]]:
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

    def checkpoints(self) -> list[dict[str, Any]]:
        """Return the checkpoints recorded in the events, the newest first."""
        found = []
        for event in self._events():
            data = event.get("data") or {}
            if data.get("checkpoint"):
                step = data["step"]
                kept = ("train_loss", "valid_loss", "valid_mean_token_accuracy")
                found.append(
                    {
                        "id": f"ftckpt-{self.id.removeprefix('ftjob-')}-{step}",
                        "object": "fine_tuning.job.checkpoint",
                        "created_at": event["created_at"],
                        "fine_tuning_job_id": self.id,
                        "fine_tuned_model_checkpoint": f"{self.model_name()}:ckpt-step-{step}",
                        "step_number": step,
                        "metrics": {"step": step}
                        | {name: data[name] for name in kept if name in data},
                    }
                )
        return found[::-1]

    def model_name(self) -> str:
        """Return the name for the new model."""
        suffix = _SLUG.sub("-", (self.told["user_provided_suffix"] or "").lower()).strip("-")
        return f"ft:{self.told['model']}:assay:{suffix}:{self.id.removeprefix('ftjob-')[:8]}"


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
        torn = b"" if file.read(1) in (b"", b"\n") else b"\n"
        file.write(torn + json.dumps(event).encode() + b"\n")


class JobBook:
    """All jobs, by id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._jobs: dict[str, Job] = {}
        for path in folder.glob("ftjob-*/job.json"):
            kept = json.loads(path.read_bytes())
            self._jobs[kept["told"]["id"]] = Job(path.parent, **kept)

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
        job.change("The job is created and waits for its turn")
        self._jobs[name] = job
        return job

    def all(self) -> list[Job]:
        """Return all jobs, the newest first."""
        return sorted(self._jobs.values(), key=lambda job: -job.order)

    def find(self, name: str) -> Job | None:
        """Return the job with this id, if any."""
        return self._jobs.get(name)

    def waiting(self) -> Job | None:
        """Return the oldest job that has not ended."""
        return next((job for job in self.all()[::-1] if not job.ended), None)

    def remove_model(self, job: Job) -> None:
        """Delete the model of a job; the job itself is kept."""
        shutil.rmtree(job.training, ignore_errors=True)

    def models(self) -> dict[str, Job]:
        """Return the jobs whose model exists, by model name."""
        return {
            job.told["fine_tuned_model"]: job
            for job in self._jobs.values()
            if job.told["fine_tuned_model"] and job.training.exists()
        }


class NoRoom(AssayError):
    """The quota of the folder is used up."""


@dataclass(frozen=True, slots=True)
class ShelvedFile:
    """An uploaded file, with the fields that clients receive."""

    id: str
    filename: str
    bytes: int
    purpose: str
    created_at: int

    def told(self) -> dict[str, Any]:
        """Return the file object of the protocol."""
        return {**asdict(self), "object": "file", "status": "processed", "status_details": None}


class FileShelf:
    """The uploaded files of a service.

    Args:
        folder: Folder of the files.
        home: Folder to which the quota applies; it contains the files.
        quota: Maximum size of `home` in bytes.
    """

    def __init__(self, folder: Path, *, home: Path, quota: int) -> None:
        self._folder, self._home, self._quota = folder, home, quota
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {file.id: file for file in self._read()}

    def _read(self) -> Iterator[ShelvedFile]:
        for path in sorted(self._folder.glob("file-*.json")):
            # Skip files that are incomplete because the process was killed.
            with suppress(OSError, ValueError, TypeError):
                file = ShelvedFile(**json.loads(path.read_bytes()))
                if self._content(file.id).stat().st_size == file.bytes:
                    yield file

    @property
    def room(self) -> int:
        """Number of bytes that may still be added."""
        used = sum(path.stat().st_size for path in self._home.rglob("*") if path.is_file())
        return max(0, min(self._quota - used, shutil.disk_usage(self._home).free))

    @contextmanager
    def adding(self, filename: str, purpose: str) -> Iterator["_Addition"]:
        """Write a file; it is added when the block ends without an error."""
        name = f"file-{secrets.token_hex(12)}"
        path = self._content(name)
        with atomic_file(path) as stream:
            addition = _Addition(stream, self.room)
            yield addition
        file = ShelvedFile(name, filename, addition.size, purpose, int(time.time()))
        atomic_write(path.with_suffix(".json"), json.dumps(asdict(file)).encode())
        self._files[name] = addition.file = file

    def all(self) -> list[ShelvedFile]:
        """Return all files, the newest first."""
        return sorted(self._files.values(), key=lambda file: -file.created_at)

    def find(self, name: str) -> ShelvedFile | None:
        """Return the file with this id, if any."""
        return self._files.get(name)

    def path(self, file: ShelvedFile) -> Path:
        """Return the path of the content."""
        return self._content(file.id)

    def remove(self, file: ShelvedFile) -> None:
        """Delete a file."""
        del self._files[file.id]
        for suffix in (".json", ".jsonl"):
            self._content(file.id).with_suffix(suffix).unlink(missing_ok=True)

    def _content(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"


class _Addition:
    """A file that is being written."""

    file: ShelvedFile

    def __init__(self, stream: IO[bytes], room: int) -> None:
        self._stream, self._room = stream, room
        self.size = 0

    def write(self, part: bytes) -> None:
        """Append a part; raise NoRoom if the file becomes too large."""
        self.size += len(part)
        if self.size > self._room:
            raise NoRoom("there is no room for this file; delete files or models first")
        self._stream.write(part)
