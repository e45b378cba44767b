"""Recipes made from the named pieces of a study: its data sets, networks, trainings and derived sets."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, get_args

from robustfeatures.attacks.evaluating.settings import Attack, Evaluation, Noise
from robustfeatures.attacks.settings import NormName
from robustfeatures.data.settings import Data, Operation, Split
from robustfeatures.derived.settings import Derived, Method, TargetedAttack
from robustfeatures.errors import UserError, suggest
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan.canonical import canonical_json, digest, to_json
from robustfeatures.pipeline.plan.contents import count_classes
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.checks import check_attacks, check_eps, has_split
from robustfeatures.pipeline.study.grids import Cell
from robustfeatures.pipeline.study.parameters import Measurement, Parameters
from robustfeatures.pipeline.study.study import FURTHER_SEEDS, DerivedSet, Robustness, Study
from robustfeatures.training.settings import Model, Probe, Training

T = TypeVar("T")

# The role of the predictions of a logistic regression of the pixels, fitted to the derived set.
LOGISTIC_REGRESSION = "logistic-regression"
# Models trained on derived sets take other seeds than the source models, so that no two share an initialisation.
DOWNSTREAM_SEED = 1000
# An evaluation names attacks, also without a radius. This one never runs.
UNUSED = Noise(kind="noise", draws=1)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Recipes of one study, by the names in the study. Each recipe is made once, because its digest takes time."""

    study: Study
    _made: dict[Hashable, Recipe] = field(default_factory=dict)

    def of_experiment(self, identifier: str) -> Pieces:
        """The same pieces with the seeds that an experiment uses."""
        used = self.study.experiment_seeds(identifier)
        seeds = tuple(seed for seed in self.study.seeds if seed in used)
        return self if seeds == self.study.seeds else replace(self, study=replace(self.study, seeds=seeds))

    def data(self, name: str = "D") -> Recipe:
        """The original data set D, or another one that the study names.

        Raises:
            UserError: the study has no data set of that name. All methods raise it for an unknown name.
        """
        if name not in self._made:
            self._made[name] = self._data(name)
        return self._made[name]

    def _data(self, name: str) -> Recipe:
        if name != "D":
            data = self._find(self.study.other_data, name, "other_data")
            return self._recipe(name, data, {})
        given = self.study.data or self._lack("data", "the field is missing")
        return self._recipe(given.source, given, {})

    def data_with(self, label: str, operations: Sequence[Operation], *, data: str = "D") -> Recipe:
        """D, or another original data set, with further operations after its own; `label` describes them."""
        whole = self.data(data)
        assert isinstance(whole.parameters, Data)
        parameters = replace(whole.parameters, operations=(*whole.parameters.operations, *operations))
        return self._recipe(f"{whole.label}-{label}", parameters, {})

    def training(self, name: str) -> Training:
        """A named training of the study."""
        return self._find(self.study.training, name, "training")

    def source_model(self, training: str, seed: int, *, data: str = "D", architecture: str | None = None) -> Recipe:
        """The network that a named training trains on D or on another original data set, or one of the `models`."""
        label = "-".join(part for part in (self.data(data).label, architecture, training) if part)
        return self.model(label, training, seed, {"data": self.data(data)}, architecture=architecture)

    def model(
        self,
        label: str,
        training: str | Training,
        seed: int,
        inputs: Mapping[str, Recipe],
        *,
        architecture: str | None = None,
        probes: Sequence[Probe] = (),
        seed_offset: int = 0,
    ) -> Recipe:
        """A network that a training, given by name or in full, trains on the input "data".

        Probes name inputs. Networks that must not share their initialisation differ in `seed_offset`, which the label
        does not show. If `training` names one of the `models`, it is that network, whatever the seed.

        Raises:
            UserError: a probe measures a split that its data set does not have; one of the `models` would have to be
                trained on a derived set, with another architecture, with probes, or a second time.
        """
        for probe in probes:
            _check_split(inputs[probe.input], probe.split, label)
        if isinstance(training, str) and training in self.study.models:
            found = self._pretrained(label, training, inputs["data"], architecture, probes)
            if seed_offset:
                raise UserError(f"models.{training}: trained elsewhere, so there is no second network of its kind")
            return found
        # The seeds of a study are checked to lie apart by other distances than these.
        assert seed_offset in {0, *FURTHER_SEEDS}
        parameters = Model(
            architecture=self.architecture(architecture),
            training=self.training(training) if isinstance(training, str) else training,
            seed=seed_offset + seed,
            precision=self.study.precision,
            compile=self.study.compile,
            probes=tuple(probes),
        )
        return self._recipe(label, parameters, inputs, seed)

    def _pretrained(
        self, label: str, name: str, data: Recipe, architecture: str | None, probes: Sequence[Probe]
    ) -> Recipe:
        """The network of that name, trained elsewhere, for the classes and the images of a data set."""
        if not isinstance(data.parameters, Data):
            raise UserError(f"models.{name}: trained elsewhere, so it cannot be trained on a derived set")
        if architecture is not None:
            raise UserError(f"models.{name}: has its own architecture, not {architecture!r}")
        if probes:
            raise UserError(f"models.{name}: trained elsewhere, so its training cannot be probed")
        return self._recipe(label, self.study.models[name], {"data": data})

    def derived_set(self, name: str) -> DerivedSet:
        """A named entry of the study's `derived`."""
        return self._find(self.study.derived, name, "derived")

    def derived(self, name: str, seed: int, *, data: str = "D", splits: Sequence[Split] | None = None) -> Recipe:
        """A named derived data set, made from D or from another data set with the source model of the same seed.

        `splits` replace those that the study derives.
        """
        derived = self.derived_set(name)
        # In one order, because each split is derived by itself.
        chosen = sorted(splits or derived.splits, key=get_args(Split).index)
        self._check_splits(name, chosen, data)
        self._check_target(name, derived.method, data)
        # Other data sets keep their own images; only D may be a part of what its source has seen.
        seen = derived.source_data if derived.source_data and data == "D" else data
        inputs = {"data": self.data(data), "source": self.source_model(derived.source, seed, data=seen)}
        return self.derived_with(f"{self.data(data).label}-{name}", derived.method, seed, inputs, splits=chosen)

    def _check_splits(self, name: str, splits: Sequence[Split], data: str) -> None:
        parameters, field = self.data(data).parameters, "data" if data == "D" else f"other_data.{data}"
        assert isinstance(parameters, Data)
        for split in splits:
            if not has_split(parameters, split):
                remedy = f"; give {field}.validation a share" if split == "validation" else ""
                raise UserError(f"derived.{name}.splits: {field} has no {split} split{remedy}")

    def _check_target(self, name: str, method: Method, data: str) -> None:
        parameters = self.data(data).parameters
        assert isinstance(parameters, Data)
        target = method.target if isinstance(method, TargetedAttack) else None
        if isinstance(target, int):
            count = count_classes(parameters)
            if count is not None and target >= count:
                field = "data" if data == "D" else f"other_data.{data}"
                raise UserError(
                    f"derived.{name}.method.target: {target} is no class of {field}; the last one is {count - 1}"
                )

    def derived_with(
        self,
        label: str,
        method: Method,
        seed: int,
        inputs: Mapping[str, Recipe],
        *,
        splits: Sequence[Split] = ("train",),
    ) -> Recipe:
        """The data set that a method derives from the input "data" with the network "source"."""
        parameters = Derived(
            method=method,
            seed=seed,
            precision=self.study.precision,
            compile=self.study.compile,
            splits=tuple(splits),
        )
        return self._recipe(label, parameters, inputs, seed)

    def downstream_model(
        self,
        name: str,
        seed: int,
        *,
        data: str = "D",
        training: str | None = None,
        architecture: str | None = None,
        probes: Sequence[Probe] = (),
    ) -> Recipe:
        """The network trained on a named derived data set, with the training of that set or with another named one.

        Probes may use the inputs "data" (the derived set) and "original" (D), and `LOGISTIC_REGRESSION` as their simple
        classifier.
        """
        chosen = self.derived_set(name).training if training is None else training
        inputs = {"data": self.derived(name, seed, data=data)}
        if any(probe.input == "original" for probe in probes):
            inputs["original"] = self.data(data)
        for probe in probes:
            if probe.simple_classifier == LOGISTIC_REGRESSION:
                label = f"{self.data(data).label}-{name}-{LOGISTIC_REGRESSION}"
                fitted = {"data": inputs["data"], "predicted": inputs[probe.input]}
                settings = {"split": probe.split}
                inputs[LOGISTIC_REGRESSION] = self.measurement(
                    label, "measurements.logistic_regression", settings, fitted, seed=seed
                )
        # A model with probes has its own label, so that `why` does not take it for an earlier build of one without.
        parts = (self.data(data).label, architecture, f"on-{name}", chosen, "probed" if probes else None)
        label = "-".join(part for part in parts if part)
        return self.model(
            label, chosen, seed, inputs, architecture=architecture, probes=probes, seed_offset=DOWNSTREAM_SEED
        )

    def evaluation(
        self,
        model: Recipe,
        *,
        eps: Sequence[float],
        label_shifts: Sequence[int] = (0,),
        data: Recipe | None = None,
        split: Split = "test",
        attacks: Sequence[Attack] | None = None,
        norm: NormName | None = None,
        where: str = "robustness",
    ) -> Recipe:
        """The accuracy of a model on a split of D, or of another data set, at the given radii and label shifts.

        `attacks` and `norm` replace those of the study. `where` is the part of the study that gives attacks and radii.

        Raises:
            UserError: the data set has no such split.
        """
        _check_split(data or self.data(), split, model.label)
        chosen = self.robustness.attacks if attacks is None else tuple(attacks)
        ball = self.robustness.norm if norm is None else norm
        check_attacks(ball, chosen, f"{where}.attacks")
        check_eps(ball, eps, f"{where}.eps")
        parameters = Evaluation(
            split=split,
            norm=ball,
            attacks=chosen,
            precision=self.study.precision,
            compile=self.study.compile,
            eps=tuple(eps),
            label_shifts=tuple(label_shifts),
        )
        on = "" if data is None else f"-on-{data.family}"
        # Other attacks give another label, so that `why` does not take one evaluation for an earlier build of another.
        under = "" if attacks is None else f"-under-{digest(chosen)[:6]}"
        under += "" if norm is None else f"-{norm}"
        family = f"{model.family}{on}{under}-{split}"
        return self._recipe(family, parameters, {"model": model, "data": data or self.data()}, model.seed)

    def clean_evaluation(
        self, model: Recipe, *, data: Recipe | None = None, split: Split = "test", label_shifts: Sequence[int] = (0,)
    ) -> Recipe:
        """The accuracy of a model on the unchanged images of a split of D, or of another data set."""
        return self.evaluation(
            model, eps=(0.0,), label_shifts=label_shifts, data=data, split=split, attacks=(UNUSED,), norm="l2"
        )

    def measurement(
        self, label: str, module: str, settings: Mapping[str, Any], inputs: Mapping[str, Recipe], *, seed: int
    ) -> Recipe:
        """The rows that `measure` of a module ("theory.<name>" or "measurements.<name>") returns.

        `seed` is only part of the label. A measurement that draws random numbers has its seed among its settings.
        """
        return Recipe(label, Measurement(module=module, settings=to_json(settings)), inputs, seed)

    def simulation(self, label: str, module: str, settings: Mapping[str, Any], seed: int) -> Recipe:
        """The measurement of a toy model, which draws its own points by `seed` and reads nothing."""
        return self.measurement(label, module, {**settings, "seed": seed}, {}, seed=seed)

    def grid(self, name: str) -> tuple[Cell, ...]:
        """The cells of a named grid, each the name of a training."""
        self._find(self.study.grids, name, "grids")
        return self.study.cells(name)

    @property
    def robustness(self) -> Robustness:
        """The study's attacks and radii."""
        return self.study.robustness or self._lack("robustness", "the field is missing")

    def architecture(self, name: str | None) -> Architecture:
        """The study's network, or another one that the study names."""
        if name is not None:
            return self._find(self.study.other_architectures, name, "other_architectures")
        return self.study.architecture or self._lack("architecture", "the field is missing")

    def _find(self, known: Mapping[str, T], name: str, field: str) -> T:
        if name in known:
            return known[name]
        found: T = self._lack(field, f"{name!r} is missing{suggest(name, known)}")
        return found

    def _lack(self, field: str, problem: str) -> Any:
        """What to use for a piece that the study lacks; see `lacking.py`."""
        raise UserError(f"{field}: {problem}")

    def _recipe(
        self, family: str, parameters: Parameters, inputs: Mapping[str, Recipe], seed: int | None = None
    ) -> Recipe:
        # Data cannot be hashed, because some of its fields are mappings.
        hashable = canonical_json(parameters) if isinstance(parameters, Data) else parameters
        return self._made.setdefault(
            (family, seed, hashable, *inputs.items()), Recipe(family, parameters, inputs, seed)
        )


def _check_split(data: Recipe, split: Split, label: str) -> None:
    """Check that a data set has the split on which the network of this label is measured.

    Raises:
        UserError: it has not.
    """
    measured = data.parameters
    lacks = isinstance(measured, Data) and not has_split(measured, split)
    if lacks or (isinstance(measured, Derived) and split not in measured.splits):
        remedy = "; give it a share" if split == "validation" and lacks else ""
        raise UserError(f"{data.label} has no {split} split, on which {label} is measured{remedy}")
