"""A training run from what its file says of it, of whatever kind the file is."""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay._util.text import check_unicode, printable
from assay.curves.fields import mapping_of, text_of, whole_number
from assay.curves.points import Points
from assay.errors import UsageError
from assay.experiments.training import TrainingRun, TrainingStatus

__all__ = ["UNENDED", "described_run", "reading"]

UNENDED = "nothing says how it ended: it was killed, or is still running"
"""The note of a run whose file breaks off."""
_SEED = re.compile(r"seed[-_=]?(\d+)", re.IGNORECASE)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file becomes a sentence that names it."""
    name = repr(printable(str(path)))
    try:
        yield
    except UsageError as error:
        raise type(error)(f"{name}: {error}") from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text; save it as UTF-8") from error
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deeply; give a list of points") from error
    except (csv.Error, ValueError, OverflowError) as error:
        raise UsageError(f"{name} cannot be read: {error}") from error


def described_run(
    facts: Mapping[str, Any],
    points: Points,
    *,
    source: Path | str,
    names: Sequence[str],
    notes: Sequence[str] = (),
) -> TrainingRun:
    """The run that facts and points tell of.

    Args:
        facts: Fields of a run by their names, as they were read, and `commit`.
        points: What it logged.
        source: Where it was read from.
        names: What it is called. The first is its id if the facts have none; its seed is the
            fact `seed`, else that of its configuration, else the digits after `seed` in a name.
        notes: What its reader has to tell.

    Raises:
        UsageError: It finished and has no metric, or a fact makes no sense.
    """
    curves = points.curves()
    status = TrainingStatus.named(str(facts.get("status") or "finished"))
    if not curves and status is TrainingStatus.FINISHED:
        raise UsageError("it has no metric with a number in it; log numbers by their steps")
    configuration = mapping_of("configuration", facts.get("configuration"))
    provenance = dict(mapping_of("provenance", facts.get("provenance")))
    if facts.get("commit") is not None:
        provenance["commit"] = str(facts["commit"])
    seed = facts.get("seed")
    run = TrainingRun(
        id=text_of("id", facts.get("id")) or names[0].encode("utf-8", "replace").decode(),
        series=text_of("series", facts.get("series")),
        subject=text_of("subject", facts.get("subject")),
        task=text_of("task", facts.get("task")),
        seed=_seed(configuration, names) if seed is None else whole_number("seed", seed),
        status=status,
        configuration=configuration,
        provenance=provenance,
        created_at=facts.get("created_at"),
        finished_at=facts.get("finished_at"),
        source=str(source).encode("utf-8", "replace").decode(),
        curves=curves,
        notes=(*notes, *points.notes()),
    )
    _check_texts(run)
    return run


def _seed(configuration: Mapping[str, Any], names: Sequence[str]) -> int | None:
    configured = configuration.get("seed")
    if isinstance(configured, int) and not isinstance(configured, bool):
        return whole_number("seed", configured)
    named = next(filter(None, map(_SEED.search, names)), None)
    return whole_number("seed", named.group(1)) if named else None


def _check_texts(run: TrainingRun) -> None:
    for what in ("id", "series", "subject", "task"):
        check_unicode(what, getattr(run, what) or "")
    for what in ("configuration", "provenance"):
        check_unicode(what, json.dumps(getattr(run, what), ensure_ascii=False))
    for metric in run.curves:
        check_unicode("metric", metric)
