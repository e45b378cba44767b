"""The interval of a claim on one network: a paired bootstrap over test images."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.intervals import CONFIDENCE, Interval, unseen_share
from robustfeatures.experiments.shared.units import percent

if TYPE_CHECKING:
    import pandas as pd

    from robustfeatures.experiments.experiment import Results

    Claims = Callable[[Results], Sequence[Claim]]

RESAMPLES = 1000
# Resamples that are judged at once; their indices are int64 (BATCH, images).
BATCH = 250
# Of these so many are judged one by one too.
CHECKED = 25


@dataclass(frozen=True)
class ImageOutcomes:
    """Which images of a split some rows of `evaluations` and `attacks` count as correct.

    images: names the split of the data set; evaluations of the same images are resampled together.
    path: the file, bool (rows, N) packed along N by `numpy.packbits`.
    rows: the indices of these rows in `evaluations` and in `attacks`, in the order of the file.
    total: N, the number of images.
    """

    images: str
    path: Path
    rows: range
    total: int

    def read(self) -> NDArray[np.bool_]:
        """The outcomes, bool (rows, N)."""
        return np.unpackbits(np.load(self.path), axis=1, count=self.total).astype(bool)


class _Watched:
    """Results that remember which of their fields were read."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.fields: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.fields.add(name)
        return getattr(self.results, name)


def can_resample(claims: Claims, results: Results) -> bool:
    """Whether all that the claims read are counts of images, of one seed, which are known image by image.

    Histories and measurements keep no outcomes per image, so an interval over images would leave out their noise.
    """
    if not results.images or results.evaluations["seed"].nunique() > 1:
        return False
    watched = _Watched(results)
    claims(cast("Results", watched))
    return not {"histories", "measurements"} & watched.fields and min(each.total for each in results.images) > 1


def intervals_over_images(claims: Claims, results: Results) -> list[Interval]:
    """The ends of the 95 % interval of each claim's one value, by the percentile bootstrap (Efron, 1979) over images.

    Every resample draws as many images as a split has, with replacement, the same for all evaluations of the split, and
    judges the claims again on the accuracies of the images drawn. Different splits and data sets are drawn by
    themselves. The ends are NaN if a claim has not one finite value on every resample.

    If every resample gives the same value, the interval has no width. Then both ends move outwards by `unseen_share` of
    the smallest split.
    """
    from scipy import stats

    splits: dict[str, list[ImageOutcomes]] = {}
    for each in results.images:
        splits.setdefault(each.images, []).append(each)
    # float32 counts up to 2^24 images exactly.
    outcomes = {
        images: (
            np.concatenate([np.asarray(each.rows) for each in parts]),
            np.concatenate([each.read() for each in parts]).astype(np.float32),
        )
        for images, parts in splits.items()
    }
    count = max(each.rows.stop for each in results.images)

    def statistic(*drawn: NDArray[np.int64], axis: int) -> NDArray[np.float64]:
        """The claims' values, (claims, resamples), on drawn images, one array (resamples, N) per split."""
        correct = np.zeros((len(drawn[0]), count))
        for (rows, robust), indices in zip(outcomes.values(), drawn, strict=True):
            times = np.stack([np.bincount(each, minlength=robust.shape[1]) for each in indices]).astype(np.float32)
            correct[:, rows] = times @ robust.T
        return _judge(claims, results, correct)

    with warnings.catch_warnings():
        # scipy warns where an end is NaN.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap(
            tuple(np.arange(robust.shape[1]) for _, robust in outcomes.values()),
            statistic,
            n_resamples=RESAMPLES,
            batch=BATCH,
            vectorized=True,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
    ends = np.column_stack([found.low, found.high])
    unseen = unseen_share(min(each.total for each in results.images))
    hidden = ends[:, 0] == ends[:, 1]
    ends[hidden] += [-unseen, unseen]
    return [(float(low), float(high)) for low, high in ends]


def _judge(claims: Claims, results: Results, correct: NDArray[np.float64]) -> NDArray[np.float64]:
    """The claims' values, (claims, resamples), on counts of correct images (resamples, rows).

    Most claims judge each seed by itself, so one call with a seed for each resample gives all values. Where one does
    not, all are judged once per resample. Claims that are not `of_images` get NaN.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        together = [
            claim.values if claim.of_images else np.full(len(correct), np.nan)
            for claim in claims(_with_counts(results, correct))
        ]
    checked = np.array([_values(claims(_with_counts(results, each[None]))) for each in correct[:CHECKED]]).T
    if all(len(values) == len(correct) for values in together):
        found = np.array([_finite(values) for values in together])
        if np.allclose(found[:, :CHECKED], checked, equal_nan=True):
            return found
    rest = [_values(claims(_with_counts(results, each[None]))) for each in correct[CHECKED:]]
    return np.concatenate([checked, np.array(rest).reshape(-1, len(checked)).T], axis=1)


def _with_counts(results: Results, correct: NDArray[np.float64]) -> Results:
    """The results with a seed for each line of `correct`, the counts of correct images by the index of the rows."""
    together, single = results.evaluations, results.attacks
    return replace(results, evaluations=_count(together, correct), attacks=_count(single, correct))


def _count(rows: pd.DataFrame, correct: NDArray[np.float64]) -> pd.DataFrame:
    import pandas as pd

    if not len(rows):
        return rows
    counts = correct[:, rows.index.to_numpy()].ravel()
    seeds = np.repeat(np.arange(len(correct)), len(rows))
    repeated = pd.concat([rows] * len(correct), ignore_index=True)
    return repeated.assign(seed=seeds, correct=counts, accuracy=percent(counts / repeated["total"].to_numpy()))


def _values(claims: Sequence[Claim]) -> list[float]:
    """The one value of each claim of images; NaN where there is not one, or where it is infinite."""
    return _finite(
        [next(iter(claim.values)) if claim.of_images and len(claim.values) == 1 else np.nan for claim in claims]
    )


def _finite(values: Iterable[float]) -> list[float]:
    return [float(value) if np.isfinite(value) else np.nan for value in values]
