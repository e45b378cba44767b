# Tables, figures, claims and the report. Their files have no digest in their names. So each view has its own rule, with
# the digest among its `params`; a change of these is a reason to run the rule (profiles/default).
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
        """Write one table, figure, claims file or page."""
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
