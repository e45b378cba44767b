"""X3: the robust accuracies of A1, of C3 or of D3 compared with those under AutoAttack, on the same images.

A control: a weak attack makes a model look more robust than it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import MinLen

from robustfeatures.attacks.evaluating.settings import Attacks, AutoAttack, Evaluation
from robustfeatures.attacks.settings import NORM_NAMES, NormName
from robustfeatures.data.settings import Subset
from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.errors import UserError, join_words
from robustfeatures.experiments import a1_robust_and_nonrobust_sets as a1
from robustfeatures.experiments import c3_half_half_training as c3
from robustfeatures.experiments import d3_feature_learning_accuracy as d3
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import keep_learned, summarise_seeds
from robustfeatures.experiments.shared.units import MINUS_SHARES
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.parameters import Distinct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


STANDARD_VERSION = AutoAttack(kind="autoattack")
# A row, its seed, its network, the norm of the attack if it is not that of the study, and the radii.
Attacked = tuple[str, int, Recipe, NormName | None, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The networks, the attacks, their radii, and how many images they attack."""

    of: Literal["A1", "C3", "D3"] = "A1"
    """The experiment whose networks are attacked. Those of C3 and D3 are attacked at that experiment's radii."""
    starts: a1.Starts | None = None
    """What the inversions of D_R and D_NR of A1 start from; by default those of A1 in the study."""
    attacks: Attacks = (STANDARD_VERSION,)
    """The attacks that follow those of the study."""
    eps: Annotated[tuple[PositiveFloat, ...], MinLen(1), Distinct] | None = None
    """The radii for the networks of A1; by default those of the study."""
    images: PositiveInt | None = None
    """The number of test images; by default all."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per robust accuracy and seed, under the study's attacks and those that follow.

    Raises:
        UserError: the study has no attack to compare with, lacks C3 or D3, or has a setting for A1's networks alone.
    """
    # Rows are cumulative, so what the study's attacks reach alone can be read only before the others.
    own = [attack for attack in pieces.robustness.attacks if attack not in settings.attacks]
    if not own:
        raise UserError("experiments.X3.attacks: the study has no other attack to compare with")
    attacks = (*own, *settings.attacks)
    data = None
    if settings.images is not None:
        subset = Subset(kind="subset", split="test", samples=settings.images)
        data = pieces.data_with(f"{settings.images}-test-images", [subset])
    found = []
    for row, seed, network, norm, radii in _find_networks(pieces, settings):
        recipe = pieces.evaluation(
            network, eps=(0.0, *radii), data=data, attacks=attacks, norm=norm, where="experiments.X3"
        )
        # A row of C3 has a network for each radius.
        found.append(Need(row, seed, recipe, {"attacked": network.label}))
    return found


def _find_networks(pieces: Pieces, settings: Settings) -> Iterator[Attacked]:
    if settings.of == "A1":
        return _networks_of_a1(pieces, settings)
    for name in ("starts", "eps"):
        if getattr(settings, name) is not None:
            raise UserError(f"experiments.X3.{name}: is for the networks of A1 alone")
    if settings.of not in pieces.study.experiments:
        raise UserError(f"experiments.X3.of: the study has no experiment {settings.of}")
    return _networks_of_c3(pieces) if settings.of == "C3" else _networks_of_d3(pieces)


def _networks_of_a1(pieces: Pieces, settings: Settings) -> Iterator[Attacked]:
    starts = settings.starts or pieces.study.experiment_settings("A1", a1.Settings).starts
    for seed in pieces.study.seeds:
        for row, network in a1.find_networks(pieces, seed, starts).items():
            yield row, seed, network, None, settings.eps or pieces.robustness.eps


