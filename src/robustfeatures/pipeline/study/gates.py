"""Gates: what the networks and the attacks of a study must reach, so that its claims are about the science."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Le

from robustfeatures.engine.settings import Strict
from robustfeatures.pipeline.study.parameters import Name

Percentage = Annotated[float, Ge(0), Le(100)]


@dataclass(frozen=True, kw_only=True)
class Gates(Strict):
    """The claims of an experiment are not tested if it builds on a network or on a derived set that reaches less."""

    clean_accuracy: Mapping[Name, Percentage] = field(default_factory=dict)
    """By the name of a training: the clean accuracy in percent that the study's network must reach when it is trained
    so on D, or on one of `other_data`; on the test images of these data."""
    attack_success: Mapping[Name, Percentage] = field(default_factory=dict)
    """By the name of a derived set made by a targeted attack: the share in percent of its images that its source
    network must take for their target. Images whose target is their class do not count."""
