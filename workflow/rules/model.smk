for batch in PLAN.batches("model", CONFIG.seeds_per_job):

    rule:
        """Train networks, in the standard way or adversarially, on original or derived data sets."""
        name:
            f"model_{batch.name}"
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
            runtime=1440,
        shell:
            "python -m robustfeatures build {output:q} --threads {threads} --log {log:q}"