def _networks_of_c3(pieces: Pieces) -> Iterator[Attacked]:
    for need in c3.needs(pieces, pieces.study.experiment_settings("C3", c3.Settings)):
        evaluation = need.recipe.parameters
        assert isinstance(evaluation, Evaluation)
        row = f"{need.row}, {NORM_NAMES[evaluation.norm]}"
        radii = tuple(eps for eps in evaluation.eps if eps > 0)
        yield row, need.seed, need.recipe.inputs["model"], evaluation.norm, radii


def _networks_of_d3(pieces: Pieces) -> Iterator[Attacked]:
    settings = pieces.study.experiment_settings("D3", d3.Settings)
    for need in d3.needs(pieces, settings):
        if need.columns.get("images") == d3.TEST_IMAGES:
            yield need.row, need.seed, need.recipe.inputs["model"], None, (settings.eps,)


def _pair_accuracies(results: Results) -> pd.DataFrame:
    """Columns row, seed, eps, attacked (the network), before and after, under the study's attacks and all (percent)."""
    keys = ["row", "seed", "eps", "attacked"]
    following = [attack.name for attack in results.settings.attacks]
    own = results.attacks[~results.attacks["attack"].isin(following)]
    before = own.groupby(keys, sort=False)["accuracy"].last().rename("before").reset_index()
    attacked = results.evaluations[results.evaluations["eps"] > 0]
    after = attacked.rename(columns={"accuracy": "after"})[[*keys, "after"]]
    paired = before.merge(after, on=keys, validate="one_to_one")
    return paired.assign(lowered=paired["before"] - paired["after"])


def table(results: Results) -> pd.DataFrame:
    """One line per network and radius."""
    return summarise_seeds(_pair_accuracies(results), ["row", "eps"], values=("before", "after", "lowered"))


def figure(results: Results) -> Figure:
    """Two bars per network and radius."""
    from robustfeatures.experiments.shared.plots.bars import grouped_bars

    told = {"before": "the study's attacks", "after": f"and {_name_attacks(results)}"}
    bars = _pair_accuracies(results).melt(["row", "seed", "eps"], list(told), var_name="attacks", value_name="accuracy")
    bars["bar"] = [
        f"{results.name_radius(eps)}, {told[attacks]}"
        for eps, attacks in zip(bars["eps"], bars["attacks"], strict=True)
    ]
    return grouped_bars(
        bars.sort_values("eps", kind="stable"),
        group="row",
        bar="bar",
        xlabel="trained on (standard training, but for 'adversarial')" if results.settings.of == "A1" else "training",
    )


def _name_attacks(results: Results) -> str:
    return join_words([attack.title for attack in results.settings.attacks])


def claims(results: Results) -> list[Claim]:
    """The robust accuracies do not come from a weak attack; the margin is that of Appendix D.2.

    Each row and radius is a setting of its own. The largest of many lowerings would grow with their number alone.
    """
    attacks = _name_attacks(results)
    lower = "lowers" if len(results.settings.attacks) == 1 else "lower"
    evaluations = results.evaluations
    return [
        Claim(
            f"{attacks} {lower} no robust accuracy of {results.settings.of} by more than 2 points",
            "control; the 2 points of not-bugs-2019, Appendix D.2",
            f"robust accuracy: with {attacks} minus without",
            keep_learned(
                -part.set_index("seed")["lowered"],
                evaluations[evaluations["attacked"].isin(part["attacked"])],
                row=row,
                eps=0.0,
            ),
            threshold=-2.0,
            setting=f"{row}, eps {eps:g}",
            control=True,
            bounds=MINUS_SHARES,
        )
        for (row, eps), part in _pair_accuracies(results).groupby(["row", "eps"], sort=False)
    ]


EXPERIMENT = Experiment(
    id="X3",
    title="Robust accuracies beside AutoAttack",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units={"before": "%", "after": "%", "lowered": "points"},
    caption=(
        "Accuracy under the study's attacks, and what is left after AutoAttack has also attacked the images that "
        "withstood them. Bars are means, whiskers standard deviations, dots the seeds."
    ),
)
