"""What intervals of a measuring loop and those of a diagnosis share: how many batch means, and their correlation."""

from __future__ import annotations

import math

import numpy as np

from perf_diagnostics.records import Float64

#: Batches a series is cut into. Their Student interval covers the mean of AR(1) step times of rho 0.6 and 0.9 in more
#: than 90 % of the cases once there are hundreds of steps, where treating steps as independent covers 66 % and 33 %.
BATCHES = 10


def widening(residuals: Float64) -> float:
    """How much wider the correlation of neighbouring batches makes an interval; 1 with fewer than ten batches.

    From Skart (Tafazzoli, Steiger & Wilson, IIE Transactions 43, 2011), for a lag-1 correlation.
    """
    energy = float(np.dot(residuals, residuals))
    if residuals.size < BATCHES or energy == 0:
        return 1.0
    # The estimate of a lag-1 correlation is biased by about -1/n; above 0.8 it says that the series is too short.
    correlation = float(np.dot(residuals[1:], residuals[:-1])) / energy + 1 / residuals.size
    correlation = min(max(correlation, 0.0), 0.8)
    return math.sqrt((1 + correlation) / (1 - correlation))
