"""Who answers the models of a run: recorded with each experiment, and kept on resume.

Variables and the user's list of models decide it, and are no setting of the run. It stands in
the tags of an experiment, without secrets, and counts for no identity.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from assay.errors import StoreError, UsageError
from assay.experiments.versions import set_tag
from assay.traces.store import Store

from .kind import PreparedRun

__all__ = ["store_addresses", "with_addresses", "without_secrets"]

_TAG: Final = "address"
_THEN: Final = ", then "


def without_secrets(address: str) -> str:
    """An address without user, password, query and fragment."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def with_addresses(run: PreparedRun[Any], addresses: Mapping[str, str]) -> PreparedRun[Any]:
    """A run that records where the model of each arm is asked, by the arm's label.

    Raises:
        UsageError: It was asked elsewhere before, and nobody allowed that.
    """
    experiments, changes = [], []
    for experiment in run.record.experiments:
        now = addresses.get(experiment.model)
        before = experiment.tags.get(_TAG)
        if run.resumed is None and now is not None:
            experiment = replace(experiment, tags={**experiment.tags, _TAG: now})
        elif now and isinstance(before, str) and before.split(_THEN)[-1] != now:
            changes.append(f"{experiment.model}: {before} -> {now}")
            both = {**experiment.tags, _TAG: f"{before}{_THEN}{now}"}
            experiment = replace(experiment, tags=both)
        experiments.append(experiment)
    if changes and _TAG not in run.allow_different:
        raise UsageError(
            f"run {run.record.id!r} would be answered from another address: "
            f"{'; '.join(changes)}; put OPENAI_BASE_URL or models.toml back, start anew with "
            "--fresh, or add --allow-different address to have both in one experiment"
        )
    return replace(run, record=replace(run.record, experiments=tuple(experiments)))


def store_addresses(run: PreparedRun[Any]) -> None:
    """Note in the database where answers came from two addresses."""
    mixed = {
        experiment.id: experiment.tags[_TAG]
        for experiment in run.record.experiments
        if _THEN in str(experiment.tags.get(_TAG))
    }
    if mixed:
        # Where another holds it, the next resume does: the folder of the run knows, too.
        with suppress(StoreError), Store(run.config.database).writing() as connection:
            for experiment_id, address in mixed.items():
                set_tag(connection, experiment_id, _TAG, address)
