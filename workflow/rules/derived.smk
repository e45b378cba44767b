for batch in PLAN.batches("derived", CONFIG.seeds_per_job):

    rule:
        """Isolate robust or non-robust features: make derived data sets with a trained network."""
        name:
            f"derived_{batch.name}"
        input:
            references(batch.inputs),
        output:
            references(batch.artifacts),
        log:
            f"results/logs/{batch.artifacts[0]}.log",
        benchmark:
            f"results/benchmarks/{batch.artifacts[0]}.tsv"
        conda:
            CONDA
        threads: CONFIG.threads_per_job
        resources:
            mem_mb=16000,
            runtime=2880,
        shell:
            "python -m robustfeatures build {output:q} --threads {threads} --log {log:q}"
