"""B1: accuracies per epoch on D_det, along the two pathways.

two-pathways-2021, Section 4 and Figure 1. In this paper's sense the non-robust accuracy is the accuracy on D and the
robust accuracy that on D_shift = {(x, t(y))}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.recipes.parameters import Probe, Strict
from robustfeatures.recipes.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.claims import Claim

SECTION = "two-pathways-2021, Section 4.2"
PROBES = (
    Probe(name="train", input="data", split="train"),
    Probe(name="validation", input="data", split="validation"),
    Probe(name="non-robust", input="original", split="test"),
    Probe(name="robust", input="original", split="test", label_shift=1),
)


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The derived set, which needs a validation split, and the named trainings that take the two pathways."""

    derived: str = "D_det"
    pathway_1: str
    pathway_2: str


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One probed model per pathway and seed.

    Raises:
        UserError: the derived set has no validation split.
    """
    derived = pieces.study.derived.get(settings.derived)
    if derived is not None and "validation" not in derived.splits:
        raise UserError(f"derived.{settings.derived}.splits: 'validation' is missing")
    return [
        Need(row, seed, pieces.downstream_model(settings.derived, seed, training=training, probes=PROBES))
        for seed in pieces.study.seeds
        for row, training in (("pathway 1", settings.pathway_1), ("pathway 2", settings.pathway_2))
    ]


def _last(results: Results) -> pd.DataFrame:
    rows = results.histories
    return rows[rows["epoch"] == rows.groupby("row")["epoch"].transform("max")].assign(eps=0.0)


def table(results: Results) -> pd.DataFrame:
    """One line per pathway and probe, after the last epoch."""
    from robustfeatures.experiments.summaries import over_seeds, with_published

    summary = over_seeds(_last(results), ["row", "probe", "eps"])
    return with_published(summary, results, ["row", "probe", "eps"])


def figure(results: Results) -> Figure:
    """Curves over the epochs, one panel per pathway."""
    from robustfeatures.experiments.plots import curves

    return curves(
        results.histories,
        panel="row",
        line="probe",
        x="epoch",
        xlabel="epoch",
        published=results.comparable_rows,
    )


def claims(results: Results) -> list[Claim]:
    """What Section 4.2 says of these curves."""
    from robustfeatures.experiments.claims import Claim
    from robustfeatures.experiments.summaries import by_seed

    last = _last(results)
    epochs = results.histories.groupby("row")["epoch"].transform("max")
    quarter = results.histories[results.histories["epoch"] <= epochs / 4]
    early = quarter.groupby(["row", "probe", "seed"])["accuracy"].mean().reset_index()

    def gap(rows: pd.DataFrame, row: str) -> pd.Series:
        return by_seed(rows, row=row, probe="robust") - by_seed(rows, row=row, probe="non-robust")

    change = gap(early, "pathway 1") - gap(last, "pathway 1")
    compared = [
        ("Pathway 1 starts by learning robust features", "first quarter", gap(early, "pathway 1")),
        ("Pathway 2 starts by learning robust features", "first quarter", gap(early, "pathway 2")),
        ("Pathway 1 turns from robust to non-robust features", "first quarter minus last epoch", change),
        ("Pathway 2 ends with more robust than non-robust features", "last epoch", gap(last, "pathway 2")),
    ]
    validation = {row: by_seed(last, row=row, probe="validation") for row in ("pathway 1", "pathway 2")}
    return [
        *(
            Claim(sentence, SECTION, f"robust minus non-robust, {when}", list(gaps))
            for sentence, when, gaps in compared
        ),
        Claim(
            "Pathway 1 ends with more non-robust than robust features",
            SECTION,
            "non-robust minus robust, last epoch",
            list(-gap(last, "pathway 1")),
        ),
        Claim(
            "Nearly all of pathway 2's performance comes from robust features (taken as nine tenths)",
            SECTION,
            "robust minus nine times non-robust, last epoch",
            list(gap(last, "pathway 2") - 8 * by_seed(last, row="pathway 2", probe="non-robust")),
        ),
        Claim(
            "Validation accuracy on D_det ends higher on pathway 1 than on pathway 2",
            SECTION,
            "validation: pathway 1 minus pathway 2, last epoch",
            list(validation["pathway 1"] - validation["pathway 2"]),
        ),
    ]


EXPERIMENT = Experiment(
    id="B1",
    title="The two pathways",
    paper="two-pathways-2021",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Accuracy per epoch of training on D_det: on its train and validation splits, on D (non-robust) and on D "
        "relabelled by t(y) = (y + 1) mod C (robust). Lines are means over seeds, bands standard deviations."
    ),
)
