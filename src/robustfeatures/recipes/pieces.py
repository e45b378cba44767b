"""The recipes that a study's named pieces stand for; experiments combine these."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from robustfeatures.errors import UserError, suggestion
from robustfeatures.recipes import parameters as p
from robustfeatures.recipes.recipe import Recipe
from robustfeatures.recipes.study import DerivedSet, Study

# Two seeds that differ by a recipe's purpose never meet, since each recipe splits its seed by purpose; models trained
# on derived sets take other seeds than the source models, so that an initialisation is never shared.
DOWNSTREAM_SEED = 1000


@dataclass(frozen=True, eq=False)
class Pieces:
    """Recipes of one study, by the names that the study gives; each is made once, for its digest takes time."""

    study: Study
    _made: dict[Hashable, Recipe] = field(default_factory=dict)

    def data(self) -> Recipe:
        """The original data set D."""
        return self._data

    @cached_property
    def _data(self) -> Recipe:
        return Recipe(self.study.data.source, self.study.data, {})

    def _recipe(
        self, label: str, parameters: p.Model | p.Derived | p.Evaluation, inputs: Mapping[str, Recipe]
    ) -> Recipe:
        key = (label, parameters, *inputs.items())
        return self._made.setdefault(key, Recipe(label, parameters, inputs))

    def source_model(self, training: str, seed: int) -> Recipe:
        """The network trained on D by a named training."""
        parameters = p.Model(
            architecture=self.study.architecture,
            training=self._training(training),
            seed=seed,
            precision=self.study.precision,
        )
        return self._recipe(f"{self.data().label}-{training}-seed{seed}", parameters, {"data": self.data()})

    def derived(self, name: str, seed: int) -> Recipe:
        """A named derived data set, made with the source model of the same seed."""
        derived = self._derived(name)
        parameters = p.Derived(method=derived.method, seed=seed, precision=self.study.precision, splits=derived.splits)
        inputs = {"data": self.data(), "source": self.source_model(derived.source, seed)}
        return self._recipe(f"{self.data().label}-{name}-seed{seed}", parameters, inputs)

    def downstream_model(
        self, name: str, seed: int, *, training: str | None = None, probes: Sequence[p.Probe] = ()
    ) -> Recipe:
        """The network trained on a named derived data set, by its own training or by another named one.

        Probes may ask for the inputs "data" (the derived set) and "original" (D).
        """
        chosen = training or self._derived(name).training
        inputs = {"data": self.derived(name, seed)}
        if any(probe.input == "original" for probe in probes):
            inputs["original"] = self.data()
        parameters = p.Model(
            architecture=self.study.architecture,
            training=self._training(chosen),
            seed=DOWNSTREAM_SEED + seed,
            precision=self.study.precision,
            probes=tuple(probes),
        )
        # Same training, other history: another label, so that neither passes for an earlier build of the other.
        probed = "-probed" if probes else ""
        return self._recipe(f"{self.data().label}-on-{name}-{chosen}{probed}-seed{seed}", parameters, inputs)

    def evaluation(self, model: Recipe, *, eps: Sequence[float], label_shifts: Sequence[int] = (0,)) -> Recipe:
        """The accuracy of a model on the test split of D at the given radii and label shifts."""
        parameters = p.Evaluation(
            split="test",
            attack=self.study.robustness.attack,
            precision=self.study.precision,
            eps=tuple(eps),
            label_shifts=tuple(label_shifts),
        )
        return self._recipe(f"{model.label}-test", parameters, {"model": model, "data": self.data()})

    def _training(self, name: str) -> p.Training:
        if name not in self.study.training:
            raise UserError(f"training: {name!r} is missing{suggestion(name, self.study.training)}")
        return self.study.training[name]

    def _derived(self, name: str) -> DerivedSet:
        if name not in self.study.derived:
            raise UserError(f"derived: {name!r} is missing{suggestion(name, self.study.derived)}")
        return self.study.derived[name]
