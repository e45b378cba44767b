# Tables, figures, claims and the report. The reference names the digest of all that a view depends on, the files that
# people open do not; so each view has a rule of its own, and a file is made again when its reference is not there.
VIEW_CAPTIONS = {
    "table": "../report/table.rst",
    "figure": "../report/figure.rst",
    "claims": "../report/claims.rst",
    "report": "../report/report.rst",
}
VIEW_OUTPUTS = {view.artifact: [f"results/{name}" for name in view.outputs] for view in PLAN.views}

for view in PLAN.views:

    rule:
        """Write one table, figure, claims file or page from the references it reads."""
        name:
            f"{view.kind}_{view.label}"
        input:
            [ancient(name) for name in references(view.inputs)],
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
        threads: 1
        resources:
            mem_mb=2000,
            runtime=20,
        conda:
            CONDA
        shell:
            "python -m robustfeatures view {output.reference:q} --store {config[store]:q} --log {log:q}"
