"""A6: accuracy on D during training on D_rand and D_det, with a standard and with a robust source.

not-bugs-2019, Appendix D.4 and D.5, Table 9 and Figure 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.training.settings import Probe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

DERIVED_SETS = ("D_rand", "D_rand-robust", "D_det", "D_det-robust")
PROBES = (
    Probe(name="train", input="data", split="train"),
    Probe(name="test", input="original", split="test"),
)
SECTION = "not-bugs-2019, Appendix D.4 and Figure 10"
FIRST, SECOND, LAST = "first half", "second half", "last"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """A6 has no settings of its own."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One probed model per derived set and seed."""
    return [
        Need(name, seed, pieces.downstream_model(name, seed, probes=PROBES))
        for seed in pieces.study.seeds
        for name in DERIVED_SETS
    ]


def _parts(results: Results) -> pd.DataFrame:
    """Mean accuracy on D over the first half of the epochs, over the second half, and after the last epoch."""
    import pandas as pd

    rows = results.histories[results.histories["probe"] == "test"]
    last = rows.groupby("row")["epoch"].transform("max")
    middle = (rows.groupby("row")["epoch"].transform("min") + last) / 2
    chosen = {FIRST: rows["epoch"] < middle, SECOND: rows["epoch"] > middle, LAST: rows["epoch"] == last}
    means = {
        epochs: rows[where].groupby(["row", "seed"], sort=False)["accuracy"].mean() for epochs, where in chosen.items()
    }
    parts: pd.DataFrame = pd.concat(means, names=["epochs"]).reset_index()
    return parts.assign(eps=0.0)


def table(results: Results) -> pd.DataFrame:
    """One line per derived set and part of the training."""
    from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds

    columns = ["row", "epochs", "eps"]
    return add_published(summarise_seeds(_parts(results), columns), results, columns)


def figure(results: Results) -> Figure:
    """Curves over the epochs, one panel per derived set."""
    from robustfeatures.experiments.shared.plots import curves

    printed = results.comparable_rows
    if printed is not None:
        printed = printed.assign(probe="test")
    return curves(results.histories, panel="row", line="probe", x="epoch", xlabel="epoch", published=printed)


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix D.4 on these curves."""
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.summaries import select_by_seed

    parts = _parts(results)
    return [
        Claim(
            f"Accuracy on D falls as training on {name} goes on",
            SECTION,
            f"{name}, accuracy on D: mean of the first half of the epochs minus mean of the second",
            list(select_by_seed(parts, row=name, epochs=FIRST) - select_by_seed(parts, row=name, epochs=SECOND)),
        )
        for name in ("D_rand-robust", "D_det-robust")
    ]


EXPERIMENT = Experiment(
    id="A6",
    title="Accuracy on D during training",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Accuracy per epoch of training on D_rand and D_det, made with a standard and with a robust ('-robust') model: "
        "on the set itself (train) and on the test split of D (test). Lines are means over seeds, bands standard "
        "deviations."
    ),
)
