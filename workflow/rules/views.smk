# Tables, figures, claims and the report. The files that people open bear no digest in their names. So each view has a
# rule of its own with the digest among its `params`, of which a change is a reason to run it (profiles/default).
VIEW_CAPTIONS = {
    "table": "../report/table.rst",
    "figure": "../report/figure.rst",
    "claims": "../report/claims.rst",
    "report": "../report/report.rst",
}
VIEW_OUTPUTS = {
    view.artifact: [f"results/{name}" for name in view.outputs] for view in VIEWS
}

for view in VIEWS:

    rule:
        """Write one table, figure, claims file or page from the references it reads."""
        name:
            f"{view.kind}_{view.label}"
        input:
            references(view.inputs),
            plan=str(ARTIFACTS.plan(view.artifact)),
        output:
            reference=str(ARTIFACTS.reference(view.artifact)),
            files=report(
                VIEW_OUTPUTS[view.artifact],
                caption=VIEW_CAPTIONS[view.kind],
                category=CONFIG.study,
                subcategory=view.kind,
            ),
        log:
            f"results/logs/{view.artifact}.log",
        benchmark:
            f"results/benchmarks/{view.artifact}.tsv"
        localrule: True
        conda:
            CONDA
        threads: 1
        resources:
            mem_mb=2000,
            runtime=20,
        params:
            artifact=view.artifact,
        shell:
            "python -m robustfeatures view {output.reference:q} --log {log:q}"
