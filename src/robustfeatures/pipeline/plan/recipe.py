"""A recipe says exactly how one artifact is made. Its digest changes with everything that can change the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from robustfeatures.attacks.evaluating.settings import Evaluation
from robustfeatures.data.registry import find_source
from robustfeatures.data.settings import Data
from robustfeatures.derived.registry import METHODS
from robustfeatures.derived.settings import Derived
from robustfeatures.models.registry import find_code
from robustfeatures.models.settings import Architecture, Pretrained
from robustfeatures.pipeline.plan.canonical import to_json
from robustfeatures.pipeline.plan.identity import identity_digest, make_identity, norm_entries
from robustfeatures.pipeline.study.parameters import Measurement, Parameters
from robustfeatures.training.settings import Model


@dataclass(frozen=True)
class Stage:
    """One kind of artifact, made from parameters of one type or of several.

    `version` is raised by hand when the pipeline writes the same numbers in another form.
    """

    name: str
    parameters: Any
    payload: str
    uses_torch: bool
    version: int = 1

    @property
    def module(self) -> str:
        """The module whose `make` function writes the payload. Only the science that it calls is in the identity."""
        return f"robustfeatures.pipeline.run.stages.{self.name}"


STAGES = {
    stage.name: stage
    for stage in (
        Stage("data", Data, "data.zarr", uses_torch=False),
        Stage("model", Model | Pretrained, "model.safetensors", uses_torch=True),
        Stage("derived", Derived, "data.zarr", uses_torch=True),
        Stage("evaluation", Evaluation, "rows.csv", uses_torch=True),
        Stage("measurement", Measurement, "rows.csv", uses_torch=True),
    )
}

# The science that loads a network for a job.
NETWORK_READERS = ("robustfeatures.models.creation", "robustfeatures.models.weights")

STAGE_OF = {kind: stage for stage in STAGES.values() for kind in get_args(stage.parameters) or (stage.parameters,)}


def find_architecture(parameters: Parameters) -> Architecture | None:
    """The network that a recipe trains or reads; None for other stages."""
    match parameters:
        case Model(architecture=architecture):
            return architecture
        case Pretrained(architecture=name, width=width):
            return Architecture(name=name, width=width)
    return None


@dataclass(frozen=True, eq=False)
class Recipe:
    """How one artifact is made: its stage, its parameters, and the recipes of its inputs by role.

    `family` and `seed` are for people and in no digest. Recipes of one family differ only in the seed.
    """

    family: str
    parameters: Parameters
    inputs: Mapping[str, Recipe]
    seed: int | None = None

    @cached_property
    def label(self) -> str:
        return self.family if self.seed is None else f"{self.family}-seed{self.seed}"

    @cached_property
    def stage(self) -> Stage:
        return STAGE_OF[type(self.parameters)]

    @cached_property
    def json_parameters(self) -> Any:
        """The parameters as JSON values."""
        return to_json(self.parameters)

    @cached_property
    def code_entries(self) -> tuple[str, ...]:
        """The modules of science that the stage calls, and those that the parameters choose by name."""
        entries = set(norm_entries(self.json_parameters))
        match self.parameters:
            case Data() as data:
                # The second makes the statistics that networks are normalised with.
                entries |= {"robustfeatures.data.preparation", "robustfeatures.data.pixels"}
                entries |= {find_source(each.source).loader for each in data.iterate_sources()}
            case Model(architecture=architecture, training=training, probes=probes):
                entries |= {"robustfeatures.training.model", *find_code(architecture.name)}
                if training.adversary is not None or any(probe.attack for probe in probes):
                    entries.add("robustfeatures.training.adversary")
                if any(probe.simple_classifier for probe in probes):
                    entries.add("robustfeatures.training.performance_correlation")
                if training.gpus_per_training is not None:
                    entries.add("robustfeatures.training.distributed")
            case Pretrained(architecture=name):
                entries |= {"robustfeatures.models.pretrained", *find_code(name)}
            case Derived(method=method):
                entries |= {"robustfeatures.derived.generation", METHODS[method.kind].module}
            case Evaluation(attacks=attacks):
                entries |= {"robustfeatures.attacks.evaluating.evaluation", *(attack.module for attack in attacks)}
            case Measurement(module=module):
                entries.add(f"robustfeatures.{module}")
        for recipe in self.inputs.values():
            network = find_architecture(recipe.parameters)
            if network is not None:
                entries |= {*find_code(network.name), *NETWORK_READERS}
            elif isinstance(recipe.parameters, Data | Derived):
                entries.add("robustfeatures.data.dataset")
        return tuple(sorted(entries))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The part that the recipe's digest and the store's key have in common.

        Raises:
            UserError: a library that makes the artifact is not installed.
        """
        return make_identity(self.stage.name, self.stage.version, self.json_parameters, self.code_entries)

    @cached_property
    def digest(self) -> str:
        return identity_digest(self.identity, {role: recipe.digest for role, recipe in self.inputs.items()})

    def find_key(self, contents: Mapping[str, str | None]) -> str | None:
        """The key of the payload, from the contents of artifacts by name; None if that of an input is unknown."""
        below = {role: contents.get(input_.name) for role, input_ in self.inputs.items()}
        known = {role: content for role, content in below.items() if content is not None}
        return identity_digest(self.identity, known) if len(known) == len(below) else None

    @cached_property
    def artifact(self) -> str:
        """The readable name of the artifact: label and digest."""
        return f"{self.label}-{self.digest}"

    def record(self) -> dict[str, Any]:
        """Everything that a job needs to make the artifact, as JSON values."""
        return {
            "label": self.label,
            "family": self.family,
            "stage": self.stage.name,
            "digest": self.digest,
            "identity": self.identity,
            "parameters": self.json_parameters,
            "code_entries": list(self.code_entries),
            "inputs": {role: recipe.name for role, recipe in self.inputs.items()},
        }

    @cached_property
    def name(self) -> str:
        """`<stage>/<label>-<digest>`."""
        return f"{self.stage.name}/{self.artifact}"

    def collect(self, found: dict[str, Recipe]) -> None:
        """Add this recipe and all recipes that it builds on to `found` by name, inputs first."""
        if self.name not in found:
            for below in self.inputs.values():
                below.collect(found)
            found[self.name] = self
