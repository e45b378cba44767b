"""A3: adversarial examples transfer to the architectures that learn most from D_det.

not-bugs-2019, Section 3.3, Figure 3 (untargeted) and Appendix D.9, Figure 13 (targeted). The paper shows one source,
its ResNet-50, against five architectures; here every architecture is a source too.
`robustfeatures.measurements.transfer` defines transfer rates; its attack has the radius and the steps of D_det. Target
networks and source networks differ, so the diagonal also compares two networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen

from robustfeatures.derived.settings import TargetedAttack
from robustfeatures.engine.settings import Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.a2_random_and_deterministic_targets import LABEL_SHIFTS
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import (
    FEWEST_CLUSTERS,
    add_published,
    average_architectures,
    correlation,
    count_clusters,
    summarise_seeds,
)
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Distinct, Name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.pipeline.plan.recipe import Recipe

SECTION = "not-bugs-2019, Section 3.3 and Figure 3; targeted: Appendix D.9 and Figure 13"
ATTACKS = ("untargeted", "targeted")
TRAINING = "standard"
# Source and target networks never share an initialisation.
OTHER_SEED = 2000


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The architectures. Their training on D is `standard`; on D_det it is the one that the study gives the set."""

    architectures: Annotated[tuple[Name, ...], MinLen(3), Distinct]
    """The architectures beside the study's own, by their names in `other_architectures`."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Per seed and architecture: transfer from it to all, and the accuracy on D of its network trained on D_det.

    Raises:
        UserError: an architecture is the study's own, or D_det was not made by an attack.
    """
    own = pieces.architecture(None).name
    if own in settings.architectures:
        raise UserError(f"experiments.A3.architectures: {own!r} is the name of the study's own network")
    names: dict[str, str | None] = {own: None, **{name: name for name in settings.architectures}}
    found = []
    for seed in pieces.study.seeds:
        method = pieces.derived("D_det", seed).parameters.method  # type: ignore[union-attr]
        if not isinstance(method, TargetedAttack):
            raise UserError("derived.D_det.method: not an attack")
        roles = {name: f"target-{name}" for name in names}
        carried = {roles[name]: _other_network(pieces, seed, key) for name, key in names.items()}
        for name, key in names.items():
            downstream = pieces.downstream_model("D_det", seed, architecture=key)
            found.append(Need(name, seed, pieces.evaluation(downstream, eps=(0.0,), label_shifts=LABEL_SHIFTS)))
            source = pieces.source_model(TRAINING, seed, architecture=key)
            measurement = pieces.measurement(
                f"{source.family}-transfer",
                "measurements.transfer",
                {
                    "targets": roles,
                    "split": "test",
                    "precision": pieces.study.precision,
                    "norm": method.norm,
                    "eps": method.eps,
                    "step_size": method.step_size,
                    "steps": method.steps,
                },
                {"data": pieces.data(), "source": source, **carried},
                seed=seed,
            )
            found.append(Need(name, seed, measurement))
    return found


def _other_network(pieces: Pieces, seed: int, architecture: str | None) -> Recipe:
    label = "-".join(part for part in (pieces.data().label, architecture, TRAINING, "other") if part)
    return pieces.model(
        label, TRAINING, seed, {"data": pieces.data()}, architecture=architecture, seed_offset=OTHER_SEED
    )


def _rates(results: Results) -> pd.DataFrame:
    """Transfer rates in percent; NaN where the attack fools the source on no image."""
    rows = results.measurements
    rates = percent(rows["transferred"] / rows["fooled"]).where(rows["fooled"] > 0)
    return rows.assign(transfer_rate=rates)


def _downstream_accuracies(results: Results) -> pd.DataFrame:
    clean = results.clean.rename(columns={"row": "target"})
    return clean[["target", "seed", "accuracy"]]


def _rates_of_own_network(results: Results) -> pd.DataFrame:
    """From the study's own network, as in the paper: columns target, attack, seed, transfer_rate, accuracy."""
    rates = _rates(results)
    own: pd.DataFrame = rates[rates["row"] == rates["row"].iloc[0]]
    return own.merge(_downstream_accuracies(results), on=["target", "seed"])


def table(results: Results) -> pd.DataFrame:
    """One line per source, target and kind of attack; `accuracy` is the target architecture's on D, from D_det."""
    both = _rates(results).merge(_downstream_accuracies(results), on=["target", "seed"])
    values = ("transfer_rate", "accuracy")
    columns = ["row", "target", "attack"]
    return add_published(summarise_seeds(both, columns, values=values), results, columns, values=values)


def figure(results: Results) -> Figure:
    """Per kind of attack: the matrix of transfer rates, and below it its first row against accuracies."""
    from robustfeatures.experiments.shared.transfer_plots import plot_matrices_and_lines

    return plot_matrices_and_lines(_rates(results), _rates_of_own_network(results), attacks=ATTACKS)


def claims(results: Results) -> list[Claim]:
    """Accuracy on D after training on D_det predicts the transfer rate.

    The interval is over architectures (Fisher's z), on means over seeds: more seeds are not more architectures. With
    fewer than five clusters of accuracies the claim is not tested. If accuracies or rates are constant, r counts as 0.
    """
    beside = _rates_of_own_network(results)
    found = []
    for attack in ATTACKS:
        means = average_architectures(beside[beside["attack"] == attack])
        r = correlation(means["accuracy"].tolist(), means["transfer_rate"].tolist()) if len(means) > 1 else None
        tested = r is not None and count_clusters(means["accuracy"]) >= FEWEST_CLUSTERS
        found.append(
            Claim(
                "Architectures that learn more from D_det are fooled by more transferred examples",
                SECTION,
                f"Pearson's r over architectures of transfer rate ({attack}) and accuracy on D when trained on D_det",
                [] if r is None else [0.0 if math.isnan(r.value) else r.value],
                setting=f"{attack} examples",
                over_architectures=(r.low, r.high) if r is not None and tested else (math.nan, math.nan),
            )
        )
    return found


EXPERIMENT = Experiment(
    id="A3",
    title="Transfer between architectures",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units={"transfer_rate": "%", "accuracy": "%"},
    names={"row": "examples of", "target": "tried on"},
    caption=(
        "Above: share of adversarial examples made on one network (rows) that fool another one (columns). Counted are "
        "the test images of D that both classify correctly and on which the attack fools the first. A "
        "targeted attack succeeds only if the prediction is t(y) = (y + 1) mod C. The diagonal is between two "
        "networks of one architecture. Means over seeds. Below: the first row against the accuracy on D of each "
        "architecture trained on D_det. Large points are means over seeds, small points the seeds. r is Pearson's "
        "correlation of the means. With five or more clusters of means it has a 95 % interval (Fisher's z) and a "
        "least-squares line. With fewer it is not tested."
    ),
)
