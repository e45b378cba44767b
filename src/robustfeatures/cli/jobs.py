"""The commands of the workflow: they make what a plan names."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from robustfeatures.cli.app import RAW, LogOption, Reference, References, StoreOption, app, find_store, log_to, stop
from robustfeatures.errors import StoppedError, UserError

DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(envvar="ROBUSTFEATURES_DEVICE", help="As in config.yaml.")
]
GpusOption = Annotated[
    str,
    typer.Option(
        envvar="ROBUSTFEATURES_GPUS",
        help="UUIDs of the GPUs that the jobs of this machine share, with commas; empty if a scheduler gives one.",
    ),
]


@app.command()
def build(
    reference: Reference,
    store: StoreOption = None,
    raw: Annotated[Path, typer.Option(envvar="ROBUSTFEATURES_RAW", help="The folder of downloads.")] = RAW,
    device: DeviceOption = "auto",
    gpus: GpusOption = "",
    jobs_per_gpu: Annotated[
        int,
        typer.Option(min=1, envvar="ROBUSTFEATURES_JOBS_PER_GPU", help="How many jobs share a GPU of this machine."),
    ] = 1,
    mix_gpu_models: Annotated[
        bool,
        typer.Option(
            envvar="ROBUSTFEATURES_MIX_GPU_MODELS", help="Let parts of one result come from several GPU models."
        ),
    ] = False,
    gpu_fast_path: Annotated[
        bool, typer.Option(envvar="ROBUSTFEATURES_GPU_FAST_PATH", help="As in config.yaml.")
    ] = True,
    threads: Annotated[int, typer.Option(min=1, help="Threads for torch.")] = 1,
    part: Annotated[int | None, typer.Option(min=1, help="Make only this part, counted from 1.")] = None,
    parts: Annotated[int, typer.Option(min=1, help="Of so many parts.")] = 1,
    log: LogOption = None,
) -> None:
    """Make an artifact of a planned study, or a batch of them: find each payload in the store, or compute it."""
    from robustfeatures.pipeline.run import job as jobs
    from robustfeatures.pipeline.run.blocks import Share
    from robustfeatures.pipeline.store.references import Artifacts

    log_to(log)
    if parts > 1 and part is None:
        raise UserError("--parts: give --part, too")
    if part is not None and (part > parts or parts == 1):
        raise UserError(f"--part: {part} of --parts {parts}; give at least 2 parts, and one of them")
    stage = reference.parent.name
    if part is not None and stage not in ("derived", "evaluation"):
        raise UserError(f"{reference}: the stage {stage} has no parts; leave out --part")
    # The default would end the process at once. An error releases its locks first, so that no other job waits.
    signal.signal(signal.SIGTERM, stop)
    terminal = log is None and sys.stderr.isatty()
    environment = jobs.Environment(
        find_store(store),
        raw,
        device,
        threads,
        terminal,
        gpus=tuple(filter(None, gpus.split(","))),
        jobs_per_gpu=jobs_per_gpu,
        mix_gpu_models=mix_gpu_models,
        gpu_fast_path=gpu_fast_path,
    )
    try:
        if part is None:
            jobs.build(reference, environment)
        else:
            jobs.build_part(reference, Share(part, parts), environment)
    except StoppedError:
        artifacts, name = Artifacts.of(reference)
        artifacts.count_stop(name, part)
        raise


@app.command()
def view(references: References, store: StoreOption = None, log: LogOption = None) -> None:
    """Write tables, figures, claims files or pages of a planned study."""
    from robustfeatures.pipeline.report.building import build_view

    log_to(log)
    for reference in references:
        build_view(reference, store=find_store(store))
