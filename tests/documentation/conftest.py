"""A folder in which everything runs that README and docs say: a copy of the workflow with a small study built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from sklearn.datasets import load_digits

from robustfeatures.models import create
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY, MakeOnce, Workspace, assert_done

# The folder of images and the weights that the pages name.
PHOTOGRAPHS = {"cat": 0, "dog": 1}
WEIGHTS = "resnet18.pt"
BUILD = "snakemake --cores all"
# The payloads of a study are made in one process first: starting one for each job takes longer than these jobs.
BUILDS = re.compile(r"snakemake --cores all --config study=(\S+)")


@dataclass
class Reader:
    """Someone who types what the pages say."""

    folder: Path
    # A command that stands on several pages is run once.
    done: set[str] = field(default_factory=set)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder; raises AssertionError if it fails."""
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{self.folder / 'src'}:{REPOSITORY}",
            "HOME": str(self.folder.parent),
        }
        done = subprocess.run(arguments, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert_done(done)
        return done

    def type(self, command: str) -> None:
        """Run a line of a shell."""
        if found := BUILDS.fullmatch(command):
            self.run(sys.executable, "-m", "tests.in_process", found[1])
        self.run("bash", "-euc", command)
        self.done.add(command)


@pytest.fixture(scope="session")
def reader(smoke: Workspace, make_once: MakeOnce, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """In a built copy of the workflow, whose default study is as small as the smoke study."""
    made = make_once("documented", lambda folder: prepare(smoke, folder / "work"))
    folder = tmp_path_factory.mktemp("documentation") / "work"
    shutil.copytree(made / "work", folder, symlinks=True)
    return Reader(folder, {BUILD})


def prepare(smoke: Workspace, folder: Path) -> None:
    """Make the folder that a reader begins with."""
    shutil.copytree(smoke.folder, folder, symlinks=True)
    (folder / "docs").symlink_to(REPOSITORY / "docs")
    study = read_yaml(folder / "workflow/studies/smoke.yaml")
    # One experiment is enough, and the study for one's own images will be like this one.
    small = {**study, "experiments": {"A1": {}}}
    # digits-full extends this study, and its X6 has radii that five steps must reach.
    for name in ("D_rand", "D_det"):
        small["derived"][name]["method"]["step_size"] = 0.3
    (folder / "workflow/studies/digits.yaml").write_text(yaml.safe_dump(small, sort_keys=False))
    there = Workspace(folder)
    there.edit("config.yaml", "study: smoke", "study: digits")
    write_images(folder / "photos")
    torch.save(create("resnet18", num_classes=10, image_shape=(3, 32, 32)).state_dict(), folder / WEIGHTS)
    there.build()
    Reader(folder).type(BUILD)


def write_images(folder: Path) -> None:
    """60 images of each class, 8x8 pixels."""
    images, labels = load_digits(return_X_y=True)
    for name, label in PHOTOGRAPHS.items():
        (folder / name).mkdir(parents=True)
        for number, image in enumerate(images[labels == label][:60]):
            pixels = (image * 255 / 16).astype(np.uint8).reshape(8, 8)
            Image.fromarray(pixels).save(folder / name / f"{number:04d}.png")
