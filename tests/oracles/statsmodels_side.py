"""What statsmodels makes of numbers: JSON in, JSON out, in an environment that has it.

In: a list of [question, arguments]; out: a list of answers. The questions are the functions
below.
"""

import json
import sys
from typing import Any

import numpy as np
import statsmodels.api as sm
from statsmodels.duration.survfunc import CumIncidenceRight
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower, TTestPower
from statsmodels.stats.weightstats import ttost_ind, ttost_paired


def _t_test(paired: bool) -> Any:
    return TTestPower() if paired else TTestIndPower()


def power(paired: bool, effect: float, trials: int, alpha: float) -> float:
    return float(_t_test(paired).power(effect, trials, alpha))


def trials_needed(paired: bool, effect: float, alpha: float, power: float) -> float:
    return float(_t_test(paired).solve_power(effect, None, alpha, power))


def incidence(times: list[float], ends: list[int]) -> list[list[float]]:
    """Times and the cumulative incidence of end 1; 0 is censored."""
    found = CumIncidenceRight(np.array(times), np.array(ends))
    return [list(map(float, one)) for one in (found.times, found.cinc[0])]


def equivalence(a: list[float], b: list[float], margin: float, paired: bool) -> list[float]:
    """The p-value of both sides together, of the lower and of the upper."""
    samples = (np.array(b), np.array(a), -margin, margin)
    found = ttost_paired(*samples) if paired else ttost_ind(*samples, usevar="unequal")
    return [float(found[0]), float(found[1][1]), float(found[2][1])]


def adjusted(p_values: list[float], method: str) -> list[float]:
    return [float(p) for p in multipletests(p_values, method=method)[1]]


def clustered(values: list[float], design: list[list[float]], groups: list[int]) -> list[float]:
    """The interval of the last coefficient."""
    fit = sm.OLS(values, np.array(design)).fit(
        cov_type="cluster", use_t=True, cov_kwds={"groups": np.array(groups)}
    )
    return [float(end) for end in fit.conf_int()[-1]]


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps([globals()[question](*arguments) for question, arguments in asked]))
