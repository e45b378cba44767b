"""Commands that fetch raw data, take data sets out, and share payloads."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Literal

import typer

from robustfeatures.cli.app import (
    ARTIFACTS,
    CONFIG,
    STUDIES,
    BuildsOption,
    ConfigOption,
    StoreOption,
    StudyOption,
    app,
    find_artifact,
    find_store,
    print_lines,
    read_configuration,
    stop,
)
from robustfeatures.errors import UserError

RemoteArgument = Annotated[
    str | None,
    typer.Argument(help="A folder, sftp://user@host/folder or s3://bucket/folder; by default `remote` of config.yaml."),
]


@app.command()
def fetch(config: ConfigOption = CONFIG, study: StudyOption = None) -> None:
    """Download and check a study's raw data, for machines without internet; check your own files."""
    from robustfeatures.pipeline.study.study import find_study
    from robustfeatures.tools import fetching

    configured = read_configuration(config, study)
    print_lines(fetching.fetch(find_study(STUDIES, configured.study), Path(configured.raw)))


@app.command()
def export(
    dataset: Annotated[
        str, typer.Argument(help="A label, as `list` prints it, a reference, a payload's folder or a data.zarr.")
    ],
    out: Annotated[Path, typer.Argument(help="A new folder, or for npz a new file.")],
    form: Annotated[
        Literal["folder", "npz", "constructed", "huggingface"],
        typer.Option("--format", help="Images, an .npz file, torch tensors or parquet."),
    ],
    split: Annotated[str | None, typer.Option("--split", help="Only this split; by default all.")] = None,
    study: BuildsOption = None,
    store: StoreOption = None,
) -> None:
    """Write a data set as an image folder, an .npz file, torch tensors or parquet, and print what the format loses."""
    from robustfeatures.tools import exporting

    signal.signal(signal.SIGTERM, stop_export)
    path = _find_dataset(dataset, study)
    # Only a reference needs a store. A data.zarr may be in a place without config.yaml.
    root = find_store(store).root if path.suffix == ".json" else store
    print_lines(exporting.export(path, out, form, split=split, store=root))


@app.command()
def push(
    remote: RemoteArgument = None,
    study: Annotated[str | None, typer.Option("--study", help="Only what this study has built.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="Only artifacts of this label and their inputs.")] = None,
    store: StoreOption = None,
) -> None:
    """Copy payloads of the store to a remote, by default all. After an interruption, run it again: it goes on."""
    from robustfeatures.pipeline.plan.plan import unfold
    from robustfeatures.pipeline.store.format import check_store
    from robustfeatures.pipeline.store.references import Artifacts
    from robustfeatures.tools import sharing

    signal.signal(signal.SIGTERM, stop)
    if study is not None and label is not None:
        raise UserError("--label: give a study or a label, not both")
    plan, found = None if study is None else unfold(read_configuration(CONFIG, study), STUDIES), find_store(store)
    check_store(found.root)
    _print_shared(sharing.push_to(_remote(remote), found, Artifacts(ARTIFACTS), plan=plan, label=label))


@app.command()
def pull(remote: RemoteArgument = None, store: StoreOption = None) -> None:
    """Fetch every payload of a remote that the store lacks. After an interruption, run it again: it goes on."""
    from robustfeatures.tools import sharing

    signal.signal(signal.SIGTERM, stop)
    _print_shared(sharing.pull_from(_remote(remote), find_store(store)))


def _find_dataset(dataset: str, study: str | None) -> Path:
    """The path of a data set, or the reference that a label names.

    Raises:
        UserError: no artifact, or several, are called so, and no payload lies there.
    """
    path = Path(dataset)
    # A folder such as `data/digits` may have the name of a label.
    if path.suffix in (".json", ".zarr") or (path / "data.zarr").exists() or (path.exists() and not path.is_dir()):
        if study is not None:
            raise UserError(f"--study: {dataset} is a path, which names one build; leave --study out")
        return path
    try:
        return find_artifact(dataset, study)
    except UserError as error:
        beside = "; the folder of this name holds no data.zarr" if path.is_dir() else ""
        raise UserError(f"{error}{beside}") from error


def stop_export(*_: object) -> None:
    # The default would end the process at once. An error removes the half-written export first.
    raise UserError("stopped by SIGTERM, and what was half-written is removed; run again")


def _remote(given: str | None) -> str:
    configured = given if given is not None else read_configuration(CONFIG, None).remote
    if configured is None:
        raise UserError(f"{CONFIG}: names no remote; give one")
    return configured


def _print_shared(outcome: tuple[str, list[str]]) -> None:
    line, problems = outcome
    print_lines([*problems, line])
    if problems:
        raise typer.Exit(1)
