"""A stand-in for conda: answers what Snakemake asks of it, and builds environments with venv and pip.

An environment that it builds has the interpreter and the pip requirements that an environment file names, and nothing
else. It refuses every call and every dependency that it does not know.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

PYTHON = f"python={sys.version_info.major}.{sys.version_info.minor}"
FIELDS = {"name", "channels", "dependencies", "variables"}
# An index that cannot be reached is passed over at the second try. Jobs compile the few modules that they import, which
# takes less time than compiling all that is installed.
INSTALL = ("install", "--no-input", "--retries", "1", "--no-compile")

CONDA = """#!/bin/sh
exec {python} {script} {root} "$@"
"""
# As conda's own: the environment comes first on PATH, then what belongs to it is sourced.
ACTIVATE = """export CONDA_PREFIX="$1"
export PATH="$1/bin:$PATH"
for script in "$1"/etc/conda/activate.d/*.sh; do
    if [ -e "$script" ]; then . "$script"; fi
done
"""


def install(root: Path) -> Path:
    """Write `conda` and `activate` for an installation at `root`; returns the folder to put on PATH."""
    folder = root / "bin"
    folder.mkdir(parents=True)
    quoted = {"python": sys.executable, "script": __file__, "root": str(root)}
    conda = folder / "conda"
    conda.write_text(CONDA.format(**{name: shlex.quote(value) for name, value in quoted.items()}))
    conda.chmod(0o755)
    (folder / "activate").write_text(ACTIVATE)
    return folder


def create(file: Path, prefix: Path) -> None:
    """Build the environment of `file` at `prefix`.

    Raises:
        SystemExit: the file holds what only conda itself can provide.
        subprocess.CalledProcessError: pip failed.
    """
    environment: dict[str, Any] = yaml.safe_load(file.read_text())
    if unknown := environment.keys() - FIELDS:
        raise SystemExit(f"{file}: unknown fields: {unknown}")
    interpreter, *others = environment["dependencies"]
    packages = [each for each in others if isinstance(each, str)]
    if interpreter != PYTHON or packages != ["pip"]:
        raise SystemExit(f"{file}: this conda provides {PYTHON} and pip, not {[interpreter, *packages]}")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    # The lines go to pip as they stand, options among them, as conda hands them on.
    requirements = prefix / "requirements.txt"
    requirements.write_text("\n".join(line for each in others if isinstance(each, dict) for line in each["pip"]))
    pip = [sys.executable, "-m", "pip", "--python", str(prefix / "bin" / "python")]
    subprocess.run([*pip, *INSTALL, "pip", "-r", str(requirements)], check=True)
    scripts = prefix / "etc" / "conda" / "activate.d"
    scripts.mkdir(parents=True)
    variables = environment.get("variables", {})
    exports = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    (scripts / "variables.sh").write_text("".join(exports))


def main() -> None:
    """Answer one call of Snakemake's."""
    parser = argparse.ArgumentParser(prog="conda", allow_abbrev=False)
    parser.add_argument("root", type=Path)
    parser.add_argument("--version", action="version", version="conda 25.1.0")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info").add_argument("--json", action="store_true", required=True)
    config = commands.add_parser("config")
    config.add_argument("--get", choices=["channel_priority"], required=True)
    config.add_argument("--json", action="store_true", required=True)
    clean = commands.add_parser("clean")
    for flag in ("-y", "--tarballs"):
        clean.add_argument(flag, action="store_true", required=True)
    creation = commands.add_parser("env").add_subparsers(required=True).add_parser("create")
    for flag in ("--quiet", "--no-default-packages"):
        creation.add_argument(flag, action="store_true")
    for option in ("--file", "--prefix"):
        creation.add_argument(option, type=Path, required=True)
    asked = parser.parse_args()
    match asked.command:
        case "info":
            print(json.dumps({"conda_prefix": str(asked.root), "platform": "linux-64"}))
        case "config":
            print(json.dumps({"get": {asked.get: "strict"}}))
        case "env":
            create(asked.file, asked.prefix)
        case "clean":
            # There is no cache of packages here but pip's own.
            pass


if __name__ == "__main__":
    main()
