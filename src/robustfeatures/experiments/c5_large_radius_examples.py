"""C5: adversarial examples with a large radius. at-odds-2019, Section 3, Table 3, Figures 3, 8 (Linf) and 9 (L2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.at_odds import NORM_NAMES, PAPER, STANDARD
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.perception import (
    LargeRadiusSettings,
    make_examples,
    make_interpolations,
    select_images,
)
from robustfeatures.experiments.shared.summaries import summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.checks import check_reach

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SOURCE = f"{PAPER}, Section 3 and Figure 3"
NUMBERS = ["changed", "alignment", "low_frequency"]


@dataclass(frozen=True, kw_only=True)
class Settings(LargeRadiusSettings):
    """The settings that C5 and C6 share."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Measurements of every seed and norm; images and adversarial examples of the first seed.

    Raises:
        UserError: the steps of the large radius are too few or too short.
    """
    check_reach(settings.large_steps, settings.large_relative_step_size, "experiments.C5.large_steps")
    first = pieces.study.seeds[0]
    found = [Need("original", first, select_images(pieces, settings))]
    for norm in settings.large_eps:
        shown = make_examples(pieces, settings, first, norm)
        found += [Need(f"{norm} {name}", first, recipe) for name, recipe in shown.items()]
        found += [
            Need("examples", seed, make_interpolations(pieces, settings, seed, norm), {"norm": norm})
            for seed in pieces.study.seeds
        ]
    return found


def _per_seed(results: Results) -> pd.DataFrame:
    from robustfeatures.experiments.shared.perception import average_over_images

    rows = results.measurements
    changed = percent(rows["reached"] != rows["label"])
    return average_over_images(rows.assign(changed=changed), ["norm", "model"], NUMBERS)


def table(results: Results) -> pd.DataFrame:
    """One line per norm of the examples and network."""
    rows = _per_seed(results)
    named = rows.assign(norm=rows["norm"].map(NORM_NAMES)).sort_values("norm", kind="stable")
    return summarise_seeds(named, ["norm", "model"], values=NUMBERS)


def figure(results: Results) -> Figure:
    """A block per norm: the images and the examples against each network, with its prediction."""
    from robustfeatures.experiments.shared.perception import TITLES, choose_images, class_labels
    from robustfeatures.experiments.shared.plots import ImageRow, image_grid
    from robustfeatures.pipeline.store.datasets import read_dataset

    sets = {row: read_dataset(path, "test", in_memory=False) for (row, _), path in results.payloads.items()}
    original = sets.pop("original")
    places = choose_images(original, results.settings.shown)
    ((_, first),) = {key for key in results.payloads if key[0] == "original"}
    seen = results.measurements[results.measurements["seed"] == first].set_index(["norm", "model", "image"])["reached"]
    blocks: dict[str, list[ImageRow]] = {}
    for norm, eps in results.settings.large_eps.items():
        labels = class_labels(original, original.labels[places])
        rows = [ImageRow("original", original.float_images(places), labels)]
        for name in (STANDARD, *results.settings.eps):
            reached = class_labels(original, seen.loc[[(norm, name, place) for place in places]])
            rows.append(ImageRow(TITLES[name], sets[f"{norm} {name}"].float_images(places), reached))
        blocks[f"{NORM_NAMES[norm]} {eps:g}"] = rows
    return image_grid(blocks)


def claims(results: Results) -> list[Claim]:
    """The claims of Section 3 on these examples, as numbers."""
    rows = _per_seed(results)
    found = []
    for norm in results.settings.large_eps:
        numbers = rows[rows["norm"] == norm].pivot_table(index="seed", columns="model", values=NUMBERS, dropna=False)
        for trained in results.settings.eps:
            who = f"{NORM_NAMES[trained]}-trained"
            setting = f"{who}, {NORM_NAMES[norm]} examples"
            found += [
                Claim(
                    "Adversarial perturbations for robust networks produce what is salient in another class",
                    SOURCE,
                    f"100 x cosine with the difference of class means: {who} minus standard",
                    percent(numbers["alignment", trained] - numbers["alignment", STANDARD]),
                    setting=setting,
                ),
                Claim(
                    "Adversarial perturbations for standard networks are noisier than those for robust ones",
                    SOURCE,
                    f"energy in low frequencies (%): {who} minus standard",
                    percent(numbers["low_frequency", trained] - numbers["low_frequency", STANDARD]),
                    setting=setting,
                ),
            ]
    return found


EXPERIMENT = Experiment(
    id="C5",
    title="Adversarial examples with a large radius",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units={"changed": "%"},
    caption=(
        "Test images with their class, and adversarial examples with a radius far above that of training. The "
        "examples are against a standard, an L2-trained and a Linf-trained network, whose prediction is shown. The "
        "table has means over test images. The column changed is the share with another prediction than the class. "
        "Over these images, alignment is the cosine of the perturbation with the difference between the mean images "
        "of the two classes. Over all images, low_frequency is the share of the perturbation's energy in low "
        "frequencies."
    ),
)
