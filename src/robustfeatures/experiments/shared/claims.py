"""Claims: sentences of a paper as predicates over measured rows, with their uncertainty.

Every experiment imports this module, so numpy and scipy are imported only where a claim is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from robustfeatures.experiments.shared.intervals import Interval

# Values in points that differ by less are the same.
ROUNDING = 1e-9
# What the interval of a claim is over.
SEEDS, ONE_NETWORK, ARCHITECTURES = "seeds", "one network", "architectures"


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, which holds if `values` exceed `threshold`.

    There is one value per seed, in percentage points unless `quantity` says otherwise. A claim on several architectures
    has one value in all.

    Attributes:
        setting: names the case if a study repeats the sentence in several (a norm, a data set, an initialisation). The
            sentence is the same in all of them and counts once.
        control: whether the sentence is a check of ours, which no paper prints. Controls are counted apart.
        of_images: whether the values are shares of images, or differences of these, in points. A rank correlation over
            trainings is not: trainings differ by more than their test images, so one seed does not test it.
        images: the number of these images, where it is not that of the rows of the results.
        bounds: the least and the largest value that there can be (see `units`). The interval stays within.
        over_architectures: the interval of the value over architectures, for a claim that compares these. It is NaN
            where they are too few.
    """

    sentence: str
    source: str
    quantity: str
    values: Sequence[float] | pd.Series
    threshold: float = 0.0
    setting: str = ""
    control: bool = False
    of_images: bool = True
    images: int | None = None
    bounds: Interval | None = None
    over_architectures: Interval | None = None

    def judge(self, over_images: Interval | None = None, images: int | None = None) -> dict[str, object]:
        """The verdict as a row: value, 95 % interval and what it is over, lower end minus threshold as margin.

        The interval is over seeds (Student's t), or that `over_architectures`. A claim with one value has none over
        seeds; it is judged by `over_images`, the interval over test images (see `resampling`), if that is given and
        the claim is one `of_images`. `images` is the number of images of the smallest split or probe.

        Where all seeds have the same value, the interval over them has no width, although other images could give other
        values. If the number of images is known, both ends move outwards by `unseen_share`.

        The verdict is "held" if the whole interval lies above the threshold, "contradicted" if the whole interval lies
        below, "undecided" if it does neither, "not tested" without an interval.
        """
        import numpy as np

        from robustfeatures.experiments.shared.intervals import confidence_interval, unseen_share

        values = np.asarray(self.values, dtype=float)
        (low, high), over = confidence_interval(values), SEEDS
        total = self.images or (images if self.of_images else None)
        if total is not None and len(values) > 1 and np.ptp(values) < ROUNDING:
            low, high = low - unseen_share(total), high + unseen_share(total)
        if self.over_architectures is not None:
            (low, high), over = self.over_architectures, ARCHITECTURES
        elif len(values) == 1 and over_images is not None and self.of_images:
            (low, high), over = over_images, ONE_NETWORK
        if self.bounds is not None:
            low, high = np.clip([low, high], *self.bounds)
        known = bool(np.isfinite([low, high]).all())
        return {
            "claim": self.sentence,
            "setting": self.setting,
            "control": self.control,
            "source": self.source,
            "quantity": self.quantity,
            "value": _round(_mean(values)) if len(values) else float("nan"),
            "threshold": self.threshold,
            "seeds": len(values),
            "low": _round(low) if known else None,
            "high": _round(high) if known else None,
            "interval": over if known else "",
            "margin": _round(low - self.threshold) if known else None,
            "verdict": _verdict(low, high, self.threshold) if known else "not tested",
        }


def _verdict(low: float, high: float, threshold: float) -> str:
    if low > threshold:
        return "held"
    return "contradicted" if high < threshold else "undecided"


def _mean(values: NDArray[np.float64]) -> float:
    """The mean; 0 where only the rounding of a sum of larger values is left."""
    mean = float(values.mean())
    return 0.0 if abs(mean) < 1e-12 * abs(values).max() else mean


def _round(value: float) -> float:
    """Round to two decimals, or to four significant digits if |value| < 1; zero has no sign."""
    return round(value, 2) if abs(value) >= 1 else float(f"{value:.4g}") + 0.0
