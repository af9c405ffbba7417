"""Trials have the same columns, whether their numbers are rows of a table or dictionaries."""

import math

import numpy as np
import pytest

from assay.judge.subjects import Earned, Subject, TrialOutcome, Trials
from assay.types import TrialState

NAN, INF = math.nan, math.inf
TABLE = np.array([[NAN, 1.0, NAN], [2.0, NAN, NAN], [3.0, 4.0, INF], [5.0, 6.0, 7.0]])
PLACES = {"a": 0, "b": 1, "c": 2}
STATES = [TrialState.RESULT, TrialState.RESULT, TrialState.RESULT, TrialState.FAILURE]


def trials(*, table: bool) -> Trials:
    rows = [Earned(PLACES, row) for row in TABLE]
    subject = Subject(
        id="s",
        name="s",
        trials=tuple(
            TrialOutcome(
                trial_id=str(number),
                pair=None if number == 1 else f"t {number}",
                task="t" if number else None,
                seed=number or None,
                state=state,
                values=row if table else dict(row),
            )
            for number, (state, row) in enumerate(zip(STATES, rows, strict=True))
        ),
    )
    return Trials.of(subject.trials)


@pytest.mark.parametrize("table", [True, False], ids=["table", "dictionaries"])
def test_columns_hold_what_completed_trials_have(table: bool) -> None:
    found = trials(table=table)
    assert found.metrics == ["b", "a"], "in the order they first come, without c"
    for name, column in (("a", [NAN, 2, 3, NAN]), ("b", [1, NAN, 4, NAN]), ("d", [NAN] * 4)):
        np.testing.assert_array_equal(found.column(name), column)
    np.testing.assert_array_equal(found.column("c"), [NAN] * 4)
    assert found.states[TrialState.RESULT] == 3
    assert found.tasks == [None, "t", "t", "t"]
    assert found.ids == {"0", "1", "2", "3"}
    assert found.worlds(several=False) == ["t 0", "1", "2", "3"]
    assert found.worlds(several=True) == ["t 0", "t 1", "t 2", "t 3"]


def test_a_column_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        trials(table=True).column("a")[0] = 1
