"""A6: accuracy on D during training on D_rand and D_det, with a standard and with a robust source.

not-bugs-2019, Appendix D.4 and D.5, Table 9 and Figure 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, select_by_seed, summarise_seeds
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.training.settings import Probe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


DERIVED_SETS = ("D_rand", "D_rand-robust", "D_det", "D_det-robust")
PROBES = (
    Probe(name="train", input="data", split="train"),
    Probe(name="test", input="original", split="test"),
)
SHOWN = {"train": "the set itself", "test": "the test split of D"}
SECTION = "not-bugs-2019, Appendix D.4 and Figure 10"
# Fixed parts of the training. The highest accuracy minus the last one would be positive without any decline.
SECOND_QUARTER, LAST_QUARTER, LAST = "second quarter", "last quarter", "last"


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
    """Accuracy on D: the means over the second and over the last quarter of the epochs, and the last epoch's."""
    import pandas as pd

    def average(curve: pd.Series, end: float) -> float:
        stop = max(1, round(end * len(curve)))
        return float(curve.iloc[max(0, stop - max(1, round(len(curve) / 4))) : stop].mean())

    rows = results.histories[results.histories["probe"] == "test"].sort_values("epoch", kind="stable")
    curves = rows.groupby(["row", "seed"], sort=False)["accuracy"]
    found = {
        SECOND_QUARTER: curves.agg(average, end=0.5),
        LAST_QUARTER: curves.agg(average, end=1.0),
        LAST: curves.last(),
    }
    parts: pd.DataFrame = pd.concat(found, names=["epochs"]).reset_index()
    return parts.assign(eps=0.0)


def table(results: Results) -> pd.DataFrame:
    """One line per derived set and part of its curve."""
    columns = ["row", "epochs", "eps"]
    return add_published(summarise_seeds(_parts(results), columns), results, columns)


def figure(results: Results) -> Figure:
    """Curves over the epochs, one panel per derived set."""
    from robustfeatures.experiments.shared.plots import curves
    from robustfeatures.experiments.shared.sources import name_source

    printed = results.comparable_rows
    if printed is not None:
        printed = printed.assign(probe="test")
    return curves(
        results.histories,
        panel="row",
        panel_label=name_source,
        line="probe",
        line_label=lambda probe: f"on {SHOWN[probe]}",
        x="epoch",
        xlabel="epoch",
        published=printed,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix D.4 on these curves."""
    parts = _parts(results)
    return [
        Claim(
            "Accuracy on D declines as training on a set made with a robust model goes on",
            SECTION,
            f"{name}-robust, accuracy on D: mean over the second quarter of the epochs minus mean over the last "
            "quarter",
            select_by_seed(parts, row=f"{name}-robust", epochs=SECOND_QUARTER)
            - select_by_seed(parts, row=f"{name}-robust", epochs=LAST_QUARTER),
            setting=name,
        )
        for name in ("D_rand", "D_det")
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
    names={"row": "trained on"},
    caption=(
        "Accuracy per epoch of training on D_rand and D_det, on the set itself and on the test split of D. The "
        "source is the network that the set was made with, standard or robust (adversarially trained). Lines are "
        "means over seeds, bands standard deviations."
    ),
)
