"""A5: robust accuracy of models trained on D_R against the number of PGD steps, and under CW-L2.

not-bugs-2019, Appendix D.2 and Figure 8. As with Table 8 (A4), the paper leaves open which D_R this is. The appendix
refers to "the value given in Figure 2", whose set begins as "random images". But Table 7 has 48.27 % for
noise (from images: 48.20 %). Both sets are measured. The published numbers are compared with the set from noise.
The paper searches over the step size of each attack. Here PGD has several, and CW has one rate of Adam.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, MinLen
from pydantic import AfterValidator

from robustfeatures.attacks.evaluating.settings import PGD, Attack, CarliniWagner
from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.a1_robust_and_nonrobust_sets import Starts
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, keep_learned, select_by_seed, summarise_seeds
from robustfeatures.experiments.shared.units import MINUS_SHARES
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Distinct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SECTION = "not-bugs-2019, Appendix D.2"
CW = CarliniWagner(kind="cw-l2", searches=9, steps=1000)
STUDY, SWEEP, SEARCH = "the study's attacks", "PGD", "CW-L2"


def _check_steps(steps: tuple[int, ...]) -> tuple[int, ...]:
    if min(steps) > max(steps) / 2:
        raise ValueError(f"needs a number that is at most half of the largest, {max(steps)}")
    return steps


Steps = Annotated[tuple[PositiveInt, ...], MinLen(2), Distinct, AfterValidator(_check_steps)]


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The attacks. The paper searched over step sizes, but does not name them."""

    eps: PositiveFloat = 0.25
    """The radius of all attacks."""
    starts: Starts = ("images", "noise")
    """What the inversions of D_R start from."""
    steps: Steps = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2500)
    """The numbers of steps of PGD."""
    reach: Annotated[tuple[Annotated[float, Ge(1)], ...], MinLen(1), Distinct] = (2.5, 10.0, 40.0)
    """A step is `reach` * eps / steps long, but at most eps."""
    cw: CarliniWagner = CW
    """The attack of Carlini and Wagner."""

    def pgd(self, steps: int) -> PGD:
        """PGD with `steps` steps."""
        sizes = sorted({min(1.0, reach / steps) for reach in self.reach})
        return PGD(kind="pgd", steps=steps, relative_step_sizes=tuple(sizes))


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """For each D_R and seed an evaluation per number of steps, one under CW, and A1's.

    Raises:
        UserError: the radius is not in `robustness.eps` of the study.
    """
    if settings.eps not in pieces.robustness.eps:
        raise UserError(f"robustness.eps: {settings.eps:g} is missing")
    sweep: list[tuple[str, Attack, int]] = [(SWEEP, settings.pgd(steps), steps) for steps in settings.steps]
    found = []
    for seed in pieces.study.seeds:
        for name in _derived_sets(settings):
            model = pieces.downstream_model(name, seed)
            own = pieces.evaluation(model, eps=(0.0, *pieces.robustness.eps))
            found.append(Need(name, seed, own, {"under": STUDY, "steps": 0}))
            for under, attack, steps in (*sweep, (SEARCH, settings.cw, settings.cw.steps)):
                recipe = pieces.evaluation(model, eps=(settings.eps,), attacks=(attack,), where="experiments.A5")
                found.append(Need(name, seed, recipe, {"under": under, "steps": steps}))
    return found


def _derived_sets(settings: Settings) -> dict[str, str]:
    """The derived sets, and the start of the inversion of each."""
    return {f"D_R-{start}": start for start in settings.starts}


def _at_radius(evaluations: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    return evaluations[evaluations["eps"] == settings.eps]


def table(results: Results) -> pd.DataFrame:
    """One line per derived set, attack and number of steps."""
    on = ["row", "under", "steps", "eps"]
    return add_published(summarise_seeds(_at_radius(results.evaluations, results.settings), on), results, on)


def figure(results: Results) -> Figure:
    """Accuracy against the number of PGD steps, on a logarithmic axis, as in Figure 8; CW as a level beside it."""
    from robustfeatures.experiments.shared.plots.lines import curves

    settings = results.settings
    # A line for each derived set and attack.
    rows = _at_radius(results.evaluations, settings).assign(line=lambda found: found["row"] + ", " + found["under"])
    printed = results.comparable_rows
    if printed is not None:
        printed = printed[printed["eps"] == settings.eps].assign(line=printed["row"] + ", " + printed["under"])
    searched = rows[rows["under"] == SEARCH]
    return curves(
        rows[rows["under"] == SWEEP],
        line="line",
        x="steps",
        xlabel="steps of PGD",
        ylabel=f"accuracy under {results.name_radius(settings.eps)} (%)",
        log_x=True,
        # Its steps are taken once per constant, so they have no place among those of PGD.
        levels=dict(list(searched.groupby("line", sort=False))),
        level_label=lambda name: f"{name}, {settings.cw.searches} constants of {settings.cw.steps} steps",
        published=printed,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix D.2 on these attacks, for each D_R."""
    rows = results.evaluations
    return [
        claim
        for name, start in _derived_sets(results.settings).items()
        for claim in _claims_on_one_set(rows[rows["row"] == name], results.settings, f"from {start}")
    ]


def _claims_on_one_set(evaluations: pd.DataFrame, settings: Settings, setting: str) -> list[Claim]:
    rows = _at_radius(evaluations, settings)
    least = rows.groupby("seed")["accuracy"].min()
    longest = max(settings.steps)
    shorter = max(steps for steps in settings.steps if steps <= longest / 2)
    pgd = {steps: select_by_seed(rows, under=SWEEP, steps=steps) for steps in (shorter, longest)}
    learned = partial(keep_learned, rows=evaluations, under=STUDY, eps=0.0)
    return [
        Claim(
            "Over all attacks and step sizes, the accuracy does not drop by more than 2 points",
            SECTION,
            f"eps {settings.eps:g}: least accuracy over all attacks minus that under the study's attacks",
            learned(least - select_by_seed(rows, under=STUDY)),
            threshold=-2.0,
            setting=setting,
            bounds=MINUS_SHARES,
        ),
        Claim(
            "The accuracy plateaus as PGD takes more steps (taken as 1 point)",
            SECTION,
            f"eps {settings.eps:g}: accuracy under PGD of {longest} steps minus {shorter} steps",
            learned(pgd[longest] - pgd[shorter]),
            threshold=-1.0,
            setting=setting,
        ),
        Claim(
            "PGD and CW-L2 reach the same accuracy (taken as 2 points)",
            SECTION,
            f"eps {settings.eps:g}: minus the distance between CW-L2 and PGD of {longest} steps",
            learned(-(select_by_seed(rows, under=SEARCH) - pgd[longest]).abs()),
            threshold=-2.0,
            setting=setting,
            bounds=MINUS_SHARES,
        ),
    ]


EXPERIMENT = Experiment(
    id="A5",
    title="Robust accuracy against the number of attack steps",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"row": "trained on", "under": "attack"},
    caption=(
        "Accuracy on the test split of D of models trained on D_R, against the number of steps of PGD. The levels are "
        "the accuracies under the L2 attack of Carlini and Wagner (CW); the published one is on the right edge. For "
        "each number of PGD steps several step sizes are tried. An image counts as correct only if it withstands all "
        "of them. Lines are means over seeds, bands standard deviations."
    ),
)
