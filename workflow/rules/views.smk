# Tables, figures, claims and the page. Their files have no digest in their names. So each job has its own rule, with the
# digests among its `params`; a change of these is a reason to run the rule (profiles/default). The table and the figure
# of an experiment are one job, so that they never show different results.
from functools import partial

VIEW_CAPTIONS = {
    "table": "../report/table.rst",
    "figure": "../report/figure.rst",
    "claims": "../report/claims.rst",
    "report": "../report/report.rst",
}


marked = partial(report, category=CONFIG.study)


def view_files(view):
    """The files of a view, with their labels in the menu of `snakemake --report`."""
    caption = VIEW_CAPTIONS[view.kind]
    return [
        marked(f"results/{name}", caption=caption, labels=view.labels(name))
        for name in view.outputs
    ]


for job, views in VIEW_JOBS.items():

    rule:
        """Write the table and the figure of one experiment, the claims file or the page."""
        name:
            job
        input:
            references(name for view in views for name in view.inputs),
            plans=[str(TRACKED.plan(view.artifact)) for view in views],
        output:
            references=[str(TRACKED.reference(view.artifact)) for view in views],
            files=[file for view in views for file in view_files(view)],
        log:
            f"results/logs/{views[0].artifact}.log",
        benchmark:
            f"results/benchmarks/{views[0].artifact}.tsv"
        localrule: True
        conda:
            CONDA
        threads: 1
        resources:
            mem_mb=2000,
            runtime=20,
        params:
            artifacts=[view.artifact for view in views],
        message:
            ", ".join(f"{view.kind} {view.label}" for view in views)
        shell:
            VIEW
