"""All experiments by id, found in the modules of this folder that are named after them."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

from robustfeatures.experiments.experiment import Experiment


@cache
def experiment_modules() -> dict[str, str]:
    """The module of each experiment id: `a1_robust_and_nonrobust_sets.py` is A1."""
    folder = Path(__file__).parent
    names = sorted(path.stem for path in folder.glob("*.py") if re.match(r"[a-ex]\d+_", path.stem))
    return {name.partition("_")[0].upper(): f"robustfeatures.experiments.{name}" for name in names}


@cache
def experiment(identifier: str) -> Experiment:
    """The experiment of an id that `experiment_modules` knows."""
    found: Experiment = import_module(experiment_modules()[identifier]).EXPERIMENT
    return found
