"""Options of commands on training runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What is stored of training runs in place of what their files say."""

    series: str | None = None
    """The series of the runs; overrides what the files say."""
    subject: str | None = None
    """What was trained, such as an architecture; overrides the files."""
    task: str | None = None
    """What it was trained on; overrides the files."""
    status: str | None = None
    """The status of the runs; overrides the files. [choices: finished, running, crashed]"""
    prefix: str = ""
    """Text put before the id of every run, for folders whose files have the same names."""
