"""B1: accuracies and performance correlation per epoch on D_det, along the two pathways.

two-pathways-2021, Section 4 and Figures 1 and 5 to 8. In this paper's sense the non-robust accuracy is the accuracy on
D and the robust accuracy that on D_shift = {(x, t(y))}.

On pathway 1 of Figure 1 the non-robust accuracy ends above the robust one. A remark of Section 4.2 says that this is no
general rule over data sets, architectures and settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import PositiveInt, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.feature_shares import (
    COMBINATION,
    NEARLY_ALL,
    margin_of_combination,
    margin_over_nine_tenths,
)
from robustfeatures.experiments.shared.grid_rows import TEST_SETS
from robustfeatures.experiments.shared.summaries import (
    add_published,
    has_learned,
    keep_if_any_learned,
    select_by_seed,
    summarise_seeds,
)
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import LOGISTIC_REGRESSION, Pieces
from robustfeatures.training.settings import Probe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SECTION = "two-pathways-2021, Section 4.2"
CORRELATION = "performance correlation"
PROBES = (
    Probe(name="train", input="data", split="train", images=10_000),
    Probe(name="validation", input="data", split="validation"),
    Probe(name="non-robust", input="original", split="test"),
    Probe(name="robust", input="original", split="test", label_shift=1),
    Probe(name=CORRELATION, input="data", split="validation", simple_classifier=LOGISTIC_REGRESSION),
)
PATHWAY_1, PATHWAY_2 = "pathway 1", "pathway 2"
# The columns that identify a curve.
CURVE = ["row", "pathway", "variant", "probe", "seed"]
# Two epochs count as equal if their distance is at most this share of the training.
SAME_EPOCH = 0.1
# An accuracy above this, in percent, counts as close to 100 %.
CLOSE = 95.0
# A curve that never falls by so many points does not decrease sharply.
SHARP = 5.0
FIRST_LEARNED = "first epoch at which the network has learned something"
# So many points between training and validation accuracy count as overfitting.
OVERFIT = 10.0


@dataclass(frozen=True, kw_only=True)
class Variant(Strict):
    """The two pathways on another data set or another architecture."""

    pathway_1: str
    """The training that takes pathway 1."""
    pathway_2: str
    """The training that takes pathway 2."""
    data: str = "D"
    """D, or the name of a set of `other_data`."""
    architecture: str | None = None
    """A name of `other_architectures`; by default the network of the study."""

    @property
    def suffix(self) -> str:
        """The suffix of its rows; empty for the study's own data and architecture."""
        return "".join(f", {name}" for name in (self.architecture, self.data if self.data != "D" else None) if name)


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The trainings on D_det that take the two pathways. D_det needs a validation split."""

    pathway_1: str
    """The training that takes pathway 1."""
    pathway_2: str
    """The training that takes pathway 2."""
    also: tuple[Variant, ...] = ()
    """The same on other data sets and architectures."""
    window: PositiveInt = 5
    """The number of epochs over which curves are smoothed."""

    def variants(self) -> Iterator[Variant]:
        """The study's own data and architecture, then the others."""
        yield Variant(pathway_1=self.pathway_1, pathway_2=self.pathway_2)
        yield from self.also


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One probed model per variant, pathway and seed, and an evaluation of that of pathway 2.

    Raises:
        UserError: D_det has no validation split, or two variants have the same data set and architecture.
    """
    suffixes = [variant.suffix for variant in settings.variants()]
    if len(set(suffixes)) < len(suffixes):
        raise UserError("experiments.B1.also: two variants have the same data set and architecture")
    if "validation" not in pieces.derived_set("D_det").splits:
        raise UserError("derived.D_det.splits: 'validation' is missing")

    def measure(variant: Variant, pathway: str, training: str, seed: int) -> list[Need]:
        model = pieces.downstream_model(
            "D_det",
            seed,
            data=variant.data,
            architecture=variant.architecture,
            training=training,
            probes=PROBES,
        )
        found = [Need(pathway + variant.suffix, seed, model, {"pathway": pathway, "variant": variant.suffix})]
        if pathway == PATHWAY_2:
            data = pieces.data(variant.data)
            tested = pieces.clean_evaluation(model, data=data, label_shifts=tuple(TEST_SETS))
            found.append(replace(found[0], recipe=tested))
        return found

    return [
        need
        for seed in pieces.study.seeds
        for variant in settings.variants()
        for pathway, training in ((PATHWAY_1, variant.pathway_1), (PATHWAY_2, variant.pathway_2))
        for need in measure(variant, pathway, training, seed)
    ]


def _smooth(results: Results) -> pd.DataFrame:
    """The histories with a column `smoothed`."""
    from robustfeatures.experiments.shared.turning_points import smooth

    curves = results.histories.groupby(["row", "probe", "seed"])["accuracy"]
    window = results.settings.window
    return results.histories.assign(smoothed=curves.transform(lambda values: smooth(values, window)))


def _find_turning_epochs(results: Results) -> pd.DataFrame:
    """Columns `CURVE` and turning_epoch of the smoothed curves.

    The robust accuracy of pathway 1 turns where it falls fastest ("decreases sharply", Section 4.3). If it never falls
    by `SHARP` points, it has no turning epoch. That of pathway 2 and all performance correlations turn where they level
    off.
    """
    import pandas as pd

    from robustfeatures.experiments.shared.turning_points import find_plateau, find_steepest_fall

    found = []
    for names, curve in _smooth(results).groupby(CURVE, sort=False):
        _, pathway, _, probe, _ = names
        if probe in ("robust", CORRELATION):
            smoothed = curve["smoothed"]
            falling = probe == "robust" and pathway == PATHWAY_1
            turn = (find_steepest_fall if falling else find_plateau)(curve["epoch"], smoothed)
            fell = (smoothed.cummax() - smoothed).max() >= SHARP
            found.append((*names, turn if fell or not falling else float("nan")))
    return pd.DataFrame(found, columns=[*CURVE, "turning_epoch"])


def _select_last_epoch(results: Results) -> pd.DataFrame:
    rows = results.histories
    return rows[rows["epoch"] == rows.groupby("row")["epoch"].transform("max")].assign(eps=0.0)


def _select_first_learned(histories: pd.DataFrame, chance: float) -> pd.DataFrame:
    """The rows of the first epoch at which a network has learned D or D relabelled; none if it never has."""
    accuracies = histories[histories["probe"].isin(["robust", "non-robust"])]
    learned = accuracies[has_learned(accuracies["accuracy"], chance)]
    first = learned.groupby(["row", "seed"])["epoch"].min().rename("first").reset_index()
    return histories.merge(first, on=["row", "seed"]).query("epoch == first")


def table(results: Results) -> pd.DataFrame:
    """One line per pathway and probe: the value after the last epoch, and the epoch at which the curve turns."""
    rows = _select_last_epoch(results).merge(_find_turning_epochs(results), on=CURVE, how="left")
    summary = summarise_seeds(rows, ["row", "probe", "images", "eps"], values=("accuracy", "turning_epoch"))
    return add_published(summary, results, ["row", "probe", "eps"])


def figure(results: Results) -> Figure:
    """Curves over the epochs, one panel per pathway; thick lines are smoothed, thin lines are not.

    The paper prints values at the end of the training, which stand at the end of the curves.
    """
    from robustfeatures.experiments.shared.plots import curves

    printed = results.comparable_rows
    return curves(
        _smooth(results),
        panel="row",
        line="probe",
        x="epoch",
        xlabel="epoch",
        value="smoothed",
        raw="accuracy",
        ylabel="accuracy (%), correlation x 100",
        published=None if printed is None else printed.rename(columns={"accuracy": "smoothed"}),
    )


def claims(results: Results) -> list[Claim]:
    """The claim of Section 4.2 on the networks of pathway 2."""
    found = []
    for variant in results.settings.variants():
        rows = results.evaluations[results.evaluations["variant"] == variant.suffix]
        nonrobust, robust = (select_by_seed(rows, label_shift=shift) for shift in TEST_SETS)
        margin = margin_over_nine_tenths(robust, nonrobust, int(rows["classes"].iloc[0]))
        found.append(
            Claim(
                "Nearly all of pathway 2's performance comes from robust features (taken as nine tenths)",
                SECTION,
                NEARLY_ALL,
                keep_if_any_learned(margin, rows),
                setting=variant.suffix.removeprefix(", "),
            )
        )
    return found


def measured_claims(results: Results) -> list[Claim]:
    """The claims of Sections 4.2 and 4.3 on these curves.

    Those on Figure 1 alone are of the study's own data and architecture: the paper calls its end of pathway 1 no rule
    for others, and shows no correlations of them.
    """
    own, *others = results.settings.variants()
    return [
        *_pathway_claims(results, own.suffix),
        *_figure_1_claims(results),
        *(claim for variant in others for claim in _pathway_claims(results, variant.suffix)),
    ]


def _read_classes(results: Results, suffix: str) -> tuple[int, float]:
    """The number of classes of a variant, and chance in percent."""
    tested = results.evaluations[results.evaluations["variant"] == suffix].iloc[0]
    return int(tested["classes"]), float(tested["chance"])


def _have_learned(robust: pd.Series, nonrobust: pd.Series, chance: float) -> pd.Series:
    """Whether a network has learned D or D relabelled."""
    return has_learned(robust, chance) | has_learned(nonrobust, chance)


def _pathway_claims(results: Results, suffix: str) -> list[Claim]:
    import pandas as pd

    classes, chance = _read_classes(results, suffix)
    first, last = _select_first_learned(results.histories, chance), _select_last_epoch(results)

    def at(rows: pd.DataFrame, pathway: str, probe: str) -> pd.Series:
        return select_by_seed(rows, pathway=pathway, variant=suffix, probe=probe)

    def start(pathway: str) -> pd.Series:
        margin = margin_over_nine_tenths(at(first, pathway, "robust"), at(first, pathway, "non-robust"), classes)
        # A seed that never learned has no value.
        return margin.reindex(at(last, pathway, "robust").index)

    robust, nonrobust = at(last, PATHWAY_1, "robust"), at(last, PATHWAY_1, "non-robust")
    fitted = [at(last, PATHWAY_1, probe) for probe in ("train", "validation")]
    compared = [
        *(
            (
                f"{pathway.capitalize()} starts by learning only robust features (taken as nine tenths)",
                f"{FIRST_LEARNED}: {NEARLY_ALL}",
                start(pathway),
            )
            for pathway in (PATHWAY_1, PATHWAY_2)
        ),
        (
            "Pathway 1 goes on to a combination of robust and non-robust features (taken as a tenth of each)",
            f"last epoch: {COMBINATION}",
            margin_of_combination(robust, nonrobust, classes).where(_have_learned(robust, nonrobust, chance)),
        ),
        (
            f"Pathway 1 ends with training and validation accuracy close to 100 % (taken as more than {CLOSE:g} %)",
            f"the smaller of train and validation minus {CLOSE:g}, last epoch",
            pd.concat(fitted, axis=1).min(axis=1, skipna=False) - CLOSE,
        ),
        (
            f"Pathway 2 ends with a training accuracy close to 100 % (taken as more than {CLOSE:g} %)",
            f"train minus {CLOSE:g}, last epoch",
            at(last, PATHWAY_2, "train") - CLOSE,
        ),
        (
            f"Pathway 2 ends with less validation than training accuracy (81 and 100 %: taken as {OVERFIT:g} points)",
            f"train minus validation minus {OVERFIT:g}, last epoch",
            at(last, PATHWAY_2, "train") - at(last, PATHWAY_2, "validation") - OVERFIT,
        ),
        (
            "Validation accuracy on D_det ends higher on pathway 1 than on pathway 2",
            "validation: pathway 1 minus pathway 2, last epoch",
            at(last, PATHWAY_1, "validation") - at(last, PATHWAY_2, "validation"),
        ),
    ]
    return [
        Claim(sentence, SECTION, quantity, values, setting=suffix.removeprefix(", "))
        for sentence, quantity, values in compared
    ]


def _least_distance(first: pd.Series, second: pd.Series, epochs: int) -> pd.Series:
    """How far apart two turning epochs are at least, as a share of the training.

    A curve that turns in the last tenth has not been seen to turn: it turns there at the earliest. NaN if that leaves
    open whether the two are within a tenth, or if one has no turning epoch.
    """
    latest = (1 - SAME_EPOCH) * epochs
    seen = (first <= latest) & (second <= latest)
    least = (first.clip(upper=latest) - second.clip(upper=latest)).abs() / epochs
    return least.where(seen | (least > SAME_EPOCH))


def _describe_mean(epochs: pd.Series) -> str:
    return "unknown (it does not turn in every seed)" if epochs.isna().any() else f"{epochs.mean():.1f}"


def _figure_1_claims(results: Results) -> list[Claim]:
    own, last = {"pathway": PATHWAY_1, "variant": ""}, _select_last_epoch(results)
    robust, nonrobust = (select_by_seed(last, probe=probe, **own) for probe in ("robust", "non-robust"))
    _, chance = _read_classes(results, "")
    found = [
        Claim(
            "Pathway 1 ends with more non-robust than robust features",
            f"{SECTION} and Figure 1",
            "non-robust minus robust, last epoch",
            (nonrobust - robust).where(_have_learned(robust, nonrobust, chance)),
        )
    ]
    turns, histories = _find_turning_epochs(results), results.histories
    for pathway, sentence in (
        (PATHWAY_1, "On pathway 1 the performance correlation levels off when the robust accuracy decreases sharply"),
        (PATHWAY_2, "On pathway 2 the performance correlation levels off with the robust accuracy"),
    ):
        robust, correlation = (
            select_by_seed(turns, value="turning_epoch", pathway=pathway, variant="", probe=probe)
            for probe in ("robust", CORRELATION)
        )
        shown = (histories["pathway"] == pathway) & (histories["variant"] == "")
        epochs = int(histories.loc[shown, "epoch"].max())
        found.append(
            Claim(
                f"{sentence} (taken as within a tenth of the training)",
                "two-pathways-2021, Section 4.3 and Figure 1",
                f"10 % of the {epochs} epochs minus the distance of the two turning epochs, in percent of the training "
                "(a turn in the last tenth counts as at its beginning; no value if a later turn could change the "
                f"verdict); mean epochs: robust {_describe_mean(robust)}, correlation "
                f"{_describe_mean(correlation)}",
                percent(SAME_EPOCH - _least_distance(robust, correlation, epochs)),
                of_images=False,
            )
        )
    return found


EXPERIMENT = Experiment(
    id="B1",
    title="The two pathways",
    paper="two-pathways-2021",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    measured_claims=measured_claims,
    names={"row": "pathway"},
    caption=(
        "Accuracy per epoch of training on D_det: on its train and validation splits, on D (non-robust) and on D "
        "relabelled by t(y) = (y + 1) mod C (robust). The performance correlation, times 100, compares the network "
        "with a logistic regression L on the training images. It is mu = I(F; Y) - I(F; Y | L) on the validation split "
        "of D_det. F is what the network predicts, Y the label. Logarithms are to the base C, entropies after Chao, "
        "Wang and Jost (2013). Thick lines are moving averages over epochs, thin ones as measured; means over seeds, "
        "bands standard deviations. The turning epoch of the robust accuracy of pathway 1 is where the smoothed curve "
        "falls fastest. A curve that never falls by 5 points has none. The turning epoch of pathway 2 or of a "
        "correlation is where the curve levels off: the knot k of a + b min(epoch, k). The table gives the number of "
        "images per value; each model's reference and log give the cost in seconds."
    ),
)
