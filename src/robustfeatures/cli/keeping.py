"""Commands that check, keep and clear a store, and that write a study."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from robustfeatures.cli.app import (
    ARTIFACTS,
    CONFIG,
    STUDIES,
    ConfigOption,
    StoreOption,
    StudyOption,
    app,
    find_store,
    print_lines,
    read_configuration,
)
from robustfeatures.errors import UserError


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The name of the study to write.")],
    data: Annotated[Path, typer.Option("--data", help="A folder of images, with a folder for each class.")],
    like: Annotated[
        str | None,
        typer.Option(
            "--like", help="The study whose trainings and experiments it gets. It may not extend another study."
        ),
    ] = None,
) -> None:
    """Write a study for a folder of images: classes, image size, SHA-256 and radii are filled in."""
    from robustfeatures.tools.new_study import write_study

    print_lines(write_study(name, data, STUDIES, like=like))


@app.command()
def verify(
    store: StoreOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rename damaged payloads to .damaged-*, to be made anew.")
    ] = False,
) -> None:
    """Hash every file of the store and print the damaged ones; exit code 1 if a damaged file is left in place."""
    from robustfeatures.pipeline.store.format import check_store
    from robustfeatures.tools.verify import verify as lines

    damaged, found = False, find_store(store)
    check_store(found.root)
    for line in lines(found, repair=repair):
        damaged = True
        print_lines([line])
    if not damaged:
        print_lines(["every payload is whole"])
    if damaged and not repair:
        raise typer.Exit(1)


@app.command()
def accept(
    reason: Annotated[str, typer.Option("--reason", help="Why the numbers are the same; kept with the acceptance.")],
    check: Annotated[str, typer.Option("--check", help="How many to make again for each changed code, or all.")] = "3",
    config: ConfigOption = CONFIG,
    study: StudyOption = None,
    store: StoreOption = None,
) -> None:
    """Make the cheapest results of each changed code again; if their bytes are the same, keep all of the study."""
    from robustfeatures.pipeline.plan.plan import unfold
    from robustfeatures.tools.accept import accept as lines

    if check != "all" and not (check.isdecimal() and int(check) > 0):
        raise UserError(f"--check: {check!r} is neither all nor a number above 0")
    if not reason.strip():
        raise UserError("--reason: empty; say why the numbers are the same")
    configured, count = read_configuration(config, study), None if check == "all" else int(check)
    plan, found = unfold(configured, STUDIES), find_store(store, configured)
    print_lines(lines(plan, configured.study, found, Path(configured.raw), check=count, reason=reason))


@app.command()
def gc(
    config: ConfigOption = CONFIG,
    study: Annotated[
        list[str] | None, typer.Option("--study", help="Keep only what this study uses; may be repeated.")
    ] = None,
    store: StoreOption = None,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished",
            help="Also checkpoints and blocks that no job has used for a week, and damaged payloads.",
        ),
    ] = False,
    everyone: Annotated[
        bool,
        typer.Option(
            "--everyone",
            help="Also what other checkouts need, what was needed before a change, and what is younger than a week.",
        ),
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Remove them; otherwise they are only listed.")] = False,
) -> None:
    """List or remove what nobody needs: leftovers, and the payloads that no study planned here uses.

    It keeps what other checkouts need, what is younger than a week, and what a job is making. It keeps what a study
    needed before a change, until all of the study is built again.
    """
    from robustfeatures.pipeline.plan.plan import unfold
    from robustfeatures.pipeline.store.format import check_store
    from robustfeatures.pipeline.store.references import Artifacts
    from robustfeatures.pipeline.study.study import find_study
    from robustfeatures.tools.gc import describe_payloads, find_unneeded, has_results, leftovers, studies_here

    artifacts = Artifacts(ARTIFACTS)
    configured = read_configuration(config)
    find_study(STUDIES, configured.study, f"{config}: study")
    for name in study or ():
        find_study(STUDIES, name, "--study")
    found = find_store(store, configured)
    check_store(found.root)
    here = [] if study else studies_here(artifacts, STUDIES, found)
    print_lines([f"kept: what the studies that were planned here use: {', '.join(here)}"] if here else [])
    # The configured study must be built if it has results, because others of its results may be under way.
    whole = study or [name for name in here if name == configured.study and has_results(artifacts, name)]
    partly = [] if study else sorted({*here, configured.study} - {*whole})
    try:
        plans, with_results = (
            [unfold(read_configuration(config, name), STUDIES) for name in names] for names in (whole, partly)
        )
    except UserError as error:
        raise UserError(f"{error}; mend this study or remove its file, because gc must know what it needs") from error
    unneeded = find_unneeded(plans, artifacts, found, with_results=with_results)
    print_lines(f"{'not kept' if everyone else 'kept'}: {line}" for line in unneeded.kept())
    keys = unneeded.keys(everyone=everyone)
    payloads, total = describe_payloads(keys, artifacts, found)
    said = "removed" if delete else "would remove"
    for key, payload in payloads.items():
        if delete:
            found.remove(key)
        print_lines([f"{said} {payload}"])
    print_lines([f"{said} {total}"] if payloads else [])
    # What belonged to a payload that was removed is left over too.
    _clear(leftovers(found, unfinished=unfinished, everyone=everyone), delete=delete)


def _clear(folders: Iterable[Path], *, delete: bool) -> None:
    """Print a line on each folder; with `delete` remove it. Another user's stays."""
    from robustfeatures.pipeline.store.store import discard

    said = "removed" if delete else "would remove"
    for folder in folders:
        if delete:
            discard(folder)
        left = delete and os.path.lexists(folder)
        print_lines([f"{folder}: left, because other users own it" if left else f"{said} {folder}"])
