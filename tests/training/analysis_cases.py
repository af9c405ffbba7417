"""Cases that compare `assay analysis` with the numbers of its first implementation.

`analysis_numbers.json` was written by that implementation, at commit aa664e8, with
`python -m tests.training.analysis_cases FILE`.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from assay.report.files import to_json_value
from assay.report.training_analysis import analysis_document
from assay.store.training_runs import TrainingRun, make_curve
from assay.training.analysis import analyse
from assay.training.analysis_settings import make_settings
from assay.training.design import Design
from assay.training.gather import LoadedRun
from tests.training.made import METRIC, STEPS, rise

NUMBERS = Path(__file__).parent / "analysis_numbers.json"
_KEPT = ("difference", "relative_change", "tests", "effects", "pairing", "normality", "power")


class Case(NamedTuple):
    """Final levels of the curves of two arms, and the settings of the comparison."""

    name: str
    control: Sequence[float]
    candidate: Sequence[float]
    paired: bool
    given: Mapping[str, Any]
    summary: Mapping[str, Any]

    def numbers(self) -> dict[str, Any]:
        """Return the numbers of the analysis, without its sentences."""
        design = make_design(self.control, self.candidate, self.paired)
        document = analysis_document(analyse(design, make_settings(self.given, self.summary)))
        values = document.values()
        found = {name: to_json_value(values[name]) for name in _KEPT}
        for part in (*found["tests"], found["pairing"] or {}):
            part.pop("note", None)
            part.pop("sentence", None)
        means = {arm: values[arm]["mean"] for arm in ("control", "candidate")}
        return {"verdict": values["verdict"]["word"], **means, **found}


def make_design(control: Sequence[float], candidate: Sequence[float], paired: bool) -> Design:
    """Return a design of curves that rise to these levels."""
    arms = []
    for arm, levels in (("c", control), ("t", candidate)):
        runs = []
        for seed, level in enumerate(levels):
            curve = make_curve(STEPS, rise(level))
            run = TrainingRun(id=f"{arm}{seed}", seed=seed, curves={METRIC: curve})
            runs.append(LoadedRun(run.id, run, curve))
        arms.append(tuple(runs))
    return Design(paired, arms[0], arms[1], tuple(range(len(control))) if paired else ())


def cases() -> Iterator[Case]:
    """Yield random curves, then odd ones: ties, equal values, shares, times cut off."""
    rng = np.random.default_rng(29)
    choices: list[dict[str, Any]] = [
        {"ttest": True, "power": True},
        {"ttest": True, "side": "greater", "alpha": 0.1},
        {"ttest": True, "side": "less", "power": True, "target_effect_size": 0.05},
        {"method": "t", "alpha": 0.01, "target_power": 0.9, "power": True},
        {"method": "studentised", "seed": 3},
        {"method": "bca", "seed": 4, "side": "greater"},
        {"method": "percentile", "seed": 5, "n_resamples": 500},
    ]
    kinds: list[dict[str, Any]] = [
        {},
        {"type": "final"},
        {"type": "slope"},
        {"type": "last_n", "n": 3},
    ]
    for place, given in enumerate(choices):
        for n, m in ((2, 2), (3, 3), (5, 4), (8, 8), (16, 13), (24, 24)):
            for paired in (True, False):
                drawn = 1 + 0.2 * rng.standard_normal(n)
                others = (drawn[:m] + 0.1 + 0.1 * rng.standard_normal(m)).tolist()
                # The smaller arm limits the number of pairs: the other runs have no partner.
                levels = drawn[: m if paired else n].tolist()
                name = f"{place} {'paired' if paired else 'unpaired'} {len(levels)} and {m}"
                summary = kinds[(place + n) % len(kinds)]
                yield Case(name, levels, others, paired, given, summary)
    both: dict[str, Any] = {"ttest": True, "power": True}
    odd: dict[str, tuple[list[float], list[float], dict[str, Any], dict[str, Any]]] = {
        "ties": ([1.0, 1.5, 1.5, 2.0, 2.0], [1.5, 1.5, 2.0, 2.0, 2.5], both, {}),
        "around zero": ([-1.0, 1.0, 0.5, -0.4], [2.0, 3.0, 2.5, 2.2], both, {}),
        "skewed": ([1.0, 1.1, 1.2, 0.9, 1.0, 9.0], [1.5, 1.4, 1.2, 1.8, 1.6, 30.0], both, {}),
        "negative": ([-1.0, -1.5, -1.2, -0.8], [-1.3, -1.4, -1.9, -1.1], both, {}),
        "all equal": ([1.0] * 4, [1.0] * 4, both, {"type": "final"}),
        "equal arms": ([1.0] * 7, [2.0] * 7, both, {"type": "final"}),
        "equal differences": ([1.0, 2.0, 3.0, 5.0], [1.5, 2.5, 3.5, 5.5], both, {}),
        "one arm equal": ([1.0] * 5, [1.2, 1.1, 1.4, 1.0, 1.3], both, {}),
    }
    for name, (control, candidate, given, summary) in odd.items():
        for paired in (True, False):
            yield Case(
                f"{name}, {'paired' if paired else 'unpaired'}",
                control,
                candidate,
                paired,
                given,
                summary,
            )
    scale = rise(1.0)[-1]
    zeros, ones = [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    for side in ("two-sided", "greater"):
        for paired in (True, False):
            yield Case(
                f"shares, {side}, {'paired' if paired else 'unpaired'}",
                [level / scale for level in zeros],
                [level / scale for level in ones],
                paired,
                {**both, "side": side},
                {"type": "final"},
            )
    late: dict[str, Any] = {"type": "time_to_threshold", "threshold": 1.0}
    for paired in (True, False):
        soon = [0.9, 1.3, 1.6, 1.2, 2.0, 1.1]
        more = [1.4, 1.7, 1.2, 1.9, 2.4, 0.8]
        yield Case(f"cut off, paired {paired}", soon, more, paired, {}, late)


if __name__ == "__main__":
    lines = [f"{json.dumps(case.name)}: {json.dumps(case.numbers())}" for case in cases()]
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
