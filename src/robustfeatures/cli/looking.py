"""Commands that print what is there, and what an experiment asks for."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from robustfeatures.cli.app import (
    ARTIFACTS,
    CONFIG,
    STUDIES,
    Artifact,
    BuildsOption,
    ConfigOption,
    StoreOption,
    StudyOption,
    app,
    find_artifact,
    find_store,
    make_console,
    print_lines,
    read_configuration,
)
from robustfeatures.errors import UserError

# Between two looks of `status --watch`.
WATCH_SECONDS = 2.0


@app.command()
def show(artifact: Artifact, study: BuildsOption = None, store: StoreOption = None) -> None:
    """Print one artifact: its stage, settings, inputs, numbers, cost and folder."""
    from robustfeatures.tools.show import show as lines

    print_lines(lines(find_artifact(artifact, study), find_store(store), curves=sys.stdout.isatty()))


@app.command()
def why(artifact: Artifact, study: BuildsOption = None) -> None:
    """Print the recipes that an artifact builds on, and its differences from the newest earlier build of its label."""
    from robustfeatures.tools.why import why as lines

    print_lines(lines(find_artifact(artifact, study)))


@app.command(name="list")
def list_(
    stage: Annotated[str | None, typer.Option("--stage", help="Only this stage, such as model.")] = None,
    label: Annotated[str, typer.Option("--label", help="Only labels that contain this.")] = "",
    study: Annotated[str | None, typer.Option("--study", help="Only what this study uses; by default all.")] = None,
    store: StoreOption = None,
) -> None:
    """Print the artifacts that are there: label, digest, seed, accuracies or number of images, age, size on disk."""
    from robustfeatures.pipeline.plan.plan import unfold
    from robustfeatures.pipeline.store.references import Artifacts
    from robustfeatures.tools.listing import draw, list_artifacts

    names = None if study is None else unfold(read_configuration(CONFIG, study), STUDIES).recipes
    make_console().print(
        draw(list_artifacts(Artifacts(ARTIFACTS), find_store(store), stage=stage, label=label, names=names))
    )


@app.command()
def describe(
    experiment: Annotated[str, typer.Argument(help="The id of an experiment, such as A1.")],
    config: ConfigOption = CONFIG,
    study: StudyOption = None,
) -> None:
    """Print what an experiment shows, where in the paper, its settings, and what it uses of a study."""
    from robustfeatures.pipeline.study.study import find_study, read_study
    from robustfeatures.tools.describe import describe as lines

    if study is not None:
        # Otherwise another study would be shown in place of one with a mistake.
        read_study(find_study(STUDIES, study, "--study"))
    print_lines(lines(experiment, STUDIES, read_configuration(config, study).study))


@app.command()
def status(
    config: ConfigOption = CONFIG,
    study: StudyOption = None,
    store: StoreOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every two seconds, until Ctrl-C.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Also list the missing artifacts.")] = False,
) -> None:
    """Print how much of a study is there, the time it took, the time left, and the jobs at work."""
    from rich.live import Live

    from robustfeatures.pipeline.plan.plan import unfold
    from robustfeatures.pipeline.store.references import Artifacts
    from robustfeatures.tools.status import draw, find_state

    configured = read_configuration(config, study)
    plan, artifacts, found = unfold(configured, STUDIES), Artifacts(ARTIFACTS), find_store(store, configured)
    console = make_console()
    if watch and not console.is_terminal:
        raise UserError("--watch: needs a terminal; leave it out, and ask again later")
    if not watch:
        console.print(draw(find_state(plan, artifacts, found), every=every))
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(draw(find_state(plan, artifacts, found), every=every), refresh=True)
            time.sleep(WATCH_SECONDS)


@app.command()
def compare(
    studies: Annotated[list[str], typer.Argument(help="Studies that are built here; differences are from the first.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write; by default results/compared-STUDY-STUDY.")
    ] = None,
) -> None:
    """Write what studies share side by side: values, differences and verdicts, as CSV and on a page."""
    from robustfeatures.tools.compare import compare as lines

    results = ARTIFACTS.parent
    print_lines(lines(studies, results, out or results / f"compared-{'-'.join(studies)}"))
