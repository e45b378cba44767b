"""A5: robust accuracy of a model trained on D_R from noise against the number of PGD steps, and under CW-L2.

not-bugs-2019, Appendix D.2 and Figure 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen
from pydantic import AfterValidator

from robustfeatures.attacks.evaluating.settings import PGD, Attack, CarliniWagner
from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Distinct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

SECTION = "not-bugs-2019, Appendix D.2"
# The appendix has 48.27 %. Table 7 has this number for D_R from noise.
DERIVED_SET = "D_R-noise"
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
    steps: Steps = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2500)
    """The numbers of steps of PGD."""
    reach: Annotated[tuple[PositiveFloat, ...], MinLen(1), Distinct] = (2.5, 10.0, 40.0)
    """Step sizes are `reach` * eps / steps, at most eps: in a straight line the steps cover `reach` * eps."""
    cw: CarliniWagner = CW
    """The attack of Carlini and Wagner."""

    def pgd(self, steps: int) -> PGD:
        """PGD with `steps` steps."""
        sizes = sorted({min(1.0, reach / steps) for reach in self.reach})
        return PGD(kind="pgd", steps=steps, relative_step_sizes=tuple(sizes))


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """An evaluation per number of steps and seed, one under CW, and A1's.

    Raises:
        UserError: the radius is not in `robustness.eps` of the study.
    """
    if settings.eps not in pieces.robustness.eps:
        raise UserError(f"robustness.eps: {settings.eps:g} is missing")
    found = []
    for seed in pieces.study.seeds:
        model = pieces.downstream_model(DERIVED_SET, seed)
        own = pieces.evaluation(model, eps=(0.0, *pieces.robustness.eps))
        found.append(Need(STUDY, seed, own, {"steps": 0}))
        attacks: list[tuple[str, Attack, int]] = [(SWEEP, settings.pgd(steps), steps) for steps in settings.steps]
        for row, attack, steps in (*attacks, (SEARCH, settings.cw, settings.cw.steps)):
            recipe = pieces.evaluation(model, eps=(settings.eps,), attacks=(attack,), where="experiments.A5")
            found.append(Need(row, seed, recipe, {"steps": steps}))
    return found


def _at_radius(results: Results) -> pd.DataFrame:
    eps: float = results.settings.eps
    return results.evaluations[results.evaluations["eps"] == eps]


def table(results: Results) -> pd.DataFrame:
    """One line per attack and number of steps."""
    from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds

    on = ["row", "steps", "eps"]
    return add_published(summarise_seeds(_at_radius(results), on), results, on)


def figure(results: Results) -> Figure:
    """Accuracy against the number of PGD steps, on a logarithmic axis, as in Figure 8; CW as a level beside it."""
    from robustfeatures.experiments.shared.plots.lines import curves

    rows, settings = _at_radius(results), results.settings
    printed = results.comparable_rows
    return curves(
        rows[rows["row"] == SWEEP],
        line="row",
        x="steps",
        xlabel="steps of PGD",
        ylabel=f"accuracy under {results.name_radius(settings.eps)} (%)",
        log_x=True,
        # Its steps are taken once per constant, so they have no place among those of PGD.
        levels={SEARCH: rows[rows["row"] == SEARCH]},
        level_label=lambda name: f"{name}, {settings.cw.searches} constants of {settings.cw.steps} steps",
        published=None if printed is None else printed[printed["eps"] == settings.eps],
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix D.2 on these attacks."""
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.summaries import select_by_seed

    rows = _at_radius(results)
    least = rows.groupby("seed")["accuracy"].min()
    longest = max(results.settings.steps)
    shorter = max(steps for steps in results.settings.steps if steps <= longest / 2)
    pgd = {steps: select_by_seed(rows, row=SWEEP, steps=steps) for steps in (shorter, longest)}
    return [
        Claim(
            "Over all attacks and step sizes, the accuracy does not drop by more than 2 points",
            SECTION,
            f"eps {results.settings.eps:g}: least accuracy over all attacks minus that under the study's attacks",
            list(least - select_by_seed(rows, row=STUDY)),
            threshold=-2.0,
        ),
        Claim(
            "The accuracy plateaus as PGD takes more steps (taken as 1 point)",
            SECTION,
            f"eps {results.settings.eps:g}: accuracy under PGD of {longest} steps minus {shorter} steps",
            list(pgd[longest] - pgd[shorter]),
            threshold=-1.0,
        ),
        Claim(
            "PGD and CW-L2 reach the same accuracy (taken as 2 points)",
            SECTION,
            f"eps {results.settings.eps:g}: minus the distance between CW-L2 and PGD of {longest} steps",
            list(-(select_by_seed(rows, row=SEARCH) - pgd[longest]).abs()),
            threshold=-2.0,
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
    names={"row": "attack"},
    caption=(
        "Accuracy on the test split of D of models trained on D_R from noise, against the number of steps of PGD. The "
        "level is the accuracy under the L2 attack of Carlini and Wagner (CW). For each number of PGD steps several "
        "step sizes are tried. An image counts as correct only if it withstands all of them. Lines are means over "
        "seeds, bands standard deviations."
    ),
)
