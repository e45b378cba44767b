"""All experiments by id; the names of the modules in this folder begin with the ids."""

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
def load_experiment(identifier: str) -> Experiment:
    """Import the experiment of an id that `experiment_modules` contains."""
    found: Experiment = import_module(experiment_modules()[identifier]).EXPERIMENT
    return found
