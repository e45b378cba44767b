"""Warnings about signs of masked gradients: attacks then overestimate robust accuracy.

Signs after Athalye, Carlini and Wagner (2018), "Obfuscated Gradients Give a False Sense of Security", Section 3.1, and
Carlini et al. (2019), "On Evaluating Adversarial Robustness", Section 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# The diagnostic of random noise. It compares noise with the attacks by gradient of the same evaluation.
NOISE_AFTER_GRADIENTS = "broken without gradients"

# By diagnostic (attacks.evaluating): the largest share of images without a warning, and the text of the warning.
SIGNS = {
    "no gradient": (0.01, "have no gradient at the image"),
    "loss not raised": (0.05, "end with no higher loss than they began with"),
    "broken from a random start alone": (0.05, "withstand every start from the image and fall to a random start"),
    NOISE_AFTER_GRADIENTS: (0.01, "withstand attacks by gradient and fall to one without"),
}
# Fewer images than this raise no warning, unless there are no more.
FEWEST = 3
# The names of attacks that use no gradients.
WITHOUT_GRADIENTS = re.compile(r"noise-\d+|autoattack-square-\d+")
# The columns of diagnostics that every evaluation has. Further ones tell apart what has one row's name.
COLUMNS = ("row", "seed", "label_shift", "eps", "attack", "diagnostic", "count", "total")


def drop_noise_before_gradients(diagnostics: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The diagnostics of one evaluation by attacks of these names, without those of noise before the first gradient.

    Noise that comes first breaks images that no attack by gradient has tried.
    """
    if not len(diagnostics):
        return diagnostics
    before = [*takewhile(WITHOUT_GRADIENTS.fullmatch, names)]
    early = diagnostics["attack"].isin(before)
    return diagnostics[~early | (diagnostics["diagnostic"] != NOISE_AFTER_GRADIENTS)]


def find_warnings(diagnostics: pd.DataFrame) -> list[str]:
    """One line per row and diagnostic above its limit, at the radius with the largest share, pooled over seeds.

    `diagnostics` has the columns row, seed, eps, attack, diagnostic, count, total. Where it has further ones, such as
    the architecture, a line is for one row and one value of each.
    """
    if not len(diagnostics):
        return []
    import pandas as pd

    names = diagnostics["row"].astype(str)
    for column in diagnostics.columns:
        if column not in COLUMNS:
            names = names + diagnostics[column].map(lambda value: "" if pd.isna(value) else f", {value}")
    diagnostics = diagnostics.assign(row=names)
    keys = ["row", "diagnostic", "attack", "eps"]
    pooled = diagnostics.groupby(keys, sort=False, as_index=False)[["count", "total"]].sum()
    limits = pooled["diagnostic"].map({name: share for name, (share, _) in SIGNS.items()})
    fewest = pooled["total"].clip(upper=FEWEST)
    seen = pooled[(pooled["count"] > limits * pooled["total"]) & (pooled["count"] >= fewest)]
    worst = seen.loc[(seen["count"] / seen["total"]).groupby([seen["row"], seen["diagnostic"]], sort=False).idxmax()]
    return [
        f"{line['row']}: gradients may be masked, and the true robust accuracy lower: {line['count']} of "
        f"{line['total']} images {SIGNS[line['diagnostic']][1]} ({line['attack']}, eps {line['eps']:g})"
        for line in worst.to_dict("records")
    ]
