"""Units: measured rows hold counts and shares from 0 to 1; tables, figures and claims show percent."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

# The range of a value: shares in percent, minus such shares, correlations.
SHARES, MINUS_SHARES, CORRELATIONS = (0.0, 100.0), (-100.0, 0.0), (-1.0, 1.0)

T = TypeVar("T", float, "NDArray[np.float64]", "pd.Series", "pd.DataFrame")


def percent(shares: T) -> T:
    """Convert shares, from 0 to 1, to percent; also cosines and other numbers of order 1 to hundredths."""
    return 100.0 * shares
